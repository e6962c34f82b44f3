"""Signatures by `ssh-keygen -Y`: its format, signing, and verification."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path

from rigwright.signing.dsse import IN_TOTO, Envelope, decode_base64, parse_envelope, pre_authentication_encoding
from rigwright.signing.public_keys import PublicKey, parse_key_blob
from rigwright.signing.refusals import SignatureRefused
from rigwright.signing.statements import (
    SignedKind,
    Statement,
    parse_statement,
    require_current,
    signature_namespace,
)
from rigwright.signing.timestamps import current_time
from rigwright.signing.trusted_signers import (
    Signer,
    TrustedSigners,
    render_allowed_signers,
    render_keygen_time,
    require_may_sign,
)
from rigwright.signing.wire_format import WireReader

_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_MAGIC = b"SSHSIG"
_HASHES = ("sha512", "sha256")
LARGEST_SIGNATURE = 1 << 14  # bytes; RSA of 16384 bits has 4,400
_TOUCHED = 1  # flag of a security token's signature: CTAP's "user present"


@dataclass(frozen=True)
class SshSignature:
    """The fields of an SSHSIG that Rigwright judges (PROTOCOL.sshsig of OpenSSH)."""

    key: PublicKey
    namespace: str
    flags: int | None
    """The flags that a security token has signed; None for a key in a file."""


def parse_ssh_signature(blob: bytes) -> SshSignature:
    """Parse an SSHSIG without armour, to its last byte.

    Raises:
        SignatureRefused: malformed.
    """
    name = "the signature"
    if len(blob) > LARGEST_SIGNATURE:
        raise SignatureRefused("malformed", f"{name} has more than {LARGEST_SIGNATURE} bytes")
    reader = WireReader(blob, name)
    if reader.read_exactly(len(_MAGIC)) != _MAGIC or reader.read_number() != 1:
        raise SignatureRefused("malformed", f"{name} is no SSH signature of version 1")
    key = parse_key_blob(reader.read_bytes())
    namespace = reader.read_text()
    if reader.read_bytes():
        raise SignatureRefused("malformed", f"{name} has a reserved field")
    if reader.read_text() not in _HASHES:
        raise SignatureRefused("malformed", f"{name} has another hash than {' and '.join(_HASHES)}")
    signature = WireReader(reader.read_bytes(), name)
    reader.require_end()
    flags = None
    if key.key_type.startswith("sk-"):
        # type, signature, flags (OpenSSH's PROTOCOL.u2f); ssh-keygen judges the rest
        signature.read_bytes()
        signature.read_bytes()
        flags = signature.read_exactly(1)[0]
    return SshSignature(key, namespace, flags)


def require_touch(signature: SshSignature) -> None:
    """Refuse a security token's signature that was made without a touch; ssh-keygen does not.

    A client may ask any token for one, so that the options of the key do not decide.

    Raises:
        SignatureRefused: there was none.
    """
    if signature.flags is not None and not signature.flags & _TOUCHED:
        text = f"{signature.key.fingerprint} is on a security token, which was not touched for this signature (flag 1)"
        raise SignatureRefused("no_touch", f"{text}: sign again without no-touch-required")


def sign_statement(statement: Statement, key_file: Path) -> Envelope:
    """Sign a statement.

    Raises:
        SignatureRefused: as `sign_payload`.
    """
    return sign_payload(statement.render(), statement.kind, key_file)


def sign_payload(payload: bytes, kind: SignedKind, key_file: Path) -> Envelope:
    """Sign the bytes of an in-toto statement. ssh-keygen asks for a passphrase itself.

    Args:
        payload: The statement.
        kind: Its kind.
        key_file: A private key, or a public key of which ssh-agent has the private one.

    Raises:
        SignatureRefused: ssh-keygen does not sign, and the text has its message; or a token was not touched.
    """
    # with the data on its standard input, ssh-keygen writes the signature to its standard output
    words = ["-q", "-Y", "sign", "-f", str(key_file.absolute()), "-n", signature_namespace(kind)]
    output, fault = _run_keygen(words, pre_authentication_encoding(IN_TOTO, payload), None, is_signing=True)
    if fault:
        raise SignatureRefused("no_program", f"ssh-keygen does not sign with {key_file}: {fault}")
    blob = _remove_armour(output.decode("ascii", "replace"))
    signature = parse_ssh_signature(blob)
    require_touch(signature)
    return Envelope(IN_TOTO, payload, signature.key.fingerprint, blob)


@dataclass(frozen=True)
class VerifiedStatement:
    """A statement and the signer of it."""

    statement: Statement
    signer: Signer


def verify_envelope(
    data: bytes, kind: SignedKind, signers: TrustedSigners, now: datetime | None = None
) -> VerifiedStatement:
    """Verify a signed file of a kind.

    The key must be valid both now and at the time of the signature: that time is the signer's own word.

    Args:
        data: The file.
        kind: The kind that it must have.
        signers: The keys that may sign.
        now: The present time.

    Raises:
        SignatureRefused: with its reason.
    """
    now = now or current_time()
    envelope, signer = verify_signature(data, kind, signers, now)
    statement = parse_statement(envelope, kind)
    require_current(statement, now)
    require_may_sign(signer, kind, statement.signed)
    return VerifiedStatement(statement, signer)


def verify_signature(data: bytes, kind: SignedKind, signers: TrustedSigners, now: datetime) -> tuple[Envelope, Signer]:
    """Verify the signature in an envelope, whatever its statement is; returns the envelope and its signer.

    Args:
        data: The file.
        kind: The kind that its signature must be for.
        signers: The keys that may sign.
        now: The present time, at which the key must be valid.

    Raises:
        SignatureRefused: with its reason.
    """
    envelope = parse_envelope(data)
    signature = parse_ssh_signature(envelope.signature)
    if envelope.key_id != signature.key.fingerprint:
        raise SignatureRefused("malformed", "keyid of the envelope is not the fingerprint of the signature's key")
    if signature.namespace != signature_namespace(kind):
        text = f"the signature has the namespace {signature.namespace[:60]}, and not {signature_namespace(kind)}"
        raise SignatureRefused("wrong_kind", text)
    signer = signers.find(signature.key)
    require_may_sign(signer, kind, now)
    _verify_with_keygen(envelope, signer, kind, signers, now)
    require_touch(signature)
    return envelope, signer


def _verify_with_keygen(
    envelope: Envelope, signer: Signer, kind: SignedKind, signers: TrustedSigners, now: datetime
) -> None:
    signed = pre_authentication_encoding(envelope.payload_type, envelope.payload)
    files = {
        "allowed": render_allowed_signers(signers),
        "revoked": "".join(f"{one.key}\n" for one in signers.signers if one.key.fingerprint in signers.revoked),
        "signature": _add_armour(envelope.signature),
    }
    words = ["-Y", "verify", "-f", "allowed", "-I", signer.principal, "-n", signature_namespace(kind)]
    words += ["-s", "signature", "-r", "revoked", f"-Overify-time={render_keygen_time(now)}"]
    _, fault = _run_keygen(words, signed, files)
    if fault:
        text = f"the signed bytes were changed, or the signature was: ssh-keygen says {fault}"
        raise SignatureRefused("changed", text)


def _run_keygen(
    arguments: Sequence[str], data: bytes, files: Mapping[str, str] | None, *, is_signing: bool = False
) -> tuple[bytes, str]:
    # by name: the domain itself starts no program
    run = import_module("roles.ssh_keygen").run_ssh_keygen
    output, fault = run(arguments, data, files, is_signing=is_signing)
    return bytes(output), str(fault)


def _add_armour(blob: bytes) -> str:
    text = base64.b64encode(blob).decode()
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def _remove_armour(text: str) -> bytes:
    lines = text.split("\n")
    if len(lines) < 4 or lines[0] != _BEGIN or lines[-2:] != [_END, ""]:
        raise SignatureRefused("malformed", "ssh-keygen printed no signature")
    return decode_base64("".join(lines[1:-2]), "the signature of ssh-keygen")
