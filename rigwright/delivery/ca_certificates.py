"""Certificate authorities that the operator keeps in a file."""

from __future__ import annotations

from rigwright import files

MAXIMUM = 4 * 1024 * 1024  # bytes; the list that a system trusts has 0.2 MiB


def load_ca_certificates(path: str) -> str:
    """The certificates in a PEM file, and nothing else of it: a private key beside them stays where it is.

    Raises:
        ValueError: the file cannot be read, or holds no certificate.
    """
    # importing it takes longer than reading an inventory, and few have authorities of their own
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    content = files.read_content(path, MAXIMUM)
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ValueError("contains no PEM certificate (-----BEGIN CERTIFICATE-----)") from None
    return "".join(one.public_bytes(Encoding.PEM).decode() for one in found)
