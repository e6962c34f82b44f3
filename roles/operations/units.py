"""Operations on systemd units: of weights, of sharing and of monitoring."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.host import script_output
from rigwright.host.script_output import optional, word, yes_or_no
from rigwright.host.service_states import NO_SERVICE, ServiceState
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.fact_types import NO_MONITORING, MonitoringFacts
from rigwright.model.inventory_schema import ShareEntry
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.monitoring import monitoring_facts, monitoring_units
from rigwright.render import render
from rigwright.weights import weight_server
from roles.operations.facts import ChannelFact
from roles.operations.files import PathEntriesFact, PathEntry, TextFile, texts_differ, write_text_files


@dataclass(frozen=True)
class UnitStatus:
    """How a unit is doing."""

    enabled: str = ""
    active: str = ""
    unread: bool = False
    """Whether systemd has yet to read files of those that were asked about."""


SCHEMA: script_output.Schema = {"enabled": (optional(word),), "active": (word,), "reload": (yes_or_no,)}
"""The output of templates/look/unit.sh.j2."""


class UnitStatusFact(ChannelFact[UnitStatus]):
    """Whether a unit is enabled, whether it is active, and of some whether systemd has yet to read their files."""

    default = UnitStatus

    def command(self, unit: str, read: Sequence[str]) -> StringCommand:
        """templates/look/unit.sh.j2."""
        return self.render_command("look/unit.sh.j2", unit=unit, read=read)

    def read(self, output: list[str]) -> UnitStatus:
        """Read what it tells."""
        told = script_output.parse_output(output, SCHEMA)
        return UnitStatus(told.one("enabled"), told.one("active"), any(told.all("reload")))


@operation()
def ensure_unit_running(unit: str, files: Sequence[TextFile]) -> Generator[StringCommand, None, None]:
    """Have a unit run as its files say, now and after every boot.

    + unit: its name
    + files: its files and those of what it starts

    **Example:**

    .. code:: python

        running(name="Timer", unit="x.timer", files=[Text("/etc/systemd/system/x.timer", text)])
    """
    read = _unit_names(file.path for file in files)
    # both are asked, whatever the first says: so both can be asked ahead
    runs = host.get_fact(UnitStatusFact, unit=unit, read=read) == UnitStatus("enabled", "active")
    if not texts_differ(files) and runs:
        host.noop(f"{unit} is up to date")
        return
    yield from write_text_files._inner(files=files)
    yield StringCommand("systemctl daemon-reload")
    yield StringCommand("systemctl enable --quiet", QuoteString(unit), "&& systemctl restart", QuoteString(unit))


@operation()
def remove_units(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Stop units that are no longer asked for, and take their files away.

    + paths: their files, and what else was made because of them
    """
    found = host.get_fact(PathEntriesFact, paths=list(paths))
    there = [path for path in paths if found.get(path, PathEntry()).kind != "absent"]
    if not there:
        host.noop("nothing is left over")
        return
    # it fails for a unit without a file, which a run that was cut off may have left, and for an invalid name
    if units := [path for path in there if path.startswith(f"{UNIT_FOLDER}/")]:
        yield StringCommand("systemctl disable --quiet --now", *map(QuoteString, _unit_names(units)))
    yield StringCommand("rm -f", *(QuoteString(path) for path in there))
    yield StringCommand("systemctl daemon-reload")


def _unit_names(paths: Iterable[str]) -> list[str]:
    return [path.rpartition("/")[2] for path in paths]


TRIES = 100  # five a second: nginx itself tries for three to get a port that was not free


class ShareStateFact(ChannelFact["ServiceState | None"]):
    """The unit, its process, and what it was started from."""

    default = staticmethod(lambda: None)

    def command(self) -> StringCommand:
        """templates/look/sharing.sh.j2."""
        return self.render_command("look/sharing.sh.j2", **weight_server.share_state_values())

    def read(self, output: list[str]) -> ServiceState | None:
        """Read what it tells."""
        return weight_server.parse_sharing_state(output)


@operation()
def ensure_share(roots: Roots, share: ShareEntry) -> Generator[StringCommand, None, None]:
    """Have the unit enabled, and its process started from the texts that the rig asks for.

    + roots: paths on the host
    + share: the shared weights
    """
    found, wanted = host.get_fact(ShareStateFact), weight_server.share_digest(roots, share)
    if found and found.is_settled(wanted):
        host.noop(f"weights are shared on {weight_server.share_endpoint(share)}")
        return
    script = render(
        "sharing/start.sh.j2",
        share_unit=weight_server.SHARE_UNIT,
        restart=not (found and found.is_running(wanted)),
        listens=weight_server.listener_filter(share),
        endpoint=weight_server.share_endpoint(share),
        tries=TRIES,
    )
    yield StringCommand("sh", "-c", QuoteString(script))


@operation()
def remove_share(roots: Roots) -> Generator[StringCommand, None, None]:
    """Stop sharing, and take unit and configuration away.

    + roots: paths on the host
    """
    if not host.get_fact(ShareStateFact):
        host.noop("no weights are shared")
        return
    yield StringCommand(
        "sh", "-c", QuoteString(render("sharing/release.sh.j2", **weight_server.share_release_values(roots)))
    )


class MonitoringStateFact(ChannelFact[MonitoringFacts]):
    """The units, their processes, and what each was started from."""

    default = staticmethod(lambda: NO_MONITORING)

    def command(self, rig: Rig) -> StringCommand:
        """templates/look/monitoring.sh.j2."""
        return self.render_command("look/monitoring.sh.j2", **monitoring_facts.monitoring_state_values(rig.roots))

    def read(self, output: list[str]) -> MonitoringFacts:
        """Read what it tells."""
        return monitoring_facts.parse(output)


@operation()
def ensure_monitoring(rig: Rig) -> Generator[StringCommand, None, None]:
    """Have the declared units enabled and their processes started from what the rig asks for, and no other there.

    + rig: the rig
    """
    found = host.get_fact(MonitoringStateFact, rig=rig)
    known = monitoring_units.secrets_by_path(rig.inventory, rig.roots, rig.monitoring)
    pending = monitoring_facts.find_pending(found, monitoring_units.monitoring_services(rig), known)
    if not pending:
        host.noop("what watches is as declared")
        return
    starting = [
        {
            "unit": one.unit_name,
            "package": one.kind.package,
            "floor": one.floor,
            "restart": not found.units.get(one.name, NO_SERVICE).is_running(one.digest(known)),
            "listens": f"src {one.endpoint}",
            "endpoint": one.endpoint,
        }
        for one in monitoring_units.monitoring_services(rig)
        if one.name in pending
    ]
    declared = {one.name for one in monitoring_units.monitoring_services(rig)}
    going = [name for name in pending if name not in declared]
    script = render(
        "monitoring/start.sh.j2",
        **monitoring_facts.monitoring_release_values(rig.roots, going),
        secrets=sorted(found.secrets - known.keys()),
        starting=starting,
        tries=TRIES,
    )
    yield StringCommand("sh", "-c", QuoteString(script))
