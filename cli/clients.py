"""What verbs have in common that ask instances as clients: which, where, undisturbed, and until somebody has enough."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import gevent

from checks.looking import Box, Gone, Rigs, boxes
from cli import completing
from cli.ending import Refused
from cli.interrupts import STATUS
from cli.tables import say
from rigwright.model.rig import Instance, Rig
from rigwright.operate.place import NoPlace, Place, at_gateway, at_instance
from rigwright.problems import unknown
from roles.client import Client
from roles.deploy_lock import DeployLock

Verb = TypeVar("Verb", bound=Callable[..., Any])
INSTANCE = click.option(
    "--instance",
    multiple=True,
    metavar="NAME",
    help="Only this one; may be given several times.",
    shell_complete=completing.instances,
)


def reach(
    inventory: str,
    limit: str | None,
    names: Sequence[str] = (),
    judge: Callable[[str, Rig, Instance], object] = lambda host, rig, instance: None,
) -> tuple[list[Box], Gone]:
    """Connect to an inventory's hosts; returns them, and those out of reach.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        names: The instances that are meant; none for all.
        judge: Is told each of them before any host is reached, and raises where that is no good.

    Raises:
        Refused: the inventory is, the limit or a name names nothing, or `judge` has said so.
    """

    def judged(rigs: Rigs) -> None:
        there = {one.name for rig in rigs.values() for one in rig.instances}
        if wrong := [f"--instance: {unknown('instance', name, there)}" for name in names if name not in there]:
            raise Refused("\n".join(wrong))
        for host, rig in rigs.items():
            for one in rig.instances:
                if not names or one.name in names:
                    judge(host, rig, one)

    try:
        return boxes(inventory, limit, judged)
    except click.ClickException as error:
        raise Refused(error.message) from None


@dataclass(frozen=True)
class Door:
    """The way in that clients take; an instance's own socket without one."""

    gateway: bool = False
    listener: str | None = None
    key_file: str | None = None

    def place(self, host: str, rig: Rig, instance: Instance) -> Place:
        """Where an instance of a host is asked.

        Raises:
            Refused: there is no such place, or no key for it.
        """
        if not self.gateway:
            return at_instance(rig, instance)
        try:
            return at_gateway(rig, instance, self.listener, self.key_file)
        except NoPlace as error:
            raise Refused(f"{host}: {error}") from None


def door(verb: Verb) -> Verb:
    """The options of a `Door`, which `door_of` makes of them."""
    for option in (
        click.option("--key-file", metavar="FILE", help="With --gateway: a file whose only line is a client's key."),
        click.option("--listener", metavar="NAME", help="With --gateway: the listener to use."),
        click.option("--gateway", is_flag=True, help="Through the gateway, as clients come; else at its own socket."),
    ):
        verb = option(verb)
    return verb


def door_of(gateway: bool, listener: str | None, key_file: str | None) -> Door:
    """What the options of `door` say.

    Raises:
        click.UsageError: one of them is for a gateway, which is not asked for.
    """
    for name, value in (("--listener", listener), ("--key-file", key_file)):
        if value and not gateway:
            raise click.UsageError(f"{name} goes with --gateway")
    return Door(gateway, listener, key_file)


def chosen(found: Sequence[Box], names: Sequence[str]) -> list[tuple[Box, Instance]]:
    """The instances of boxes that are named, or all, in their order."""
    return [(box, one) for box in found for one in box.rig.instances if not names or one.name in names]


@contextmanager
def alone(box: Box, doing: str) -> Iterator[DeployLock]:
    """Hold the deploy lock of a box while the block runs: nobody deploys there meanwhile.

    Raises:
        Refused: somebody else holds it.
    """
    lock = DeployLock(box.target, doing)
    if refused := lock.take():
        raise Refused(f"{box.name}: refused: {refused}")
    try:
        yield lock
    finally:
        if lock.channel:
            lock.channel.close()


class Closes(Protocol):
    """What runs on a host, and can be ended."""

    def close(self) -> None:
        """End it."""


class Interrupt:
    """Ctrl-C: the first ends the jobs that run, and with them what waits for them (`roles.client.Lost`); what came
    until then is kept. The second ends this process.
    """

    def __init__(self) -> None:
        """From here on."""
        self.asked = False
        self._running: list[Closes] = []
        gevent.signal_handler(signal.SIGINT, self._interrupted)

    def why(self, error: Exception) -> str:
        """Why a job has ended, for a report."""
        return "interrupted" if self.asked else f"the client on the box is lost: {error}"

    @contextmanager
    def client(self, box: Box, place: Place, *more: Path) -> Iterator[Client]:
        """A client that an interrupt ends.

        Raises:
            roles.client.Lost: it does not begin.
        """
        with Client(box.target, place, *more) as made, self.ends(made):
            yield made

    @contextmanager
    def ends(self, job: Closes) -> Iterator[None]:
        """An interrupt ends it while the block runs."""
        self._running.append(job)
        try:
            yield
        finally:
            self._running.remove(job)

    def _interrupted(self) -> None:
        if self.asked:
            os._exit(STATUS)
        self.asked = True
        say("\nInterrupted: what came until now is kept. Again to end at once.", err=True)
        for one in tuple(self._running):
            one.close()
