"""Certificates of gateways: files, facts on a host, and validity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from rigwright.gateway.secrets_distribution import CertificateFacts
from rigwright.model.secret_sources import SecretSource, read_secret

MAXIMUM = 1024 * 1024  # bytes of a file


@dataclass(frozen=True)
class CertificatePair:
    """Two texts in PEM."""

    certificates: str
    """The listener's own, then those above it."""
    key: str = field(repr=False)

    @property
    def expected_facts(self) -> CertificateFacts:
        """The facts of a host that has it."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()
        return CertificateFacts(f"key {digest}\n{self.certificates}", digest)

    @property
    def text(self) -> str:
        """Its file on the host: both in one, of which there never is half."""
        return self.expected_facts.head + self.key


@dataclass(frozen=True)
class CertificateSpec:
    """The target certificate of a listener."""

    listener: str
    sans: tuple[str, ...]
    """Names and addresses that clients use, as `subject_alt_names` has them."""
    cert_file: str | None = None
    """Paths on the operator's machine; without them the operator's own authority signs."""
    key_file: SecretSource | None = None
    """Likewise, or a command that prints the key."""
    between_boxes: Literal["", "client", "server"] = ""
    """Of a certificate for connections between boxes: its side. The file then has the authority's certificate and its
    list of revoked ones as well, by which nginx judges the other side."""


def subject_alt_names(names: Iterable[str], addresses: Iterable[str]) -> tuple[str, ...]:
    """The subjects of a certificate, in order: names and IP addresses that clients use.

    Args:
        names: Of hosts, or addresses.
        addresses: Those that it listens on; all of them at once (`0.0.0.0`, `::`) add no name.
    """
    one_each = {str(ip_address(one)) for one in addresses if not ip_address(one).is_unspecified}
    return tuple(sorted({*(_normalize_name(name) for name in names), *one_each}))


def _normalize_name(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower().rstrip(".")


def certificate_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names of a certificate, likewise."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    names = [name.lower() for name in found.get_values_for_type(x509.DNSName)]
    return tuple(sorted({*names, *(str(one) for one in found.get_values_for_type(x509.IPAddress))}))


def is_valid_for(certificate: x509.Certificate, wanted: str) -> bool:
    """Whether a certificate is for a name or an address: itself, or `*` for its first part (RFC 6125, 6.4.3)."""
    own = certificate_names(certificate)
    return wanted in own or ("." in wanted and f"*.{wanted.partition('.')[2]}" in own)


def load_pair(cert_file: str, key_file: SecretSource, wanted: Sequence[str], now: datetime) -> CertificatePair:
    """The pair in two files of the operator.

    Args:
        cert_file: The certificate, and those above it.
        key_file: Its private key, without a passphrase: a file, or a command that prints it.
        wanted: The clients' names of the listener, as `subject_alt_names` has them.
        now: The moment at which it has to be valid.

    Raises:
        UnusableCertificate: they cannot be used; the text never repeats what they hold.
    """
    certificates = _load_certificates(cert_file)
    key = _load_key(key_file)
    own = certificates[0]
    if _public_key(own) != key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        raise UnusableCertificate("key_file", f"{key_file} is not the key of the first certificate in {cert_file}")
    _refuse_certificates(cert_file, certificates, wanted, now)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return CertificatePair("".join(one.public_bytes(Encoding.PEM).decode() for one in certificates), secret)


def find_unreadable_files(cert_file: str, key_file: SecretSource) -> list[UnusableCertificate]:
    """The problems of two files that do not contain a certificate and a private key."""
    found = []
    for load in (partial(_load_certificates, cert_file), partial(_load_key, key_file)):
        try:
            load()
        except UnusableCertificate as error:
            found.append(error)
    return found


def validate_certificates(cert_file: str, wanted: Sequence[str], now: datetime) -> None:
    """Refuse a file of certificates without their key.

    Args:
        cert_file: As in `load_pair`; `wanted` and `now` likewise.

    Raises:
        UnusableCertificate: they cannot be used.
    """
    _refuse_certificates(cert_file, _load_certificates(cert_file), wanted, now)


def _refuse_certificates(
    cert_file: str, certificates: Sequence[x509.Certificate], wanted: Sequence[str], now: datetime
) -> None:
    own = certificates[0]
    for one in certificates:
        whose = "" if one is own else f", for its issuer {one.subject.rfc4514_string()!r}"
        if one.not_valid_after_utc <= now:
            raise UnusableCertificate(
                "cert_file", f"{cert_file} is valid until {one.not_valid_after_utc:%Y-%m-%d %H:%M} UTC{whose}"
            )
        if one.not_valid_before_utc > now:
            raise UnusableCertificate(
                "cert_file", f"{cert_file} is valid from {one.not_valid_before_utc:%Y-%m-%d %H:%M} UTC{whose}"
            )
    for upper, lower in zip(certificates[1:], certificates, strict=False):
        try:
            lower.verify_directly_issued_by(upper)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            raise UnusableCertificate(
                "cert_file", f"{cert_file}: each certificate must be signed by the next one"
            ) from None
    if lacking := [name for name in wanted if not is_valid_for(own, name)]:
        said = f"it is for {', '.join(certificate_names(own)) or 'no name'}"
        raise UnusableCertificate("cert_file", f"{cert_file} is not for {', '.join(lacking)}; {said}")


class UnusableCertificate(ValueError):
    """A file of a pair that is refused."""

    def __init__(self, field_: str, why: str) -> None:
        self.field = field_
        """`cert_file` or `key_file`."""
        super().__init__(why)


def _read_content(source: SecretSource, field_: str) -> bytes:
    try:
        return read_secret(source, MAXIMUM)
    except ValueError as error:
        raise UnusableCertificate(field_, f"{source} {error}") from None


def _load_certificates(path: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read_content(path, "cert_file"))
    except UnusableCertificate:
        raise
    except ValueError:
        raise UnusableCertificate("cert_file", f"{path} contains no PEM certificate") from None


def _load_key(source: SecretSource) -> CertificateIssuerPrivateKeyTypes:
    content = _read_content(source, "key_file")
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise UnusableCertificate("key_file", f"{source} has a passphrase: a host could not read it") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UnusableCertificate("key_file", f"{source} contains no PEM private key") from None
    if not hasattr(key, "sign"):
        raise UnusableCertificate("key_file", f"{source} contains a key that cannot sign")
    return key  # type: ignore[return-value] # those that sign are those of certificates


def _public_key(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
