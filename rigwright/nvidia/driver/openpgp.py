"""An archive's signing key: its owner and its expiry. Sequoia reads the packets (RFC 9580)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pysequoia.packet import HashAlgorithm, Packet, PacketPile, SignatureType, Tag

# one block and nothing beside it: gpg, and apt with it, takes every key that a file has
_ARMOUR = re.compile(
    r"\s*-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:(?!-----).)*-----END PGP PUBLIC KEY BLOCK-----\s*", re.DOTALL
)
# signatures by which a key says what it is: of its users' names, and of itself
NAMES = (
    SignatureType.GenericCertification,
    SignatureType.PersonaCertification,
    SignatureType.CasualCertification,
    SignatureType.PositiveCertification,
)
DIRECT = SignatureType.DirectKey


@dataclass(frozen=True)
class OpenpgpKey:
    """One key. Nothing of it is verified here: apt does that."""

    fingerprint: str
    """40 capital hexadecimal digits."""
    expires: int | None
    """Seconds since the epoch; None for one that stays."""
    sha1: bool
    """Whether all that it says of itself is signed with SHA-1."""


def parse_openpgp_key(text: str) -> OpenpgpKey:
    """Read an armoured key.

    Raises:
        ValueError: it is invalid, or holds more than one.
    """
    if not _ARMOUR.fullmatch(text.replace("\r\n", "\n")):
        raise ValueError("is not an ASCII-armoured OpenPGP key")
    try:
        packets: list[Packet] = list(PacketPile.from_bytes(text.encode()))
    except RuntimeError:
        raise ValueError("is not a complete OpenPGP key") from None
    keys = [one for one in packets if one.tag == Tag.PublicKey]
    if len(keys) != 1:
        raise ValueError(f"contains {len(keys)} keys, not one")
    (key,) = keys
    if key.body[:1] != b"\x04":
        version = key.body[0] if key.body else "unknown"
        raise ValueError(
            f"is an OpenPGP key of version {version}: apt on Debian 12 and Ubuntu 22.04 only supports version 4"
        )
    signatures = [one for one in packets if one.tag == Tag.Signature]
    if key.fingerprint is None or key.key_created is None or any(one.signature_type is None for one in signatures):
        raise ValueError("is not a complete OpenPGP key")
    said = [one for one in signatures if _is_self_signature(one, key)]
    newest = max(said, key=_signature_rank, default=None)
    lasts = _lifetime_seconds(newest) if newest else 0
    return OpenpgpKey(
        key.fingerprint.upper(),
        int(key.key_created.timestamp()) + lasts if lasts else None,
        bool(said) and all(one.hash_algorithm == HashAlgorithm.SHA1 for one in said),
    )


def _is_self_signature(signature: Packet, key: Packet) -> bool:
    kind = signature.signature_type
    return (kind == DIRECT or kind in NAMES) and signature.issuer_key_id in (None, key.key_id)


def _signature_rank(signature: Packet) -> tuple[bool, bool, float]:
    """Where the key says nothing of itself directly, or not how long it lasts, the newest name counts; so does gpg."""
    direct, created = signature.signature_type == DIRECT, signature.signature_created
    return direct and _lifetime_seconds(signature) > 0, not direct, created.timestamp() if created else 0


def _lifetime_seconds(signature: Packet) -> int:
    """From the key's creation; 0 for ever."""
    lasts = signature.key_validity_period
    return int(lasts.total_seconds()) if lasts else 0
