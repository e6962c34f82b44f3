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
    return certificate(Path(tempfile.mkdtemp(prefix="rigwright-tls-")), "127.0.0.1")


def server() -> Path:
    """The certificate with its key."""
    return _made()[1]


def trusting() -> dict[str, str]:
    """The environment of a program that trusts it, and nothing else."""
    return dict.fromkeys(VARIABLES, str(_made()[0]))
