"""A certificate for the loopback address, and what has programs trust its authority."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.hosts.servers import certificate

# what curl, the hub's client, requests and pip read, as templates/jobs/network.sh.j2 sets it
VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")


@cache
def _made() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="rigwright-tls-"))
    # the hub's client reads the authority's as another user
    folder.chmod(0o711)
    made = certificate(folder, "127.0.0.1")
    made[0].chmod(0o644)
    return made


def server() -> Path:
    """The certificate with its key."""
    return _made()[1]


def trusting() -> dict[str, str]:
    """The environment of a program that trusts it, and nothing else."""
    return dict.fromkeys(VARIABLES, str(_made()[0]))
