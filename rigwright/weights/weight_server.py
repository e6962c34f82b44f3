"""How a box shares its weights with others: nginx's configuration and its unit, as text, and what is found of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from rigwright.host import script_output
from rigwright.host.service_states import UNIT_SCHEMA, ServiceState, read_service_states
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.model.inventory_feature import FactSource
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.roots import Roots
from rigwright.nginx_package import PACKAGE, PROGRAM
from rigwright.render import render

SHARE_UNIT = "rigwright_share.service"  # no instance's: those are rigwright-NAME
RUNTIME = "rigwright_share"  # its folder below /run
PATH = f"{UNIT_FOLDER}/{SHARE_UNIT}"
RECORD = f"{STARTED_FROM_FOLDER}/{SHARE_UNIT}"  # its start digest; gone with a reboot
# First line of both files. Instances' units have another: a unit with that one goes when no instance is called so.
OWNED = "# Written by rigwright to share weights; changes here are undone by the next deploy."
# Files that are on their way, for hosts that would fetch them here. The only hidden file that is shared.
PROGRESS = ".progress.json"
WORKERS = 4
# Files that are fetched at a time, by one box and by all; each may take a disk's read and 2 MiB of network at once. A
# box fetches four and looks at progress: this is for fifty of them; a refused one goes to the hub.
EACH = 8
TOGETHER = 256


def share_endpoint(share: ShareEntry) -> str:
    """`ADDRESS:PORT`, as in an address of the web."""
    return _format_endpoint(ip_address(share.address), share.port)


def find_sharing_boxes(
    peers: Mapping[str, Iterable[str]], shares: Mapping[str, ShareEntry | None]
) -> dict[str, set[str]]:
    """Box -> the boxes that its peers may be, by address and port.

    A peer with a host name may be any box with its port, and one with an address that no box has as its own, any that
    listens at all addresses.

    Args:
        peers: Box -> base URLs.
        shares: Box -> where it shares.
    """
    endpoints: dict[int, dict[str, IPv4Address | IPv6Address]] = {}
    for box, share in shares.items():
        if share:
            endpoints.setdefault(share.port, {})[box] = ip_address(share.address)
    return {box: _match_peers(urls, endpoints) - {box} for box, urls in peers.items()}


def _match_peers(urls: Iterable[str], endpoints: Mapping[int, Mapping[str, IPv4Address | IPv6Address]]) -> set[str]:
    found: set[str] = set()
    for url in urls:
        parts = urlsplit(url)
        boxes = endpoints.get(parts.port or 80, {})
        try:
            address = ip_address(parts.hostname or "")
        except ValueError:
            found |= {*boxes}
            continue
        exact = {box for box, one in boxes.items() if one == address}
        found |= exact or {box for box, one in boxes.items() if one.is_unspecified}
    return found


def _format_endpoint(address: IPv4Address | IPv6Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def allowed_networks(share: ShareEntry) -> tuple[str, ...]:
    """The networks that may fetch, and the box itself: its checks do."""
    networks = {str(ip_network(network, strict=False)) for network in share.allow}
    return (*sorted(networks), str(ip_network(share.address)))


def listener_filter(share: ShareEntry) -> str:
    """The filter by which ss shows its listener and no other."""
    return f"src {share_endpoint(share)}"


def config_path(roots: Roots) -> str:
    """Where nginx's configuration lies on the host."""
    return f"{roots.config}/share.conf"


def render_share_config(roots: Roots, share: ShareEntry) -> str:
    """That configuration."""
    return render(
        "sharing/nginx.conf.j2",
        owned=OWNED,
        workers=WORKERS,
        connections=2 * TOGETHER,
        each=EACH,
        together=TOGETHER,
        endpoint=share_endpoint(share),
        root=roots.models,
        allow=allowed_networks(share),
        progress=PROGRESS,
    )


def render_share_unit(roots: Roots, share: ShareEntry) -> str:
    """The unit's text."""
    return render(
        "sharing/share.service.j2",
        owned=OWNED,
        roots=roots,
        name=SHARE_UNIT,
        path=PATH,
        runtime=RUNTIME,
        program=PROGRAM,
        config=config_path(roots),
        started_from=STARTED_FROM_FOLDER,
        record=RECORD,
        endpoint=share_endpoint(share),
        allow=allowed_networks(share),
        family="AF_INET6" if ip_address(share.address).version == 6 else "AF_INET",
        port=share.port,
    )


def share_digest(roots: Roots, share: ShareEntry) -> str:
    """SHA-256 of both texts, as the unit writes it down when it starts."""
    return hashlib.sha256((render_share_unit(roots, share) + render_share_config(roots, share)).encode()).hexdigest()


def share_state_values() -> dict[str, object]:
    """The values of templates/sharing/state.sh.j2."""
    return {"share_unit": SHARE_UNIT, "share_path": PATH}


def share_release_values(roots: Roots) -> dict[str, object]:
    """The values of templates/sharing/release.sh.j2, which stops sharing."""
    return {**share_state_values(), "share_config": config_path(roots), "share_record": RECORD}


def parse_sharing_state(output: Iterable[str]) -> ServiceState | None:
    """Read what templates/look/sharing.sh.j2 has told: the unit, or None where its file is not.

    Raises:
        ValueError: that is not what was asked for.
    """
    return read_service_states(script_output.parse_output(output, UNIT_SCHEMA)).get(SHARE_UNIT)


def describe_pending_share(roots: Roots, share: ShareEntry | None, now: ServiceState | None) -> str:
    """Why there is something to do where weights are to be shared; empty where there is not."""
    if share is None:
        return ""
    if now is None:
        return "not shared yet"
    if now.is_settled(wanted := share_digest(roots, share)):
        return ""
    if now.active != "active":
        return f"its unit is {now.active}"
    if now.replaced:
        return "the running nginx is not the installed one"
    if now.started_from != wanted:
        return "it was started with different settings"
    return "it does not start at boot" if now.enabled != "enabled" else "systemd must reload its unit"


SHARING_FACTS = FactSource(
    "sharing",
    "sharing/state.sh.j2",
    lambda rig: share_state_values(),
    read=lambda output: {"sharing": read_service_states(output).get(SHARE_UNIT)},
    packages=lambda rig, system: [PACKAGE] if rig.share else [],
)
