"""Looking at hosts without changing them: one connection a host, all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click

from checks.results import STATUS
from checks.testinfra_backend import UnknownHost, connect_targets, load_hosts
from rigwright.containers import container_facts
from rigwright.containers.container_facts import ContainerFacts
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.gateway import secrets_distribution
from rigwright.gateway.secrets_distribution import GatewaySecretFacts
from rigwright.host import deploy_lock_state, script_output
from rigwright.host.deploy_lock_state import DEPLOY_LOCK, LockHolder
from rigwright.host.script_output import free_text
from rigwright.inventory import load_rig, tolerate_problems
from rigwright.model.fact_types import HostFacts
from rigwright.model.rig import Rig
from rigwright.nvidia.cards import card_facts
from rigwright.nvidia.cards.card_facts import ForeignProcesses
from rigwright.nvidia.driver import driver_facts as driver_facts
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.plan import host_probe as host_probe
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.plan.state_digests import OwnedStateFacts, parse_owned_state, render_owned_state_query
from rigwright.problems import Invalid
from rigwright.render import render
from rigwright.serving import serving_state, unit_diff, weight_inventory
from rigwright.serving.serving_state import ObservedServing, UnitUsage, render_state_query
from rigwright.serving.unit_diff import WrittenUnits
from rigwright.serving.weight_inventory import WeightInventory
from roles import root_shell
from roles.host_counts import show_counts
from roles.host_pool import HostThreads

T = TypeVar("T")
H = TypeVar("H")
LIMIT = 180.0  # seconds without a byte: each of what is looked at here takes a host a few

# look -> its script for a rig
SCRIPTS: dict[str, Callable[[Rig], str]] = {
    "served": lambda rig: render_state_query(
        rig.roots.config, rig.roots.software, rig.roots.startup_records, rig.roots.builds, rig.roots.ledger
    ),
    "stored": lambda rig: weight_inventory.render_weights_query(rig.roots),
    "facts": lambda rig: render("probe/probe.sh.j2", **host_probe.probe_values(rig)),
    "driver_facts": lambda rig: driver_facts.render_probe(rig.roots, rig.toolkit),
    "containers": lambda rig: container_facts.render_probe(rig.roots, rig.cards, rig.containers, rig.container_supply),
    "holders": lambda rig: card_facts.render_holders_query(),
    "holder": lambda rig: render("deploy_lock/holder.sh.j2", deploy_lock=DEPLOY_LOCK),
    "written": lambda rig: render("look/written.sh.j2", config=rig.roots.config),
    "gateway_secrets": lambda rig: secrets_distribution.render_state_query(rig.roots),
    "use": lambda rig: render("look/use.sh.j2"),
    "owned_state": render_owned_state_query,
}


class HostReadFailed(click.ClickException):
    """A host does not say what was asked."""

    exit_code = STATUS["not as declared"]


class HostConnectionLost(HostReadFailed):
    """Its connection is gone."""

    exit_code = STATUS["not reached"]


@dataclass(frozen=True)
class ConnectedHost:
    """A connected host and what it is to be."""

    name: str
    rig: Rig
    target: Any
    told: Mapping[str, list[str]] = field(default_factory=dict)
    """Script -> what it has told already."""

    def stream_lines(self, script: str) -> Iterator[str]:
        """Run a shell script as root; yields its output's lines as they come.

        Raises:
            roles.root_shell.ConnectionGone: the connection was lost.
        """
        return root_shell.stream_lines(self.target, script)

    def prefetch(self, *looks: str) -> ConnectedHost:
        """The same box, with some looks of SCRIPTS taken, in one command.

        Raises:
            HostConnectionLost: the connection is gone.
        """
        scripts = [SCRIPTS[look](self.rig) for look in looks]
        answer = self._run("sh", script_output.render_parallel(scripts))
        # a look that is not among them is taken alone, and says what is wrong
        with suppress(ValueError):
            return replace(self, told=script_output.parse_outputs(answer.lines, scripts))
        return self

    def read_serving_state(self) -> ObservedServing:
        """Its serving state now."""
        return self.run_and_parse(serving_state.parse, SCRIPTS["served"](self.rig))

    def read_weight_inventory(self) -> WeightInventory:
        """Which weights lie on it."""
        return self.run_and_parse(
            lambda lines: weight_inventory.parse_weight_inventory(self.rig.roots, lines), SCRIPTS["stored"](self.rig)
        )

    def read_facts(self) -> HostFacts:
        """The findings of a probe."""
        return self.run_and_parse(host_probe.parse, SCRIPTS["facts"](self.rig))

    def read_driver_facts(self) -> DriverFacts:
        """Its facts for the choice of a driver."""
        return self.run_and_parse(driver_facts.parse, SCRIPTS["driver_facts"](self.rig))

    def read_container_facts(self) -> ContainerFacts:
        """Its containers."""
        return self.run_and_parse(container_facts.parse, SCRIPTS["containers"](self.rig))

    def read_card_holders(self) -> ForeignProcesses:
        """The processes of others that use its cards."""
        return self.run_and_parse(
            lambda lines: card_facts.parse_holders(lines, self.rig.reserved_gpus), SCRIPTS["holders"](self.rig)
        )

    def read_lock_holder(self) -> LockHolder | None:
        """The holder of its deploy lock; None if it is free."""
        return self.run_and_parse(deploy_lock_state.parse_lock_holder, SCRIPTS["holder"](self.rig))

    def read_written_files(self) -> WrittenUnits:
        """The files of instances in its current generation."""
        return self.run_and_parse(unit_diff.parse_written_units, SCRIPTS["written"](self.rig))

    def read_gateway_secrets(self) -> GatewaySecretFacts:
        """Versions of what its gateway's programs have of secrets."""
        return self.run_and_parse(secrets_distribution.parse, SCRIPTS["gateway_secrets"](self.rig))

    def read_resource_usage(self) -> dict[str, UnitUsage]:
        """Since when the units of its instances are what they are, and what memory they have."""
        return self.run_and_parse(serving_state.parse_unit_usage, SCRIPTS["use"](self.rig))

    def read_owned_state(self) -> OwnedStateFacts:
        """Digests of what a deploy owns there, now and when its checks last passed."""
        return self.run_and_parse(parse_owned_state, SCRIPTS["owned_state"](self.rig))

    def run_and_parse(self, parse: Callable[[list[str]], T], script: str, limit: float = LIMIT) -> T:
        """The output of a script, parsed; `limit` is in seconds.

        Raises:
            HostReadFailed: it is not what was asked for, or the connection is gone.
        """
        if script in self.told:
            answer = root_shell.RootCommandResult(0, "\n".join(self.told[script]).encode(), b"")
        else:
            answer = self._run(script, limit=limit)
        try:
            return parse(answer.lines)
        except ValueError as error:
            last = f"; it said: {free_text(answer.complaint)}" if answer.complaint else ""
            raise HostReadFailed(f"{self.name}: {error}{last}") from None

    def _run(self, script: str, stdin: str = "", limit: float = LIMIT) -> root_shell.RootCommandResult:
        try:
            return root_shell.run_command(self.target, script, stdin, limit)
        except root_shell.RootDenied as error:
            raise HostConnectionLost(f"{self.name}: {error}") from None
        except root_shell.ConnectionGone as error:
            raise HostConnectionLost(f"{self.name}: the connection was lost: {free_text(str(error))}") from None

    def resolve_desired(self) -> TargetState:
        """The target state of its rig there."""
        return build_target_state(self.rig, self.read_facts())


