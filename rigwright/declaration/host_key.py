"""A host's public SSH key: what an inventory pins, and what a connection is held to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass

_CURVES = {"nistp256": 65, "nistp384": 97, "nistp521": 133}  # bytes of an uncompressed point (SEC 1, 2.3.3)
_EDWARDS = 32  # bytes of an Ed25519 public key (RFC 8032, 5.1.5)
_RSA_BITS = 1024  # shorter ones OpenSSH refuses (ssh_config, RequiredRSASize)
KINDS = ("ssh-ed25519", *(f"ecdsa-sha2-{curve}" for curve in _CURVES), "ssh-rsa")
RULE = f"a host's public key: {', '.join(KINDS[:-1])} or {KINDS[-1]}, a space, and the key in base64"


@dataclass(frozen=True)
class HostKey:
    """One public key."""

    kind: str
    blob: bytes
    """As it goes over the wire (RFC 4253, 6.6), its kind first."""

    def __str__(self) -> str:
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"

    @property
    def comparison_command(self) -> str:
        """The command that prints the fingerprint on the host itself, where Debian and Ubuntu have its keys."""
        noun = self.kind.removeprefix("ssh-").partition("-")[0]
        return f"ssh-keygen -lf /etc/ssh/ssh_host_{noun}_key.pub"


def parse_host_key(text: str) -> HostKey:
    """A key from a line of a `.pub` file; a comment after it is dropped.

    Raises:
        ValueError: it is none; the text says what is wrong.
    """
    kind, _, rest = text.partition(" ")
    encoded, _, comment = rest.partition(" ")
    if kind not in KINDS or not comment.isprintable():
        raise ValueError(RULE)
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):  # the latter for what is not ASCII
        raise ValueError("the key is not base64") from None
    if not _is_complete(kind, _fields(blob)):
        raise ValueError(f"the base64 contains no key of type {kind}")
    return HostKey(kind, blob)


def is_host_key(value: object) -> bool:
    """Whether a value is the text of a key."""
    try:
        return isinstance(value, str) and bool(parse_host_key(value))
    except ValueError:
        return False


def _fields(blob: bytes) -> list[bytes]:
    """The strings that a blob holds, each after its length; none where that does not come out."""
    found = []
    while len(blob) >= 4:
        (size,) = struct.unpack(">I", blob[:4])
        found.append(blob[4 : 4 + size])
        if len(found[-1]) < size:
            return []
        blob = blob[4 + size :]
    return [] if blob else found


def _is_complete(kind: str, fields: list[bytes]) -> bool:
    if not fields or fields[0] != kind.encode():
        return False
    if kind == "ssh-ed25519":
        return [len(one) for one in fields[1:]] == [_EDWARDS]
    if kind == "ssh-rsa":
        return len(fields) == 3 and all(map(_is_positive, fields[1:])) and _bits(fields[2]) >= _RSA_BITS
    curve = kind.removeprefix("ecdsa-sha2-")
    return len(fields) == 3 and fields[1] == curve.encode() and len(fields[2]) == _CURVES[curve] and fields[2][0] == 4


def _is_positive(number: bytes) -> bool:
    """Whether it is a number above zero in the one form it may have (RFC 4251, mpint)."""
    return bool(number) and number[0] < 0x80 and not (number[0] == 0 and (len(number) == 1 or number[1] < 0x80))


def _bits(number: bytes) -> int:
    return int.from_bytes(number, "big").bit_length()
