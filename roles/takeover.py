"""Role takeover: reads the service that a deploy replaces, and restores it."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import StringCommand, deploy

from rigwright.host.generation_layout import JOB
from rigwright.model.rig import Rig
from rigwright.serving.takeover import (
    ExistingService,
    ExistingServiceFacts,
    Takeover,
    parse_existing_facts,
    render_restore_script,
    render_takeover_query,
    takeover_folder,
)
from roles.operations.facts import ChannelFact, FactUnavailable, ReadOnlyScript
from roles.operations.generations import TIMEOUT, read_serving_state, return_to_generation
from roles.operations.jobs import ensure_job


class ExistingServiceFact(ChannelFact[ExistingServiceFacts]):
    """The host's report of a unit or a container."""

    def command(self, script: str) -> StringCommand:
        """templates/theirs/look.sh.j2."""
        return ReadOnlyScript(script)

    def read(self, output: list[str]) -> ExistingServiceFacts:
        """Read what it tells."""
        return parse_existing_facts(output)


def read_existing_service(rig: Rig, named: ExistingService) -> ExistingServiceFacts:
    """The report of the running deploy's host about it.

    Raises:
        FactUnavailable: that is not known.
    """
    found: ExistingServiceFacts | None = host.get_fact(
        ExistingServiceFact, script=render_takeover_query(rig.roots, rig.instances, rig.gateway, named)
    )
    if found is None:
        raise FactUnavailable(f"{host.name}: the state of {named.name} is unknown")
    return found


@deploy("Bring back")
def restore_previous_service(rig: Rig, named: ExistingService) -> None:
    """Have what served before us serve again, beside the generation that was there then, if there was one."""
    found, served = read_existing_service(rig, named), read_serving_state(rig)
    if not found.recorded:
        logger.error(f"{host.print_prefix}refused: {named.name} was not taken over, or is back already")
        state.fail_hosts({host})
        return
    kept = next((one for one in served.generations if one.number == found.before and one.is_intact), None)
    name = f"Bring {named.name} back"
    if kept:
        return_to_generation(name=name, rig=rig, kept=kept, timeout=TIMEOUT, taking=Takeover(found, ""))
    else:
        test = f"[ ! -e {takeover_folder(rig.roots)}/{named.name} ]"
        ensure_job(
            name=name,
            unit=JOB,
            script=render_restore_script(rig.roots, rig.gateway, found),
            test=test,
            folder=rig.roots.jobs,
        )
