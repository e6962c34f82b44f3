"""Role theirs: what served a host before us, looked at before it is taken over, and brought back."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import StringCommand, deploy

from rigwright.model.rig import Rig
from rigwright.model.theirs import Theirs
from rigwright.serving.live import JOB
from rigwright.serving.theirs import Found, Taking, back_script, folder, parse, script
from roles.operations.ahead import Question, Unanswered
from roles.operations.generations import look, returned
from roles.operations.jobs import job
from roles.operations.look import Look
from roles.rollback import TIMEOUT


class FoundTheirs(Look[Found]):
    """What the host tells of a unit or a container."""

    def command(self, script: str) -> StringCommand:
        """templates/theirs/look.sh.j2."""
        return Question(script)

    def read(self, output: list[str]) -> Found:
        """Read what it tells."""
        return parse(output)


def found_theirs(rig: Rig, named: Theirs) -> Found:
    """What the host of the running deploy tells of it.

    Raises:
        Unanswered: that is not known.
    """
    found: Found | None = host.get_fact(FoundTheirs, script=script(rig, named))
    if found is None:
        raise Unanswered(f"{host.name}: what {named.name} is, is not known")
    return found


@deploy("Bring back")
def brought_back(rig: Rig, named: Theirs) -> None:
    """Have what served before us serve again, beside the generation that was there then, if there was one."""
    found, served = found_theirs(rig, named), look(rig)
    if not found.recorded:
        logger.error(f"{host.print_prefix}refused: {named.name} was not taken over, or is back already")
        state.fail_hosts({host})
        return
    kept = next((one for one in served.generations if one.number == found.before and one.intact), None)
    name = f"Bring {named.name} back"
    if kept:
        returned(name=name, rig=rig, kept=kept, timeout=TIMEOUT, taking=Taking(found, ""))
    else:
        test = f"[ ! -e {folder(rig)}/{named.name} ]"
        job(name=name, unit=JOB, script=back_script(rig, found), test=test, folder=rig.jobs)
