"""What a host has of a certificate and its key, apart from what judges certificates: that is slow to load."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Before the certificates, where TLS does not look (RFC 7468, 2): the SHA-256 of the key that was brought with them. So
# a host can tell that what lies there is whole, without telling what a key is.
FITS = re.compile(r"key ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class CertificateFacts:
    """What a host has of a pair."""

    head: str
    """What stands before the key in its file, whatever that is."""
    key: str
    """SHA-256 of the rest; empty where others than root can read it."""

    @property
    def certificates(self) -> str:
        """What it has in PEM; empty where the key is not the one that was brought with them."""
        found = FITS.match(self.head)
        return self.head[found.end() :] if found and found[1] == self.key else ""