RigsByHost = Mapping[str, Rig]
"""Host -> what it is to be."""
UnreachableHosts = Mapping[str, str]
"""Host that is out of reach -> why."""


def connect_inventory(
    inventory: str, limit: str | None, judge: Callable[[RigsByHost], object] = lambda rigs: None
) -> tuple[list[ConnectedHost], UnreachableHosts]:
    """Connect to an inventory's hosts; returns them, and those out of reach.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        judge: Gets their targets before any of them is reached, and raises where those are invalid.

    Raises:
        click.ClickException: the inventory is refused, or the limit names nothing.
    """
    found, gone = map_inventory(inventory, limit, lambda box: None, judge)
    return [box for box, _ in found], gone


def map_inventory(
    inventory: str,
    limit: str | None,
    look: Callable[[ConnectedHost], T],
    judge: Callable[[RigsByHost], object] = lambda rigs: None,
) -> tuple[list[tuple[ConnectedHost, T]], UnreachableHosts]:
    """Connect to an inventory's hosts and look at each, as `connect_and_map` does; raises as `connect_inventory`."""
    rigs: dict[str, Rig] = {}
    try:
        state, targets = load_hosts(inventory, limit)
    except (UnknownHost, SystemExit) as error:
        raise click.ClickException(str(error)) from None
    with share_resolutions():
        for name, target in targets.items():
            try:
                rigs[name] = load_rig(target.data.get("rig"))
            except Invalid as error:
                raise click.ClickException(f"{name}: {error}") from None
    judge(rigs)
    boxes = {name: ConnectedHost(name, rigs[name], target) for name, target in targets.items()}
    seen, gone = connect_and_map(state, targets, lambda name: look(boxes[name]))
    return [(boxes[name], one) for name, one in seen.items()], gone


