"""What watches on a host, as it runs."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand, operation

from rigwright.model.monitoring.found import NOWHERE, Found, State
from rigwright.model.rig import Rig
from rigwright.monitoring import found as told
from rigwright.monitoring import service
from rigwright.render import render
from roles.operations.look import Look

TRIES = 100  # five a second: on a slow disk Prometheus reads what it has kept before it listens


class Watching(Look[State]):
    """The units, their processes, and what each was started from."""

    default = staticmethod(lambda: NOWHERE)

    def command(self, rig: Rig) -> StringCommand:
        """templates/look/monitoring.sh.j2."""
        return self.script("look/monitoring.sh.j2", **told.questions(rig))

    def read(self, output: list[str]) -> State:
        """Read what it tells."""
        return told.parse(output)


@operation()
def watching(rig: Rig) -> Generator[StringCommand, None, None]:
    """Have the declared units enabled and their processes started from what the rig asks for, and no other there.

    + rig: the rig
    """
    found = host.get_fact(Watching, rig=rig)
    pending, known = told.pending(found, rig), service.secrets(rig)
    if not pending:
        host.noop("what watches is as declared")
        return
    starting = [
        {
            "unit": one.unit_name,
            "package": one.kind.package,
            "floor": one.floor,
            "restart": not found.units.get(one.name, Found()).runs(one.digest(known)),
            "listens": f"src {one.endpoint}",
            "endpoint": one.endpoint,
        }
        for one in service.services(rig)
        if one.name in pending
    ]
    declared = {one.name for one in service.services(rig)}
    going = [name for name in pending if name not in declared]
    script = render(
        "monitoring/start.sh.j2",
        **told.release(rig, going),
        secrets=sorted(found.secrets - known.keys()),
        starting=starting,
        tries=TRIES,
    )
    yield StringCommand("sh", "-c", QuoteString(script))
