"""How a rig reaches the world: mirrors, a proxy, and the authorities it trusts."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots

# Mirror names with a protocol of their own; every other name is a folder of files.
APT = "apt"
INDEX = "index"


@dataclass(frozen=True)
class JobNetwork:
    """What a job on the host is told (templates/jobs/network.sh.j2)."""

    authority: str
    """The file with the rig's own authorities; empty without any."""
    proxy: str
    no_proxy: str
    apt: tuple[str, ...]
    """Base addresses of Debian or Ubuntu archives, in order; none leaves the host's own configuration."""


def authority_path(roots: Roots) -> str:
    """Where the rig's own authorities lie on the host."""
    return f"{roots.config}/ca.pem"


def job_network(roots: Roots, network: DownloadNetwork) -> JobNetwork:
    """The network of a rig."""
    return JobNetwork(
        authority_path(roots) if network.ca_certificates else "",
        network.proxy or "",
        # peers are in the boxes' own network: a proxy would not reach them, or be who asks there
        ",".join(
            ("localhost", "127.0.0.1", *network.no_proxy, *(str(urlsplit(peer).hostname) for peer in network.peers))
        ),
        network.mirrors.get(APT, ()),
    )
