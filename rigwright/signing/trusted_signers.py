"""Keys that may sign: the signers of an inventory, and revoked keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from rigwright.signing.public_keys import PublicKey
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.signed_kinds import PRINCIPAL, SignedKind, signature_namespace
from rigwright.signing.timestamps import render_time


@dataclass(frozen=True)
class Signer:
    """A key that may sign."""

    principal: str
    key: PublicKey
    kinds: tuple[SignedKind, ...]
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    def __post_init__(self) -> None:
        if not PRINCIPAL.fullmatch(self.principal):
            raise ValueError("the name of a signer has letters, digits and ._@- only")


@dataclass(frozen=True)
class TrustedSigners:
    """All keys that may sign, and keys that no longer may."""

    signers: tuple[Signer, ...]
    revoked: frozenset[str] = frozenset()
    """Fingerprints."""
    signed_as: str = ""
    """The name of the inventory in their statements; empty for that of its file."""

    def find(self, key: PublicKey) -> Signer:
        """The signer with a key.

        Raises:
            SignatureRefused: revoked or unknown_signer.
        """
        if key.fingerprint in self.revoked:
            raise SignatureRefused("revoked", f"the key {key.fingerprint} is revoked")
        found = next((one for one in self.signers if one.key.blob == key.blob), None)
        if not found:
            known = ", ".join(f"{one.principal} ({one.key.fingerprint})" for one in self.signers[:5]) or "no signer"
            raise SignatureRefused("unknown_signer", f"the key {key.fingerprint} is of no signer; known: {known}")
        return found


def require_may_sign(signer: Signer, kind: SignedKind, *moments: datetime) -> None:
    """Refuse a signer for another kind, or outside of the key's validity.

    Args:
        signer: The signer.
        kind: The kind of the statement.
        moments: The times at which the key must be valid.

    Raises:
        SignatureRefused: wrong_kind, key_not_yet_valid or key_expired.
    """
    if kind not in signer.kinds:
        text = f"{signer.principal} may sign {', '.join(signer.kinds)}, and not {kind}"
        raise SignatureRefused("wrong_kind", text)
    for moment in moments:
        if signer.valid_after and moment < signer.valid_after:
            text = f"the key of {signer.principal} is valid after {render_time(signer.valid_after)}"
            raise SignatureRefused("key_not_yet_valid", f"{text}, and not at {render_time(moment)}")
        if signer.valid_before and moment >= signer.valid_before:
            text = f"the key of {signer.principal} is valid before {render_time(signer.valid_before)}"
            raise SignatureRefused("key_expired", f"{text}, and not at {render_time(moment)}")


def render_allowed_signers(signers: TrustedSigners) -> str:
    """The file for `ssh-keygen -Y verify -f`, to be read with TZ=UTC."""
    lines = []
    for one in signers.signers:
        options = [f'namespaces="{",".join(map(signature_namespace, one.kinds))}"']
        if one.valid_after:
            options.append(f'valid-after="{render_keygen_time(one.valid_after)}"')
        if one.valid_before:
            options.append(f'valid-before="{render_keygen_time(one.valid_before)}"')
        lines.append(f"{one.principal} {','.join(options)} {one.key}\n")
    return "".join(lines)


def render_keygen_time(moment: datetime) -> str:
    """A time as ssh-keygen reads it with TZ=UTC; OpenSSH before 9.1 knows no Z at its end."""
    return moment.astimezone(timezone.utc).strftime("%Y%m%d%H%M%S")
