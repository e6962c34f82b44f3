"""Operations on what a host's cards are set to."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation
from pyinfra.api.exceptions import FactProcessError

from rigwright.model.instance import POWER_UNIT
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import card_facts
from rigwright.nvidia.cards.card_facts import (
    CardFacts,
    find_unset,
    record_digest,
    render_cards_record,
    render_driver_record,
)
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL, record_path
from rigwright.nvidia.driver import driver_facts as driver_facts
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan
from roles.operations.facts import ReadOnlyScript
from roles.operations.files import PathEntriesFact, PathEntry
from roles.operations.reconnecting_shell import HostLost, ReconnectingShell


class LiveCardsFact(FactBase[CardFacts]):
    """The settings of the cards, in one command."""

    def command(self, script: str) -> ReadOnlyScript:
        """The script of rigwright.nvidia.cards.card_facts."""
        return ReadOnlyScript(script)

    def process(self, output: list[str]) -> CardFacts:
        """Read what it tells."""
        try:
            return card_facts.parse(output)
        except ValueError as error:
            raise FactProcessError(f"the cards' state: {error}") from error


@operation()
def apply_card_settings(
    rig: Rig, plan: DriverPlan | None = None, facts: DriverFacts | None = None, moving: bool = False
) -> Generator[FunctionCommand, None, None]:
    """Have the cards set to what the rig says, have that outlive a reboot, and write down where they are.

    + rig: the rig
    + plan: its driver's; None where that is the operator's
    + facts: the driver's facts before the run
    + moving: whether the run brings another driver, or another kernel: the record of them counts no more
    """
    now = host.get_fact(LiveCardsFact, script=card_facts.render_card_query(rig.roots, rig.driver))
    if (
        now
        and not moving
        and not find_unset(rig.roots, rig.cards, rig.reserved_gpus, rig.driver, now)
        and _is_record_current(rig, plan, facts, now)
    ):
        host.noop("the cards are set")
        return
    yield FunctionCommand(_apply_live_settings, (rig, plan), {})


@operation()
def remove_card_settings(paths: Sequence[str]) -> Generator[StringCommand, None, None]:
    """Remove settings that are no longer asked for; values that they have set go back where that is possible.

    + paths: the files
    """
    found = host.get_fact(PathEntriesFact, paths=list(paths))
    there = [path for path in paths if found.get(path, PathEntry()).kind != "absent"]
    if not there:
        host.noop("nothing is left over")
        return
    if POWER in there:
        yield StringCommand("systemctl disable --quiet --now", POWER_UNIT)
    for path in there:
        yield StringCommand("rm -f", QuoteString(path))
    yield StringCommand("systemctl daemon-reload")


def _is_record_current(rig: Rig, plan: DriverPlan | None, facts: DriverFacts | None, now: CardFacts) -> bool:
    text = _render_cards_record(rig, plan, facts, now)
    return text is None or now.record == record_digest(text)


def _render_cards_record(rig: Rig, plan: DriverPlan | None, facts: DriverFacts | None, now: CardFacts) -> str | None:
    """The record; None where nothing is to be recorded."""
    if plan and facts:
        return render_driver_record(plan, facts, now)
    return render_cards_record(now) if rig.driver.sets_cards else None


def _apply_live_settings(state: Any, host: Any, rig: Rig, plan: DriverPlan | None) -> bool:
    shell = ReconnectingShell(host)
    try:
        steps = find_unset(rig.roots, rig.cards, rig.reserved_gpus, rig.driver, _read_live_cards(rig, shell))
        for step in sorted(steps, key=_step_order):
            _run_step(host, shell, step)
        now = _read_live_cards(rig, shell)
        left = find_unset(rig.roots, rig.cards, rig.reserved_gpus, rig.driver, now)
        for reasons in left.values():
            for reason in reasons:
                logger.error(f"{host.print_prefix}{reason}")
        if left:
            for line in shell.run(f"journalctl -b -u {POWER_UNIT} -n 10 -o cat --no-pager 2>/dev/null || true"):
                logger.error(f"{host.print_prefix}  {line}")
            return False
        facts = driver_facts.parse(shell.run(driver_facts.render_probe(rig.roots, rig.toolkit))) if plan else None
        text = _render_cards_record(rig, plan, facts, now)
        if text is not None:
            path = shlex.quote(record_path(rig.roots))
            shell.run(f"cat > {path}.new && sync -d {path}.new && mv {path}.new {path}", stdin=text)
    except (HostLost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False
    return True


def _read_live_cards(rig: Rig, shell: ReconnectingShell) -> CardFacts:
    return card_facts.parse(shell.run(card_facts.render_card_query(rig.roots, rig.driver)))


def _step_order(step: str) -> tuple[int, str]:
    # persistence before power: without it a card forgets its settings
    verb = step.partition(" ")[0]
    return ("reload", "enable", "restart", "sysctl").index(verb), step


def _run_step(host: Any, shell: ReconnectingShell, step: str) -> None:
    verb, _, name = step.partition(" ")
    unit = shlex.quote(name)
    commands = {
        "reload": "systemctl daemon-reload",
        "enable": f"systemctl enable --quiet {unit}",
        # the error is asked for afterwards, and reported in the unit's own words
        "restart": f"systemctl reset-failed {unit} 2>/dev/null; systemctl restart {unit} || true",
        "sysctl": f"sysctl -q -p {SYSCTL} || true",
    }
    logger.debug("%s: %s", host.name, step)
    shell.run(commands[verb])
