"""Operations on what a host's cards are set to."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from rigwright.model.rig import POWER_UNIT, Rig
from rigwright.nvidia.cards import live
from rigwright.nvidia.cards.files import POWER, SYSCTL, record_path
from rigwright.nvidia.cards.live import Live, cards_record, digest, record, unset
from rigwright.nvidia.driver import found as driver_facts
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.found import DriverFacts
from roles.operations.ahead import Question
from roles.operations.files import Entries, Entry
from roles.operations.shell import Lost, Shell


class LiveNow(FactBase[Live]):
    """What the cards are set to, in one command."""

    def command(self, script: str) -> Question:
        """The script of rigwright.nvidia.cards.live."""
        return Question(script)

    def process(self, output: list[str]) -> Live:
        """Read what it tells."""
        try:
            return live.parse(output)
        except ValueError as error:
            raise FactProcessError(f"the cards' state: {error}") from error


@operation()
def set_up(
    rig: Rig, plan: DriverPlan | None = None, facts: DriverFacts | None = None, moving: bool = False
) -> Generator[FunctionCommand, None, None]:
    """Have the cards set to what the rig says, have that outlive a reboot, and write down where they are.

    + rig: the rig
    + plan: its driver's; None where that is the operator's
    + facts: what was found of the driver before the run
    + moving: whether the run brings another driver, or another kernel: what is written down of them counts no more
    """
    now = host.get_fact(LiveNow, script=live.script(rig))
    if now and not moving and not unset(rig, now) and _written_down(rig, plan, facts, now):
        host.noop("the cards are set")
        return
    yield FunctionCommand(_set, (rig, plan), {})


@operation()
def retired(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Remove settings that are no longer asked for; what they have set goes back where that is possible.

    + paths: the files
    """
    found = host.get_fact(Entries, paths=list(paths))
    there = [path for path in paths if found.get(path, Entry()).kind != "absent"]
    if not there:
        host.noop("nothing is left over")
        return
    if POWER in there:
        yield StringCommand("systemctl disable --quiet --now", POWER_UNIT)
    for path in there:
        yield StringCommand("rm -f", QuoteString(path))
    yield StringCommand("systemctl daemon-reload")


def _written_down(rig: Rig, plan: DriverPlan | None, facts: DriverFacts | None, now: Live) -> bool:
    text = _record(rig, plan, facts, now)
    return text is None or now.record == digest(text)


def _record(rig: Rig, plan: DriverPlan | None, facts: DriverFacts | None, now: Live) -> str | None:
    """What is to be written down; None where nothing is."""
    if plan and facts:
        return record(plan, facts, now)
    return cards_record(now) if rig.driver.sets_cards else None


def _set(state: Any, host: Any, rig: Rig, plan: DriverPlan | None) -> bool:
    shell = Shell(host)
    try:
        steps = unset(rig, _look(rig, shell))
        for step in sorted(steps, key=_rank):
            _take(host, shell, step)
        now = _look(rig, shell)
        left = unset(rig, now)
        for reasons in left.values():
            for reason in reasons:
                logger.error(f"{host.print_prefix}{reason}")
        if left:
            for line in shell.run(f"journalctl -b -u {POWER_UNIT} -n 10 -o cat --no-pager 2>/dev/null || true"):
                logger.error(f"{host.print_prefix}  {line}")
            return False
        facts = driver_facts.parse(shell.run(driver_facts.script(rig))) if plan else None
        text = _record(rig, plan, facts, now)
        if text is not None:
            path = shlex.quote(record_path(rig))
            shell.run(f"cat > {path}.new && sync -d {path}.new && mv {path}.new {path}", stdin=text)
    except (Lost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False
    return True


def _look(rig: Rig, shell: Shell) -> Live:
    return live.parse(shell.run(live.script(rig)))


def _rank(step: str) -> tuple[int, str]:
    # persistence before power: without it a card forgets what it was told
    verb = step.partition(" ")[0]
    return ("reload", "enable", "restart", "sysctl").index(verb), step


def _take(host: Any, shell: Shell, step: str) -> None:
    verb, _, name = step.partition(" ")
    unit = shlex.quote(name)
    commands = {
        "reload": "systemctl daemon-reload",
        "enable": f"systemctl enable --quiet {unit}",
        # what is wrong is asked for afterwards, and said with the unit's own words
        "restart": f"systemctl reset-failed {unit} 2>/dev/null; systemctl restart {unit} || true",
        "sysctl": f"sysctl -q -p {SYSCTL} || true",
    }
    logger.debug("%s: %s", host.name, step)
    shell.run(commands[verb])