def connect_and_map(
    state: Any, targets: dict[str, Any], look: Callable[[str], T]
) -> tuple[dict[str, T], UnreachableHosts]:
    """Connect to hosts and look at each as soon as it is connected: one that hangs delays no other.

    Returns:
        The looks by host, in the order of `targets`, and the hosts out of reach.
    """
    looks: dict[str, Future[T]] = {}
    with HostThreads(len(targets)) as pool, show_counts(targets) as counts:

        def begin(name: str) -> None:
            looks[name] = pool.submit(counts.run, look, name)

        gone = connect_targets(state, targets, begin)
    return {name: looks[name].result() for name in targets if name not in gone}, gone


@dataclass(frozen=True)
class LoginHost:
    """A connected host of which only the connection is used."""

    name: str
    target: Any


def connect_logins(
    inventory: str,
    limit: str | None,
    judge: Callable[[Collection[str]], object],
    begin: Callable[[LoginHost], object] = lambda host: None,
) -> tuple[list[LoginHost], UnreachableHosts]:
    """Connect to an inventory's hosts, also with a refused declaration; returns them, and those out of reach.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        judge: Is called with their names before any of them is reached, and raises to refuse them.
        begin: Is called with each host as soon as it is connected.

    Raises:
        click.ClickException: a connection or the inventory itself is refused, or the limit names nothing.
    """
    try:
        with tolerate_problems():
            state, targets = load_hosts(inventory, limit)
    except (UnknownHost, SystemExit) as error:
        raise click.ClickException(str(error)) from None
    judge(targets)
    gone = connect_targets(state, targets, lambda name: begin(LoginHost(name, targets[name])))
    return [LoginHost(name, target) for name, target in targets.items() if name not in gone], gone


def require_single_host(inventory: str, rigs: Collection[str]) -> None:
    """Refuse more than one host.

    Raises:
        click.UsageError: there are several; the text has their names.
    """
    if len(rigs) > 1:
        listed = ", ".join(sorted(rigs))
        raise click.UsageError(f"{inventory} has {len(rigs)} hosts: name one with --limit: {listed}")


def map_hosts(found: list[H], look: Callable[[H], T]) -> list[T]:
    """Look at all of them at once; returns what was found in their order."""
    with HostThreads(len(found)) as pool:
        return list(pool.map(look, found))
