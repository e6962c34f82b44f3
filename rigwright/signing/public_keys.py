"""Public keys of SSH: one line each, and their fingerprints."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass

from rigwright.signing.dsse import decode_base64
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.wire_format import WireReader

KEY_TYPES = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)
"""Types with which ssh-keygen signs; sk- keys are on security tokens."""
SMALLEST_RSA = 2048  # bits
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
KEY_LINE = re.compile(r"([a-z0-9@.-]{1,60}) ([A-Za-z0-9+/]{20,4000}={0,2})(?: [^\x00-\x1f\x7f]{0,200})?")


@dataclass(frozen=True)
class PublicKey:
    """A public key."""

    key_type: str
    blob: bytes
    """Its bytes in SSH's wire format."""

    @property
    def fingerprint(self) -> str:
        """Its fingerprint, as `ssh-keygen -l` prints it."""
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"

    def __str__(self) -> str:
        return f"{self.key_type} {base64.b64encode(self.blob).decode()}"


def parse_public_key(line: str) -> PublicKey:
    """Parse a line of a .pub file; a comment is dropped.

    Raises:
        SignatureRefused: malformed.
    """
    found = KEY_LINE.fullmatch(line)
    if not found:
        raise SignatureRefused("malformed", "a public key is a line of ssh-keygen, such as ssh-ed25519 AAAA...")
    key = parse_key_blob(decode_base64(found[2], "the public key"))
    if key.key_type != found[1]:
        raise SignatureRefused("malformed", f"the public key is a {key.key_type} key, and its line begins otherwise")
    return key


def parse_key_blob(blob: bytes) -> PublicKey:
    """Parse a public key's bytes: its type, and that RSA is long enough. ssh-keygen judges the rest.

    Raises:
        SignatureRefused: malformed.
    """
    reader = WireReader(blob, "the public key")
    name = reader.read_text()
    if name not in KEY_TYPES:
        raise SignatureRefused(
            "malformed", f"the public key has the type {name[:40]!r}; allowed: {', '.join(KEY_TYPES)}"
        )
    if name == "ssh-rsa":
        reader.read_bytes()
        bits = int.from_bytes(reader.read_bytes(), "big").bit_length()
        if bits < SMALLEST_RSA:
            raise SignatureRefused("malformed", f"the public key is RSA of {bits} bits; at least {SMALLEST_RSA}")
        reader.require_end()
    return PublicKey(name, blob)
