"""What watches on a host, as it runs."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.model.monitoring.service_facts import NO_MONITORING, MonitoringFacts, ServiceFacts
from rigwright.model.rig import Rig
from rigwright.monitoring import monitoring_facts, monitoring_units
from rigwright.render import render
from roles.operations.channel_fact import ChannelFact

TRIES = 100  # five a second: on a slow disk Prometheus reads what it has kept before it listens


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
            "restart": not found.units.get(one.name, ServiceFacts()).is_running(one.digest(known)),
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
