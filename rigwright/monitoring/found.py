"""What watches on a host as it is found, why there is something to do with it, and what is taken away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rigwright.host import channel
from rigwright.host.channel import Told, optional, tolerant, truth, word
from rigwright.host.systemd import STARTED_FROM, UNITS
from rigwright.model.monitoring.found import Found, State
from rigwright.monitoring.figures import textfiles
from rigwright.monitoring.service import KINDS, data, folder, secrets, services, unit_name

if TYPE_CHECKING:
    from rigwright.model.rig import Rig


def _why(now: Found | None, wanted: str) -> str:
    if now is None:
        return "it is not there yet"
    if now.settled(wanted):
        return ""
    if now.active != "active":
        return f"its unit is {now.active}"
    if now.replaced:
        return "another version is installed than the one that runs"
    if now.started_from != wanted:
        return "it was started with other settings"
    return "it would not start at the next boot" if now.enabled != "enabled" else "systemd has to read its unit"


def coming_kib(state: State, rig: Rig) -> int:
    """KiB that what is kept may come to, where it has not begun to."""
    server = rig.monitoring.server if rig.monitoring else None
    return server.size_gb * 1000**3 // 1024 if server and "prometheus" not in state.units else 0


def pending(state: State, rig: Rig) -> dict[str, str]:
    """Service -> why there is something to do with it."""
    wanted = {one.name: one for one in services(rig)}
    known = secrets(rig)
    found = {}
    for name in KINDS:
        now = state.units.get(name)
        if name not in wanted:
            if now:
                found[name] = "it is not declared any more; what it has kept goes, too"
        elif why := _why(now, wanted[name].digest(known)):
            found[name] = why
    if extra := sorted(state.secrets - known.keys()):
        found.setdefault("alertmanager", f"{extra[0]} is of no receiver any more")
    return found


def questions(rig: Rig) -> dict[str, object]:
    """The values of templates/monitoring/state.sh.j2."""
    return {
        "watching": {name: unit_name(name) for name in KINDS},
        "watching_units": UNITS,
        "watching_records": STARTED_FROM,
        "watching_secrets": rig.credentials,
    }


def release(rig: Rig, names: Iterable[str] = KINDS) -> dict[str, object]:
    """The values of templates/monitoring/release.sh.j2, which takes services away.

    Args:
        rig: The rig.
        names: Services that go.
    """
    own = {
        "node": [textfiles(rig)],
        "gpu": [f"{folder(rig)}/gpu.py"],
        "prometheus": [f"{folder(rig)}/{name}" for name in ("prometheus.yml", "rules.yml", "targets")],
        "alertmanager": [f"{folder(rig)}/alertmanager.yml"],
        "blackbox": [f"{folder(rig)}/blackbox.yml"],
    }
    return {
        "going": {
            unit: [f"{UNITS}/{unit}", f"{STARTED_FROM}/{unit}", data(rig, name), *own[name]]
            for name, unit in ((name, unit_name(name)) for name in names)
        },
        "going_folders": [folder(rig), f"{rig.roots.state}/monitoring"],
    }


SCHEMA: channel.Schema = {
    # service, active, enabled, what it was started from, whether replaced, whether to be read again
    "watching": (
        *(channel.one_of(*KINDS), optional(word, "inactive"), optional(word, "not-found")),
        *(tolerant(channel.sha256), truth, optional(truth, False)),
    ),
    "watching_secret": (channel.path,),
}
"""What templates/monitoring/state.sh.j2 tells."""


def found(told: Told) -> State:
    """Read it of what a host has told."""
    units = {name: Found(*rest) for name, *rest in told.many("watching")}
    return State(units, frozenset(told.all("watching_secret")))


def parse(output: Iterable[str]) -> State:
    """Read what templates/look/monitoring.sh.j2 has told.

    Raises:
        ValueError: that is not what was asked for.
    """
    return found(channel.read(output, SCHEMA))
