"""DSSE envelopes (https://github.com/secure-systems-lab/dsse), each with one signature in SSH's format (SSHSIG)."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.strict_json import LARGEST, parse_strict_json, render_canonical_json

IN_TOTO = "application/vnd.in-toto+json"
"""The payload type of in-toto statements."""
_PAYLOAD_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,60}/[a-z0-9][a-z0-9.+-]{0,60}")
_KEY_ID = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: DSSE's PAE of a payload and its type."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True)
class Envelope:
    """A payload with its signature."""

    payload_type: str
    payload: bytes
    key_id: str
    """The fingerprint of the signing key, as `ssh-keygen -l` prints it."""
    signature: bytes
    """SSHSIG without its armour."""

    def render(self) -> bytes:
        """The file: canonical JSON on one line."""
        table = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": self.key_id, "sig": base64.b64encode(self.signature).decode()}],
        }
        return render_canonical_json(table) + b"\n"


def parse_envelope(data: bytes) -> Envelope:
    """Parse an envelope. A file has one form: any other spelling of the same values is refused.

    Raises:
        SignatureRefused: malformed.
    """
    table = parse_strict_json(data, "the envelope", 2 * LARGEST)
    if not isinstance(table, dict) or set(table) != {"payload", "payloadType", "signatures"}:
        raise SignatureRefused("malformed", "the envelope has other keys than payload, payloadType and signatures")
    rows = table["signatures"]
    if not isinstance(rows, list) or len(rows) != 1:
        raise SignatureRefused("malformed", "the envelope does not have exactly one signature")
    if not isinstance(rows[0], dict) or set(rows[0]) != {"keyid", "sig"}:
        raise SignatureRefused("malformed", "the signature has other keys than keyid and sig")
    envelope = Envelope(
        _match_text(table["payloadType"], _PAYLOAD_TYPE, "payloadType"),
        decode_base64(table["payload"], "payload"),
        _match_text(rows[0]["keyid"], _KEY_ID, "keyid"),
        decode_base64(rows[0]["sig"], "sig"),
    )
    if envelope.render() != data:
        raise SignatureRefused("malformed", "the envelope is not canonical JSON with a newline")
    return envelope


def _match_text(value: object, pattern: re.Pattern[str], name: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise SignatureRefused("malformed", f"{name} of the envelope is malformed")
    return value


def decode_base64(value: object, name: str) -> bytes:
    """Decode base64 in its one form: padded, without spaces.

    Raises:
        SignatureRefused: malformed.
    """
    try:
        if isinstance(value, str) and value:
            decoded = base64.b64decode(value.encode("ascii"), validate=True)
            if base64.b64encode(decoded).decode() == value:
                return decoded
    except (binascii.Error, ValueError):
        pass
    raise SignatureRefused("malformed", f"{name} is not base64")
