"""An archive's signing key: whose it is and when it ends. Packets and their numbers: RFC 9580, sections 4, 5 and 6."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ARMOUR = re.compile(
    r"\s*-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[A-Za-z]+: [^\n]*\n)*\s*\n"
    r"(?P<body>(?:[A-Za-z0-9+/=]+\n)+?)(?:=[A-Za-z0-9+/]{4}\n)?-----END PGP PUBLIC KEY BLOCK-----\s*"
)
SIGNATURE, KEY = 2, 6  # packets
# Signatures by which a key says what it is: of its users' names, and of itself
NAMES, DIRECT = (0x10, 0x11, 0x12, 0x13), 0x1F
CREATED, LASTS, ISSUER = 2, 9, 16  # parts of a signature
SHA1 = 2


@dataclass(frozen=True)
class Key:
    """One key. Nothing of it is verified here: apt does that."""

    fingerprint: str
    """40 capital hexadecimal digits."""
    expires: int | None
    """Seconds since the epoch; None for one that stays."""
    sha1: bool
    """Whether all that it says of itself is signed with SHA-1."""


@dataclass(frozen=True)
class _Signature:
    direct: bool
    created: int
    lasts: int
    """Seconds from the key's creation; 0 for ever."""
    sha1: bool


def read(text: str) -> Key:
    """Read an armoured key.

    Raises:
        ValueError: it is none, or holds more than one.
    """
    armour = _ARMOUR.fullmatch(text.replace("\r\n", "\n"))
    if armour is None:
        raise ValueError("is no armoured OpenPGP key")
    try:
        packets = list(_packets(base64.b64decode(armour["body"].replace("\n", ""), validate=True)))
        keys = [body for tag, body in packets if tag == KEY]
        if len(keys) != 1:
            raise ValueError(f"holds {len(keys)} keys, not one")
        (body,) = keys
        if body[0] != 4:
            raise ValueError(f"is an OpenPGP key of version {body[0]}: apt of Debian 12 and Ubuntu 22.04 knows 4 alone")
        fingerprint = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest()
        said = [one for tag, of in packets if tag == SIGNATURE and (one := _signature(of, fingerprint))]
        created = int.from_bytes(body[1:5], "big")
    except (binascii.Error, IndexError):
        raise ValueError("is no whole OpenPGP key") from None
    # where the key says nothing of itself directly, or not how long it lasts, the newest name counts; so does gpg
    newest = sorted(said, key=lambda one: (one.direct and one.lasts > 0, not one.direct, one.created))
    lasts = newest[-1].lasts if newest else 0
    return Key(fingerprint.upper(), created + lasts if lasts else None, bool(said) and all(one.sha1 for one in said))


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        first, at = data[at], at + 1
        if first & 0x40:
            tag = first & 0x3F
            length, at = _length(data, at)
        else:
            tag, width = (first >> 2) & 0x0F, 1 << (first & 3)
            if width == 8 or not first & 0x80:
                raise IndexError
            length, at = int.from_bytes(data[at : at + width], "big"), at + width
        if at + length > len(data):
            raise IndexError
        yield tag, data[at : at + length]
        at += length


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length and where what has it begins."""
    first = data[at]
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + data[at + 1] + 192, at + 2
    if first == 255:
        return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
    raise IndexError


def _signature(body: bytes, fingerprint: str) -> _Signature | None:
    """What a key says of itself; None for other signatures."""
    if body[0] != 4 or body[1] not in (*NAMES, DIRECT):
        return None
    hashed = int.from_bytes(body[4:6], "big")
    rest = 6 + hashed
    beside = int.from_bytes(body[rest : rest + 2], "big")
    parts = dict(_parts(body[6:rest]))
    issuer = (parts | dict(_parts(body[rest + 2 : rest + 2 + beside]))).get(ISSUER)
    if issuer is not None and issuer.hex() != fingerprint[-16:]:
        return None
    return _Signature(
        body[1] == DIRECT,
        int.from_bytes(parts.get(CREATED, b""), "big"),
        int.from_bytes(parts.get(LASTS, b""), "big"),
        body[3] == SHA1,
    )


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        length, at = _part_length(data, at)
        yield data[at] & 0x7F, data[at + 1 : at + length]
        at += length


def _part_length(data: bytes, at: int) -> tuple[int, int]:
    # unlike a packet's, two bytes go up to the five
    if 192 <= data[at] < 255:
        return ((data[at] - 192) << 8) + data[at + 1] + 192, at + 2
    return _length(data, at)
