"""Looking at hosts without changing them: one connection a host, all hosts at once."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import click

from checks.backend import UnknownHost, connect
from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build, build
from rigwright.host import facts as host_facts
from rigwright.host.facts import HostFacts
from rigwright.inventory import load
from rigwright.nvidia.driver import found as driver_facts
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.problems import Invalid
from rigwright.render import render
from rigwright.serving import live as served
from rigwright.serving.generation import Generation, generation
from rigwright.serving.live import Served, state_script
from rigwright.supply.tools import tools
from rigwright.weights import stored
from rigwright.weights.stored import Stored

T = TypeVar("T")


@dataclass(frozen=True)
class Box:
    """A connected host and what it is to be."""

    name: str
    rig: Rig
    target: Any

    def lines(self, script: str) -> Iterator[str]:
        """Run a shell script as root; yields its output's lines as they come."""
        words = "sudo -n sh" if self.target.data.get("_sudo") else "sh"
        channel = self.target.connector.client.get_transport().open_session()
        channel.set_combine_stderr(True)
        channel.exec_command(f"{words} -c {shlex.quote(script)}")
        for line in channel.makefile("r"):
            yield line.rstrip("\n")

    def served(self) -> Served:
        """What it serves now."""
        return self._read(served.parse, state_script(self.rig.roots.config, self.rig.roots.software))

    def stored(self) -> Stored:
        """Which weights lie on it."""
        return self._read(partial(stored.parse, self.rig), stored.script(self.rig))

    def facts(self) -> HostFacts:
        """What a probe finds."""
        return self._read(host_facts.parse, render("probe/probe.sh.j2", **host_facts.questions(self.rig)))

    def driver_facts(self) -> DriverFacts:
        """What the choice of a driver needs to know of it."""
        return self._read(driver_facts.parse, driver_facts.script(self.rig))

    def _read(self, parse: Callable[[list[str]], T], script: str) -> T:
        lines = list(self.lines(script))
        try:
            return parse(lines)
        except ValueError as error:
            last = f"; the host said last: {lines[-1]}" if lines else ""
            raise click.ClickException(f"{self.name}: {error}{last}") from None

    def builds(self, facts: HostFacts) -> dict[str, Build]:
        """The engines that it is to have."""
        return {name: build(self.rig, name, engine, facts) for name, engine in self.rig.engines.items()}

    def wanted(self, facts: HostFacts) -> Generation:
        """The generation that it is to serve."""
        return generation(self.rig, self.builds(facts), tools(self.rig, facts))


def boxes(inventory: str, limit: str | None) -> tuple[list[Box], list[str]]:
    """Connect to an inventory's hosts; returns them, and the names of those out of reach.

    Raises:
        click.ClickException: the inventory is refused, or the limit names nothing.
    """
    try:
        reached, gone = connect(inventory, limit)
    except (UnknownHost, SystemExit) as error:
        raise click.ClickException(str(error)) from None
    return [Box(name, rig_of(name, target.data.get("rig")), target) for name, target in reached.items()], gone


def leave(gone: list[str]) -> None:
    """Name the hosts that are out of reach, and end with exit status 2 where there are any."""
    for name in gone:
        click.echo(f"{name}: cannot be reached", err=True)
    if gone:
        sys.exit(2)


def rig_of(name: str, data: object) -> Rig:
    """The rig that a host's data describes.

    Raises:
        click.ClickException: it describes none.
    """
    try:
        return load(data)
    except Invalid as error:
        raise click.ClickException(f"{name}: {error}") from None


def each(found: list[Box], look: Callable[[Box], T]) -> list[T]:
    """Look at all of them at once; returns what was found in their order."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(look, found))


def whole(rig: Rig) -> Rig:
    """A rig whose bundle, if it has one, has all that a deploy needs.

    Raises:
        click.ClickException: it has not; the text says all that is wrong with it.
    """
    if rig.bundle_faults:
        raise click.ClickException("\n".join(map(str, rig.bundle_faults)))
    return rig
