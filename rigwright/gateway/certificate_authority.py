"""An authority of the operator's own: its key on this machine, its certificate with clients, and what it signs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from tempfile import NamedTemporaryFile

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rigwright import local_files
from rigwright.gateway.certificates import CertificatePair, certificate_names
from rigwright.gateway.secrets_distribution import CertificateFacts
from rigwright.project_root import require_own_place

FOLDER = "gateway-ca"  # beside the inventory
KEY, CERTIFICATE = "ca.key", "ca.crt"
YEARS = 10
LEAF = timedelta(days=90)
RENEWAL = timedelta(days=30)  # remains of a leaf when another one is made
EARLIER = timedelta(hours=1)  # by which a client's clock may be slow
MAXIMUM = 64 * 1024  # bytes of a file
LENGTH = 64  # characters of a common name (RFC 5280, ub-common-name)


class BrokenAuthority(ValueError):
    """Its files are not what they should be; the text says which, and what to do."""


@dataclass(frozen=True)
class Authority:
    """It can sign."""

    certificate: x509.Certificate
    _key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Authority({self.fingerprint})"

    @property
    def pem(self) -> str:
        """The certificate that clients trust."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as browsers and `openssl x509 -fingerprint` print it."""
        return self.certificate.fingerprint(hashes.SHA256()).hex(":").upper()

    def issue(self, sans: Sequence[str], now: datetime, *, is_client: bool = False) -> CertificatePair:
        """A new key, and a certificate that names a listener, or a client.

        Args:
            sans: Names and addresses, as `rigwright.gateway.certificates.subject_alt_names` has them.
            now: From when on it is valid, for 90 days, or until the authority ends.
            is_client: Whether it is for a client, and not for a listener.

        Raises:
            BrokenAuthority: the authority itself ends before the leaf would have to be renewed.
            ValueError: there is no name, or none that a certificate can have.
        """
        if not sans or any(one.startswith(".") for one in sans):
            raise ValueError("a certificate needs a name or address that clients use, not a domain")
        ends = min(now + LEAF, self.certificate.not_valid_after_utc)
        if ends - now <= RENEWAL:
            raise BrokenAuthority(
                f"the CA expires on {ends:%Y-%m-%d}: move {FOLDER} away, and have clients trust a new CA"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if is_client else ExtendedKeyUsageOID.SERVER_AUTH
        above = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = (
            x509.CertificateBuilder()
            .subject_name(_common_name(sans[0][:LENGTH]))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - EARLIER)
            .not_valid_after(ends)
            .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in sans]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(above), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return CertificatePair(made.public_bytes(Encoding.PEM).decode(), _render_key(key))

    def sign_revocations(self, revoked: Mapping[int, datetime], now: datetime) -> str:
        """A list of certificates that are not valid any more, in PEM; it holds as long as the authority.

        Args:
            revoked: Serial number -> when that began.
            now: The moment.
        """
        listed = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - EARLIER)
            .next_update(self.certificate.not_valid_after_utc)
        )
        for serial, since in sorted(revoked.items()):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
            listed = listed.add_revoked_certificate(entry)
        return listed.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def renewal_reason(self, found: CertificateFacts | None, sans: Sequence[str], now: datetime) -> str:
        """Why a host needs another pair; empty where the one that it has will do.

        Args:
            found: Its files; hostile.
            sans: Its target subjects.
            now: The moment.
        """
        if found is None:
            return "none exists yet"
        try:
            certificate = x509.load_pem_x509_certificate(found.certificates.encode())
            ends = certificate.not_valid_after_utc
        except ValueError:
            return "the existing files are not a certificate with its key"
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return "it was issued by another CA"
        if certificate_names(certificate) != tuple(sorted(sans)):
            return "its names differ"
        return f"it expires on {ends:%Y-%m-%d}" if ends - now <= RENEWAL else ""


def ensure_authority(folder: Path, now: datetime) -> Authority:
    """The one whose files lie in a folder; a new one where there is none.

    Raises:
        BrokenAuthority: the files there cannot be used.
        OSError: it cannot be written.
    """
    key, certificate = folder / KEY, folder / CERTIFICATE
    if certificate.exists() and not key.exists():
        raise BrokenAuthority(
            f"{key} is missing: restore it, or move {certificate} away and have clients trust a new CA"
        )
    if not key.exists():
        require_own_place(folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        _write(key, _render_key(ec.generate_private_key(ec.SECP256R1())))
    # one that was cut off between the two goes on here
    secret = _load_key(key)
    if not certificate.exists():
        _write(certificate, _make_certificate(secret, now).public_bytes(Encoding.PEM).decode())
    return Authority(_load_certificate(certificate, secret, now), secret)


def temporary_authority(now: datetime) -> Authority:
    """One without files: clients trust none of its certificates; it shows what would be done."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Authority(_make_certificate(key, now), key)


def load_authority(folder: Path, now: datetime) -> Authority | None:
    """The one whose files lie in a folder; None where there is none, or where making it was cut off.

    Raises:
        BrokenAuthority: as `ensure_authority`.
    """
    return ensure_authority(folder, now) if (folder / CERTIFICATE).exists() else None


def _make_certificate(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    # the name distinguishes two of them in one list of a browser's
    name = _common_name(f"Rigwright gateways, {now:%Y-%m-%d}")
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    content = _read_content(path)
    if path.stat().st_mode & 0o077:
        raise BrokenAuthority(f"{path} is readable by others: `chmod 600` it, or create a new CA if they read it")
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BrokenAuthority(f"{path} contains no PEM private key without a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise BrokenAuthority(f"{path} contains no P-256 key")
    return key


def _load_certificate(path: Path, key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    content = _read_content(path)
    try:
        found = x509.load_pem_x509_certificate(content)
    except ValueError:
        raise BrokenAuthority(f"{path} contains no PEM certificate") from None
    if found.public_key() != key.public_key():
        raise BrokenAuthority(f"{path} is not the certificate of {path.with_name(KEY)}")
    if found.not_valid_after_utc <= now:
        ended = f"{found.not_valid_after_utc:%Y-%m-%d}"
        raise BrokenAuthority(f"{path} expired on {ended}: move its folder away, and have clients trust a new CA")
    return found


def _read_content(path: Path) -> bytes:
    try:
        return local_files.read_content(path, MAXIMUM)
    except ValueError as error:
        raise BrokenAuthority(f"{path} {error}") from None


def _write(path: Path, text: str) -> None:
    """Write a file that is not there, for its owner alone, whole or not at all."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            # of two that make one at once, the first
            with suppress(FileExistsError):
                os.link(file.name, path)
        finally:
            Path(file.name).unlink()


def _render_key(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _common_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*allowed: str) -> x509.KeyUsage:
    kinds = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    signing = ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**{kind: kind in allowed for kind in (*kinds, *signing)})


def certificate_now() -> datetime:
    """Now, as certificates have it."""
    return datetime.now(timezone.utc).replace(microsecond=0)
