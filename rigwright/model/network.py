"""Sources and proxies of a host's downloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rigwright.model.secret_sources import SecretSource


@dataclass(frozen=True)
class DownloadNetwork:
    """Where a host downloads from, and how it gets there."""

    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a source -> base URLs, in order."""
    peers: tuple[str, ...] = ()
    """Base URLs of boxes that share their weights."""
    redirects: tuple[str, ...] = ()
    """Origins that sources of weights may lead to although they are not public."""
    proxy: str | None = None
    no_proxy: tuple[str, ...] = ()
    """Hosts and domains that are reached without the proxy."""
    ca_certificates: str = ""
    """Further trusted certificates in PEM; empty without any."""
    hub_token_file: SecretSource | None = None
    """A path or a command on the operator's machine."""
    hub_token_origin: str | None = None
    """The only origin that receives that token; None without a token."""
    registry_logins: Mapping[str, SecretSource] = field(default_factory=dict)
    """Registry of images -> the file or command on the operator's machine with its login."""
