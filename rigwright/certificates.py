"""Certificate authorities that the operator keeps in a file."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding


def read(path: str) -> str:
    """The certificates in a PEM file, and nothing else of it: a private key beside them stays where it is.

    Raises:
        ValueError: the file cannot be read, or holds no certificate.
    """
    try:
        found = x509.load_pem_x509_certificates(Path(path).read_bytes())
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise ValueError("holds no certificate in PEM: it begins with -----BEGIN CERTIFICATE-----") from None
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)
