"""Certificate authorities that the operator keeps in a file."""

from __future__ import annotations

from pathlib import Path

MAXIMUM = 4 * 1024 * 1024  # bytes; the list that a system trusts has 0.2 MiB


def read(path: str) -> str:
    """The certificates in a PEM file, and nothing else of it: a private key beside them stays where it is.

    Raises:
        ValueError: the file cannot be read, or holds no certificate.
    """
    # importing it takes longer than reading an inventory, and few have authorities of their own
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        if not Path(path).is_file():
            raise ValueError("is not a file")
        with open(path, "rb") as file:
            content = file.read(MAXIMUM + 1)
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    try:
        found = x509.load_pem_x509_certificates(content if len(content) <= MAXIMUM else b"")
    except ValueError:
        raise ValueError("contains no PEM certificate (-----BEGIN CERTIFICATE-----)") from None
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)
