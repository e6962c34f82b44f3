"""Deploys of many hosts, each at its own pace: a host takes its steps as soon as it can, whatever others do.

Hosts that serve each other go side by side: none begins a step before its companions have ended the ones before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gevent
from gevent.event import Event
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_config, ctx_host
from pyinfra_cli.util import exec_file

import roles.pyinfra_speedups  # noqa: F401 (it puts them in place)
from rigwright.declaration.shared_resolution import share_resolutions
from rigwright.model.rig import Rig
from rigwright.weights.weight_server import find_sharing_boxes
from roles.progress import progress


class PipelinedState(State):
    """pyinfra's state of a run in which each host has its own stage."""

    def __init__(self, *, check_for_changes: bool) -> None:
        self.executing: set[Any] = set()
        """Hosts that take steps, or have taken them."""
        super().__init__(check_for_changes=check_for_changes)

    @property
    def is_executing(self) -> bool:  # type: ignore[override]
        """Whether the host of this greenlet takes steps."""
        return ctx_host.get() in self.executing

    @property
    def current_stage(self) -> StateStage:  # type: ignore[override]
        """The stage of the host of this greenlet; outside of one, the last that any has reached."""
        one = ctx_host.get()
        executing = bool(self.executing) if one is None else one in self.executing
        return StateStage.Execute if executing else StateStage.Prepare

    def fail_hosts(self, hosts_to_fail: set[Any], activated_count: int | None = None) -> None:
        """Take hosts out of the run, which goes on without active ones: others may still connect."""
        self.failed_hosts.update(hosts_to_fail)
        self.active_hosts -= hosts_to_fail


def find_companions(rigs: Mapping[str, Rig]) -> dict[str, set[str]]:
    """Host -> hosts of the run that it serves, or that serve it: with weights, or with instances for a gateway."""
    sharing = find_sharing_boxes(
        {name: rig.network.peers for name, rig in rigs.items()}, {name: rig.share for name, rig in rigs.items()}
    )
    companions: dict[str, set[str]] = {name: set() for name in rigs}
    for name, rig in rigs.items():
        sources = sharing[name] | ({one.box for one in rig.gateway.fleet.remote} if rig.gateway else set())
        for other in sources & {*rigs} - {name}:
            companions[name].add(other)
            companions[other].add(name)
    return companions


@dataclass
class HostPipeline:
    """The course of one host."""

    target: Any
    companions: list[HostPipeline] = field(default_factory=list)
    position: tuple[int, ...] | None = None
    """The order of the step that comes next, or is under way; None before its steps are known."""
    ended: bool = False
    moved: Event = field(default_factory=Event)
    error: Exception | None = None

    def move(self, position: tuple[int, ...] | None) -> None:
        """Go on to a step; None: to the end."""
        self.position, self.ended = position, position is None
        moved, self.moved = self.moved, Event()
        moved.set()

    def wait_for_companions(self, position: tuple[int, ...]) -> None:
        """Wait until each companion has ended all steps before this one, or its run."""
        for one in self.companions:
            while not one.ended and (one.position is None or one.position < position):
                one.moved.wait()


class HostPipelines:
    """The courses of all hosts of a run."""

    def __init__(self, state: PipelinedState, deploy: str, rigs: Mapping[str, Rig], output: Any) -> None:
        """Take a run.

        Args:
            state: pyinfra's, with its limit.
            deploy: The file with the roles.
            rigs: The hosts of the run.
            output: Gets `estimate_host`, `end_operation` of each step that succeeded, `operation_host_error` of each
                step that an error ended, and `end_host`.
        """
        self.state, self.deploy, self.output = state, deploy, output
        state.current_deploy_filename = deploy
        self.pipelines = {one.name: HostPipeline(one) for one in state.inventory if state.is_host_in_limit(one)}
        for name, companions in find_companions({name: rigs[name] for name in self.pipelines}).items():
            self.pipelines[name].companions = [self.pipelines[other] for other in sorted(companions)]

    def run(self) -> dict[str, Exception]:
        """Connect to all hosts, prepare their steps and take them; returns errors other than failed commands, by host.

        A plan only prepares.
        """
        greenlets = [self.state.pool.spawn(self._run_host, one) for one in self.pipelines.values()]
        gevent.joinall(greenlets)
        for one in greenlets:
            one.get()
        return {name: one.error for name, one in self.pipelines.items() if one.error}

    def _run_host(self, pipeline: HostPipeline) -> None:
        target = pipeline.target
        try:
            with ctx_config.use(self.state.config.copy()), ctx_host.use(target):
                target.connect()
                if not target.connected:
                    self.state.fail_hosts({target})
                    return
                self.state.activate_host(target)
                with share_resolutions():
                    exec_file(self.deploy)
                if target in self.state.active_hosts and not self.state.check_for_changes:
                    self._take_steps(pipeline)
        except Exception as error:
            # a step parses a host's output: an odd one fails that host, and the others go on
            pipeline.error = error
            self.state.fail_hosts({target})
        finally:
            pipeline.move(None)
            self.output.end_host(target.name)

    def _take_steps(self, pipeline: HostPipeline) -> None:
        target = pipeline.target
        self.output.estimate_host(self.state, target)
        self.state.executing.add(target)
        for op_hash in target.op_hash_order:
            position = self.state.op_meta[op_hash].op_order
            pipeline.move(position)
            pipeline.wait_for_companions(position)
            try:
                is_done = run_host_op(self.state, target, op_hash)
            except Exception:
                # pyinfra reports failed commands, but no error between them
                self.output.operation_host_error(self.state, target, op_hash)
                raise
            if not is_done:
                self.state.fail_hosts({target})
                return
            self.output.end_operation(self.state, target, op_hash)
        progress.end_host(target.name)
