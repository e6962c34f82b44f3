"""Signers of an inventory: keys that may sign its lock, its bundles and verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from rigwright.problems import CausedError, InventoryModel
from rigwright.signing.signed_kinds import DEFAULT_KINDS, FINGERPRINT, PRINCIPAL, SignedKind
from rigwright.validated_types import Day, matching, refuse_violations

if TYPE_CHECKING:
    from rigwright.signing.trusted_signers import TrustedSigners

KEY_RULE = "a public key, such as ssh-ed25519 AAAA..., as in a .pub file"


def _validate_key(value: str) -> str:
    # few inventories have signers
    from rigwright.signing.public_keys import parse_public_key

    try:
        parse_public_key(value)
    except ValueError as error:
        raise CausedError(KEY_RULE, str(error)) from None
    return value


def _validate_revoked(value: str) -> str:
    if FINGERPRINT.fullmatch(value):
        return value
    try:
        return _validate_key(value)
    except CausedError:
        raise ValueError("a public key, or its fingerprint, such as SHA256:...: `ssh-keygen -lf KEY.pub`") from None


SigningKey = Annotated[str, AfterValidator(_validate_key)]
RevokedKey = Annotated[str, AfterValidator(_validate_revoked)]
SignerName = Annotated[str, matching(PRINCIPAL.pattern, "a name of 1 to 64 letters, digits and ._@-")]


class SignerEntry(InventoryModel):
    """A key that may sign, as declared."""

    EXAMPLE: ClassVar[str] = '{"key": "ssh-ed25519 AAAA..."}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("publickey", "pubkey", "sshkey"), "key"),
        **dict.fromkeys(("namespaces", "namespace", "kinds", "kind"), "signs"),
        **dict.fromkeys(("from", "notbefore", "after"), "valid_after"),
        **dict.fromkeys(("until", "expires", "notafter", "before"), "valid_before"),
    }

    key: SigningKey = Field(description="Its public key: a line of a `.pub` file. Keys on security tokens work.")
    signs: tuple[SignedKind, ...] = Field(
        default=DEFAULT_KINDS,
        min_length=1,
        description="The kinds of statements that it may sign. Generations and timestamps must be named: a signer of "
        "generations is root on the boxes that pull.",
    )
    valid_after: Day | None = Field(default=None, description="The first day of its validity, from 00:00 UTC.")
    valid_before: Day | None = Field(default=None, description="The day on which its validity ends, at 00:00 UTC.")

    @model_validator(mode="after")
    def _check_validity(self) -> SignerEntry:
        refuse_violations(
            (
                bool(self.valid_after and self.valid_before and self.valid_after >= self.valid_before),
                "a valid_after before its valid_before",
            )
        )
        return self


def resolve_signers(
    entries: Mapping[str, SignerEntry], revoked: Sequence[str], signed_as: str | None = None
) -> TrustedSigners:
    """The signers of an inventory.

    Args:
        entries: Name -> signer.
        revoked: Public keys and fingerprints.
        signed_as: The name of the inventory in their statements; None for that of its file.
    """
    from rigwright.signing.public_keys import parse_public_key
    from rigwright.signing.trusted_signers import Signer, TrustedSigners

    signers = tuple(
        Signer(
            name,
            parse_public_key(one.key),
            one.signs,
            _begin_of_day(one.valid_after),
            _begin_of_day(one.valid_before),
        )
        for name, one in entries.items()
    )
    fingerprints = (one if FINGERPRINT.fullmatch(one) else parse_public_key(one).fingerprint for one in revoked)
    return TrustedSigners(signers, frozenset(fingerprints), signed_as or "")


def _begin_of_day(day: str | None) -> datetime | None:
    return datetime.fromisoformat(day).replace(tzinfo=timezone.utc) if day else None
