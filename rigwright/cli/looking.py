"""Looking at hosts without changing them: one connection a host, all hosts at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from checks.backend import UnknownHost, connect
from rigwright import facts as host_facts
from rigwright import served
from rigwright.facts import HostFacts
from rigwright.generation import Generation, generation
from rigwright.inventory import load
from rigwright.llama_cpp import Build, build
from rigwright.render import render
from rigwright.rig import Rig
from rigwright.served import Served, state_script
from rigwright.tools import tools

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
        return served.parse(list(self.lines(state_script(self.rig.roots.config, self.rig.roots.software))))

    def facts(self) -> HostFacts:
        """What a probe finds."""
        return host_facts.parse(list(self.lines(render("probe/probe.sh.j2", **host_facts.questions(self.rig)))))

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
    return [Box(name, load(target.data.get("rig")), target) for name, target in reached.items()], gone


def each(found: list[Box], look: Callable[[Box], T]) -> list[T]:
    """Look at all of them at once; returns what was found in their order."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        return list(pool.map(look, found))
