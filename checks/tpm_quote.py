"""Quotes of a host's TPM over the digest of a verdict: the host's script, its output, and the verification.

The key of a quote is a restricted signing key (ECDSA, P-256) that the TPM derives from its endorsement seed: it signs
nothing but structures that the TPM has made itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from checks.verdict_verifier import render_canonical
from rigwright.host import script_output
from rigwright.render import render
from rigwright.signing.refusals import SignatureRefused

PCRS = 8
"""Registers 0 to 7, of SHA-256: firmware, its settings, boot loader and Secure Boot."""
DIGEST = 32
LARGEST = 4096  # characters of a part of a quote, in base64
FIELDS = ("key", "quote", "signature", "pcrs")
GENERATED, QUOTE, SHA256 = b"\xffTCG", b"\x80\x18", b"\x00\x0b"
"""TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE and TPM_ALG_SHA256 of TPM 2.0, part 2."""
_PART = script_output.matching(rf"[A-Za-z0-9+/=]{{1,{LARGEST}}}", "a part of a quote in base64")
SCHEMA: script_output.Schema = {
    "quote": (_PART,) * len(FIELDS),
    "failed": (script_output.word, script_output.free_text),
}


class QuoteFailed(Exception):
    """A host has a TPM that makes no quote."""


def digest_quoted_details(details: Mapping[str, Any]) -> str:
    """SHA-256 of the details of a verdict without the quote, which the quote is about."""
    rest = {name: value for name, value in details.items() if name != "tpm"}
    return hashlib.sha256(render_canonical(rest)).hexdigest()


def render_quote_script(digest: str) -> str:
    """The script that has a host's TPM quote a digest."""
    registers = "sha256:" + ",".join(map(str, range(PCRS)))
    return render("look/tpm_quote.sh.j2", digest=digest, pcrs=registers)


def parse_quote(output: Iterable[str]) -> dict[str, str] | None:
    """The quote of a host; None without a TPM.

    Raises:
        ValueError: the host told something else.
        QuoteFailed: it has a TPM that makes none.
    """
    found = script_output.parse_output(output, SCHEMA)
    for program, complaint in found.many("failed"):
        raise QuoteFailed(f"{program}: {complaint}" if complaint else f"{program} failed")
    rows = found.many("quote")
    return dict(zip(FIELDS, rows[0], strict=True)) if rows else None


def verify_quote(details: Mapping[str, Any], keys: Iterable[bytes]) -> str:
    """Verify the quote of a verdict, by keys that are known beforehand; returns the name of its key.

    Args:
        details: The details of the verdict.
        keys: Public keys of TPMs, in PEM.

    Raises:
        SignatureRefused: missing, malformed, unknown_signer, changed or other_subject.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256 as Hash

    parts = _decode_parts(details.get("tpm"))
    name, known = name_tpm_key(parts["key"]), {name_tpm_key(one): load_tpm_key(one) for one in keys}
    if name not in known:
        text = f"its quote is by the TPM key {name}; known: {', '.join(known) or 'none'}"
        raise SignatureRefused("unknown_signer", text)
    try:
        known[name].verify(parts["signature"], parts["quote"], ECDSA(Hash()))
    except InvalidSignature:
        raise SignatureRefused("changed", "the signature of its quote does not count") from None
    _verify_content(parts["quote"], bytes.fromhex(digest_quoted_details(details)), parts["pcrs"])
    return name


def read_registers(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of registers 0 to 7 in a quote that `verify_quote` has verified, in hexadecimal."""
    values = _decode_parts(details.get("tpm"))["pcrs"].hex()
    return tuple(values[start : start + 2 * DIGEST] for start in range(0, len(values), 2 * DIGEST))


def describe_registers(quoted: Sequence[tuple[int, Mapping[str, Any]]]) -> list[str]:
    """The registers of the last of these verdicts, and their changes.

    Args:
        quoted: Number and details of verdicts with verified quotes, in their order.
    """
    values = [(number, read_registers(details)) for number, details in quoted]
    lines = [f"register {register}: {value}" for register, value in enumerate(values[-1][1])]
    for (number, before), (after, now) in itertools.pairwise(values):
        if changed := [str(one) for one in range(PCRS) if before[one] != now[one]]:
            lines.append(f"CHANGED between verdicts {number} and {after}: register {', '.join(changed)}")
    return lines


def _decode_parts(quote: object) -> dict[str, bytes]:
    if quote is None:
        raise SignatureRefused("missing", "it has no quote of a TPM")
    if not isinstance(quote, dict) or {*quote} != {*FIELDS}:
        raise SignatureRefused("malformed", f"tpm has other keys than {FIELDS}")
    try:
        return {name: base64.b64decode(str(quote[name]), validate=True) for name in FIELDS}
    except binascii.Error as error:
        raise SignatureRefused("malformed", f"tpm: {error}") from None


def load_tpm_key(pem: bytes) -> Any:
    """The public key of a TPM.

    Raises:
        SignatureRefused: malformed.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise SignatureRefused("malformed", "the key of a TPM is no public key in PEM on the curve P-256")
    return key


def name_tpm_key(pem: bytes) -> str:
    """The fingerprint of a TPM's public key: of its bytes, whatever their PEM looks like."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = load_tpm_key(pem)
    return f"SHA256:{hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()}"


def _verify_content(quote: bytes, digest: bytes, pcrs: bytes) -> None:
    """Refuse a quote (TPMS_ATTEST) over another digest, of other registers, or with other values."""
    if quote[:4] != GENERATED or quote[4:6] != QUOTE:
        raise SignatureRefused("malformed", "the TPM has signed something else than a quote")
    signer = 8 + int.from_bytes(quote[6:8], "big")
    about = quote[signer : signer + 2 + DIGEST]
    if about != DIGEST.to_bytes(2, "big") + digest:
        raise SignatureRefused("other_subject", "its quote is about another verdict")
    # after the clock (17 bytes) and the firmware's version (8)
    selection = (1).to_bytes(4, "big") + SHA256 + b"\x03" + bytes(((1 << PCRS) - 1, 0, 0))
    expected = selection + DIGEST.to_bytes(2, "big") + hashlib.sha256(pcrs).digest()
    if len(pcrs) != PCRS * DIGEST or quote[signer + len(about) + 25 :] != expected:
        raise SignatureRefused("changed", f"the values of registers 0 to {PCRS - 1} are not those of its quote")
