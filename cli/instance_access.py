"""Common parts of verbs that ask instances as clients: which, where, undisturbed, and until the operator interrupts
them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import click
import gevent

from checks.connections import ConnectedHost, RigsByHost, UnreachableHosts, connect_inventory, map_inventory
from cli.exit_codes import INTERRUPTED_STATUS, HostUnreached, InvalidRequest
from cli.tables import print_prose
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.operate.client_target import ClientTarget, NoClientTarget, gateway_target, instance_target
from rigwright.problems import describe_unknown
from roles import root_shell
from roles.client import HostClient
from roles.deploy_lock import DeployLock

T = TypeVar("T")


def connect_boxes(
    inventory: str,
    limit: str | None,
    names: Sequence[str] = (),
    judge: Callable[[str, Rig, Instance], object] = lambda host, rig, instance: None,
) -> tuple[list[ConnectedHost], UnreachableHosts]:
    """Connect to an inventory's hosts; returns them, and those out of reach.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        names: The instances that are meant; none for all.
        judge: Gets each of them before any host is reached, and raises for an unfit one.

    Raises:
        InvalidRequest: the inventory is, the limit or a name names nothing, or `judge` has said so.
    """

    try:
        return connect_inventory(inventory, limit, _refuse_instances(names, judge))
    except click.ClickException as error:
        raise InvalidRequest(error.message) from None


def map_boxes(
    inventory: str,
    limit: str | None,
    names: Sequence[str],
    look: Callable[[ConnectedHost], T],
    judge: Callable[[str, Rig, Instance], object] = lambda host, rig, instance: None,
) -> tuple[list[T], UnreachableHosts]:
    """Look at each host of an inventory as soon as it is connected; returns the results, and the hosts out of reach.

    Args:
        inventory: As in `connect_boxes`.
        limit: As in `connect_boxes`.
        names: As in `connect_boxes`.
        look: Called with each connected host; it does not raise.
        judge: As in `connect_boxes`.

    Raises:
        InvalidRequest: as `connect_boxes`.
    """
    try:
        found, gone = map_inventory(inventory, limit, look, _refuse_instances(names, judge))
    except click.ClickException as error:
        raise InvalidRequest(error.message) from None
    return [one for _, one in found], gone


def _refuse_instances(
    names: Sequence[str], judge: Callable[[str, Rig, Instance], object]
) -> Callable[[RigsByHost], None]:
    """The function that refuses rigs by the names of instances, and by `judge`."""

    def refuse(rigs: RigsByHost) -> None:
        there = {one.name for rig in rigs.values() for one in rig.instances}
        if wrong := [f"--instance: {describe_unknown('instance', name, there)}" for name in names if name not in there]:
            raise InvalidRequest("\n".join(wrong))
        for host, rig in rigs.items():
            for one in rig.instances:
                if not names or one.name in names:
                    judge(host, rig, one)

    return refuse


@dataclass(frozen=True)
class ClientAccess:
    """The way in that clients take; an instance's own socket without one."""

    gateway: bool = False
    listener: str | None = None
    key_file: str | None = None

    def resolve_endpoint(self, host: str, rig: Rig, instance: Instance) -> ClientTarget:
        """Where an instance of a host is asked.

        Raises:
            InvalidRequest: there is no such place, or no key for it.
        """
        if not self.gateway:
            return instance_target(rig.roots, rig.accounts, rig.gateway, instance)
        try:
            return gateway_target(rig.inventory, rig.instances, rig.gateway, instance, self.listener, self.key_file)
        except NoClientTarget as error:
            raise InvalidRequest(f"{host}: {error}") from None


def parse_access(gateway: bool, listener: str | None, key_file: str | None) -> ClientAccess:
    """The access that `access_options` name.

    Raises:
        click.UsageError: one of them is for a gateway, which is not asked for.
    """
    for name, value in (("--listener", listener), ("--key-file", key_file)):
        if value and not gateway:
            raise click.UsageError(f"{name} needs --gateway")
    return ClientAccess(gateway, listener, key_file)


def select_instances(found: Sequence[ConnectedHost], names: Sequence[str]) -> list[tuple[ConnectedHost, Instance]]:
    """The instances of boxes that are named, or all, in their order."""
    return [(box, one) for box in found for one in box.rig.instances if not names or one.name in names]


@contextmanager
def hold_deploy_lock(box: ConnectedHost, doing: str) -> Iterator[DeployLock]:
    """Hold the deploy lock of a box while the block runs: no deploy runs there meanwhile.

    Raises:
        InvalidRequest: another process holds it.
        HostUnreached: the host refuses root.
    """
    lock = DeployLock(box.target, doing)
    if refused := lock.acquire():
        denied = root_shell.is_root_denial(refused)
        raise (HostUnreached if denied else InvalidRequest)(f"{box.name}: refused: {refused}")
    try:
        yield lock
    finally:
        if lock.channel:
            lock.channel.close()


INTERRUPTED = "interrupted"
"""The end of a job that an interrupt has ended, in reports."""


class Closeable(Protocol):
    """A program on a host that can be ended."""

    def close(self) -> None:
        """End it."""


class InterruptHandler:
    """Ctrl-C: the first ends the jobs that run, and with them their waiting callers (`roles.client.ClientJobLost`); the
    results until then are kept. The second ends this process.
    """

    def __init__(self) -> None:
        """From here on."""
        self.asked = False
        self._running: list[Closeable] = []
        gevent.signal_handler(signal.SIGINT, self._handle_interrupt)

    def describe_error(self, error: Exception) -> str:
        """Why a job has ended, for a report."""
        return INTERRUPTED if self.asked else f"the client on the box is lost: {error}"

    @contextmanager
    def open_client(self, box: ConnectedHost, place: ClientTarget, *more: Path) -> Iterator[HostClient]:
        """A client that an interrupt ends.

        Raises:
            roles.client.ClientJobLost: it does not begin.
        """
        with HostClient(box.target, place, *more) as made, self.closes_on_interrupt(made):
            yield made

    @contextmanager
    def closes_on_interrupt(self, job: Closeable) -> Iterator[None]:
        """An interrupt ends it while the block runs."""
        self._running.append(job)
        try:
            yield
        finally:
            self._running.remove(job)

    def _handle_interrupt(self) -> None:
        if self.asked:
            os._exit(INTERRUPTED_STATUS)
        self.asked = True
        print_prose("\nInterrupted, partial results kept. Press Ctrl-C again to quit now.", err=True)
        for one in tuple(self._running):
            one.close()
