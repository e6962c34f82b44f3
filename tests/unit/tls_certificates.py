"""A certificate for the loopback address, and what has programs trust its authority."""

import tempfile
from functools import cache
from pathlib import Path

from tests.hosts.download_servers import make_certificate

# the variables that curl, the hub's client, requests and pip read, as templates/jobs/network.sh.j2 sets them
VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")


@cache
def _make_certificate() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp(prefix="rigwright-tls-"))
    # the hub's client reads the authority's as another user
    folder.chmod(0o711)
    made = make_certificate(folder, "127.0.0.1")
    made[0].chmod(0o644)
    return made


def server_certificate() -> Path:
    """The certificate with its key."""
    return _make_certificate()[1]


def trusting_environment() -> dict[str, str]:
    """The environment of a program that trusts it, and nothing else."""
    return dict.fromkeys(VARIABLES, str(_make_certificate()[0]))
