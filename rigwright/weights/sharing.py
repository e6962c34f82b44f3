"""How a box shares its weights with others: nginx's configuration and its unit, as text, and what is found of both."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from rigwright.host import channel
from rigwright.host.channel import Told, optional, tolerant, truth, word
from rigwright.host.systemd import STARTED_FROM, UNITS
from rigwright.model.entry import Share
from rigwright.model.rig import Rig
from rigwright.model.sharing import Found
from rigwright.nginx import PROGRAM
from rigwright.render import render

UNIT = "rigwright_share.service"  # no instance's: those are rigwright-NAME
RUNTIME = "rigwright_share"  # its folder below /run
PATH = f"{UNITS}/{UNIT}"
RECORD = f"{STARTED_FROM}/{UNIT}"  # what its process was started from; gone with a reboot, as everything there
# First line of both files. Instances' units have another: what has that one goes when no instance is called so.
OWNED = "# Written by rigwright to share weights; changes here are undone by the next deploy."
# Which files are on their way, for those who would fetch them here. The only hidden file that is shared.
PROGRESS = ".progress.json"
WORKERS = 4
# Files that are fetched at a time, by one box and by all; each may take a disk's read and 2 MiB of network at once. A
# box fetches four and looks at progress: this is for fifty of them, and who is refused goes to the hub.
EACH = 8
TOGETHER = 256


def endpoint(share: Share) -> str:
    """`ADDRESS:PORT`, as in an address of the web."""
    return _endpoint(ip_address(share.address), share.port)


def _endpoint(address: IPv4Address | IPv6Address, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def allowed(share: Share) -> tuple[str, ...]:
    """The networks that may fetch, and the box itself: its checks do."""
    networks = {str(ip_network(network, strict=False)) for network in share.allow}
    return (*sorted(networks), str(ip_network(share.address)))


def listens(share: Share) -> str:
    """The filter by which ss shows its listener and no other."""
    return f"src {endpoint(share)}"


def config_path(rig: Rig) -> str:
    """Where nginx's configuration lies on the host."""
    return f"{rig.roots.config}/share.conf"


def config(rig: Rig, share: Share) -> str:
    """That configuration."""
    return render(
        "sharing/nginx.conf.j2",
        owned=OWNED,
        workers=WORKERS,
        connections=2 * TOGETHER,
        each=EACH,
        together=TOGETHER,
        endpoint=endpoint(share),
        root=rig.roots.models,
        allow=allowed(share),
        progress=PROGRESS,
    )


def unit(rig: Rig, share: Share) -> str:
    """The unit's text."""
    return render(
        "sharing/share.service.j2",
        owned=OWNED,
        rig=rig,
        name=UNIT,
        path=PATH,
        runtime=RUNTIME,
        program=PROGRAM,
        config=config_path(rig),
        started_from=STARTED_FROM,
        record=RECORD,
        endpoint=endpoint(share),
        allow=allowed(share),
        family="AF_INET6" if ip_address(share.address).version == 6 else "AF_INET",
        port=share.port,
    )


def digest(rig: Rig, share: Share) -> str:
    """SHA-256 of both texts, as the unit writes it down when it starts."""
    return hashlib.sha256((unit(rig, share) + config(rig, share)).encode()).hexdigest()


def questions() -> dict[str, object]:
    """The values of templates/sharing/state.sh.j2."""
    return {"share_unit": UNIT, "share_path": PATH, "share_record": RECORD}


def release(rig: Rig) -> dict[str, object]:
    """The values of templates/sharing/release.sh.j2, which stops sharing."""
    return {**questions(), "share_config": config_path(rig)}


SCHEMA: channel.Schema = {
    "share_there": (truth,),
    "share_active": (optional(word, "inactive"),),
    "share_enabled": (optional(word, "not-found"),),
    "share_started_from": (tolerant(channel.sha256),),
    "share_replaced": (truth,),
    "share_reload": (optional(truth, False),),
}
"""What templates/sharing/state.sh.j2 tells."""


def found(told: Told) -> Found:
    """Read it of what a host has told.

    Raises:
        ValueError: some of it is missing.
    """
    return Found(
        there=told.one("share_there"),
        active=told.one("share_active"),
        enabled=told.one("share_enabled"),
        started_from=told.one("share_started_from"),
        replaced=told.one("share_replaced"),
        reload_needed=told.one("share_reload"),
    )


def parse(output: Iterable[str]) -> Found:
    """Read what templates/look/sharing.sh.j2 has told.

    Raises:
        ValueError: that is not what was asked for.
    """
    return found(channel.read(output, SCHEMA))


def reason(rig: Rig, now: Found) -> str:
    """Why there is something to do where weights are to be shared; empty where there is not."""
    if rig.share is None or now.settled(wanted := digest(rig, rig.share)):
        return ""
    if not now.there:
        return "not shared yet"
    if now.active != "active":
        return f"its unit is {now.active}"
    if now.replaced:
        return "the running nginx is not the installed one"
    if now.started_from != wanted:
        return "it was started with different settings"
    return "it does not start at boot" if now.enabled != "enabled" else "systemd must reload its unit"
