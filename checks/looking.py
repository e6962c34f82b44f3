"""Looking at hosts without changing them: one connection a host, all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import click

from checks.backend import UnknownHost, reach
from checks.backend import load as targets_of
from checks.results import STATUS
from rigwright.containers import found as containers_found
from rigwright.containers.found import ContainerFacts
from rigwright.gateway import given
from rigwright.gateway.given import Found as GatewaySecrets
from rigwright.host import deploy_lock, together
from rigwright.host.channel import said
from rigwright.host.deploy_lock import Holder
from rigwright.host.locks import DEPLOY_LOCK
from rigwright.inventory import load
from rigwright.model.facts import HostFacts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import holders
from rigwright.nvidia.cards.holders import Holders
from rigwright.nvidia.driver import found as driver_facts
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.plan import facts as host_facts
from rigwright.plan.desired import Desired, desired
from rigwright.problems import Invalid
from rigwright.render import render
from rigwright.serving import differences, stored, use
from rigwright.serving import live as served
from rigwright.serving.differences import Written
from rigwright.serving.live import Served, state_script
from rigwright.serving.stored import Stored
from rigwright.serving.use import Use
from roles import root

T = TypeVar("T")
LIMIT = 180.0  # seconds without a byte: each of what is looked at here takes a host a few

# look -> its script for a rig
SCRIPTS: dict[str, Callable[[Rig], str]] = {
    "served": lambda rig: state_script(rig.roots.config, rig.roots.software, rig.starts, rig.builds, rig.ledger),
    "stored": stored.script,
    "facts": lambda rig: render("probe/probe.sh.j2", **host_facts.questions(rig)),
    "driver_facts": driver_facts.script,
    "containers": containers_found.script,
    "holders": lambda rig: holders.script(),
    "holder": lambda rig: render("deploy_lock/holder.sh.j2", deploy_lock=DEPLOY_LOCK),
    "written": lambda rig: render("look/written.sh.j2", config=rig.roots.config),
    "gateway_secrets": given.script,
    "use": lambda rig: render("look/use.sh.j2"),
}


class Unseen(click.ClickException):
    """A host does not say what was asked."""

    exit_code = STATUS["not as declared"]


class Lost(Unseen):
    """Its connection is gone."""

    exit_code = STATUS["not reached"]


@dataclass(frozen=True)
class Box:
    """A connected host and what it is to be."""

    name: str
    rig: Rig
    target: Any
    told: Mapping[str, list[str]] = field(default_factory=dict)
    """Script -> what it has told already."""

    def lines(self, script: str) -> Iterator[str]:
        """Run a shell script as root; yields its output's lines as they come.

        Raises:
            roles.root.Gone: the connection was lost.
        """
        return root.lines(self.target, script)

    def ahead(self, *looks: str) -> Box:
        """The same box, with some looks of SCRIPTS taken, in one command.

        Raises:
            Lost: the connection is gone.
        """
        scripts = [SCRIPTS[look](self.rig) for look in looks]
        answer = self._run("sh", together.script(scripts))
        # a look that is not among them is taken alone, and says what is wrong
        with suppress(ValueError):
            return replace(self, told=together.answers(answer.lines, scripts))
        return self

    def served(self) -> Served:
        """What it serves now."""
        return self.read(served.parse, SCRIPTS["served"](self.rig))

    def stored(self) -> Stored:
        """Which weights lie on it."""
        return self.read(partial(stored.parse, self.rig), SCRIPTS["stored"](self.rig))

    def facts(self) -> HostFacts:
        """What a probe finds."""
        return self.read(host_facts.parse, SCRIPTS["facts"](self.rig))

    def driver_facts(self) -> DriverFacts:
        """What the choice of a driver needs to know of it."""
        return self.read(driver_facts.parse, SCRIPTS["driver_facts"](self.rig))

    def containers(self) -> ContainerFacts:
        """What it has for containers."""
        return self.read(containers_found.parse, SCRIPTS["containers"](self.rig))

    def holders(self) -> Holders:
        """Who holds its cards beside us."""
        return self.read(lambda lines: holders.holders_of(lines, self.rig.lent), SCRIPTS["holders"](self.rig))

    def holder(self) -> Holder | None:
        """Who holds its deploy lock."""
        return self.read(deploy_lock.parse, SCRIPTS["holder"](self.rig))

    def written(self) -> Written:
        """What its current generation has for instances."""
        return self.read(differences.parse, SCRIPTS["written"](self.rig))

    def gateway_secrets(self) -> GatewaySecrets:
        """Versions of what its gateway's programs have of secrets."""
        return self.read(given.parse, SCRIPTS["gateway_secrets"](self.rig))

    def use(self) -> dict[str, Use]:
        """Since when the units of its instances are what they are, and what memory they have."""
        return self.read(use.parse, SCRIPTS["use"](self.rig))

    def read(self, parse: Callable[[list[str]], T], script: str) -> T:
        """What a script tells, parsed.

        Raises:
            Unseen: it is not what was asked for, or the connection is gone.
        """
        if script in self.told:
            answer = root.Answer(0, "\n".join(self.told[script]).encode(), b"")
        else:
            answer = self._run(script)
        try:
            return parse(answer.lines)
        except ValueError as error:
            last = f"; it said: {said(answer.complaint)}" if answer.complaint else ""
            raise Unseen(f"{self.name}: {error}{last}") from None

    def _run(self, script: str, stdin: str = "") -> root.Answer:
        try:
            return root.run(self.target, script, stdin, LIMIT)
        except root.NoRoot as error:
            raise Lost(f"{self.name}: {error}") from None
        except root.Gone as error:
            raise Lost(f"{self.name}: the connection was lost: {said(str(error))}") from None

    def desired(self) -> Desired:
        """What its rig comes to there."""
        return desired(self.rig, self.facts())


Rigs = Mapping[str, Rig]
"""Host -> what it is to be."""
Gone = Mapping[str, str]
"""Host that is out of reach -> why."""


def boxes(
    inventory: str, limit: str | None, judge: Callable[[Rigs], object] = lambda rigs: None
) -> tuple[list[Box], Gone]:
    """Connect to an inventory's hosts; returns them, and those out of reach.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        judge: Is told what they are to be before any of them is reached, and raises where that is no good.

    Raises:
        click.ClickException: the inventory is refused, or the limit names nothing.
    """
    rigs: dict[str, Rig] = {}
    try:
        state, targets = targets_of(inventory, limit)
    except (UnknownHost, SystemExit) as error:
        raise click.ClickException(str(error)) from None
    for name, target in targets.items():
        try:
            rigs[name] = load(target.data.get("rig"))
        except Invalid as error:
            raise click.ClickException(f"{name}: {error}") from None
    judge(rigs)
    gone = reach(state, targets)
    return [Box(name, rigs[name], target) for name, target in targets.items() if name not in gone], gone


def alone(inventory: str, rigs: Rigs) -> None:
    """Refuse more than one host.

    Raises:
        click.UsageError: there are several; the text has their names.
    """
    if len(rigs) > 1:
        listed = ", ".join(sorted(rigs))
        raise click.UsageError(f"{inventory} has {len(rigs)} hosts: name one with --limit: {listed}")


def each(found: list[Box], look: Callable[[Box], T]) -> list[T]:
    """Look at all of them at once; returns what was found in their order."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(look, found))
