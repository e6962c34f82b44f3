"""The actions of a rollout on a box: `deploy`, the gate and `rollback`, by the code of those verbs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from checks.connections import ConnectedHost, HostReadFailed, connect_inventory, map_inventory
from checks.results import STATUS
from cli.bench_speed import InterruptedMeasurement, find_speed_fault
from cli.deploy_verbs import RunRequest, run_request
from cli.exit_codes import HostFailure, InvalidRequest, NotAsDeclared, exit_on_interrupt
from cli.inventory_loading import load_host_rigs, load_hosts
from cli.observed_box import observe_box
from cli.prog_name import prog_name
from cli.rollout_plan import SERVES
from cli.rollout_run import BoxBefore, BoxUnreachable
from cli.switch import find_verification_fault
from cli.tables import print_prose
from cli.verdict_report import print_finding
from rigwright.model.instance import Instance
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.problems import format_count, printable
from rigwright.project_root import ROOT
from rigwright.rollout.box_marker import (
    BoxMarker,
    parse_left,
    parse_mark,
    parse_marker,
    render_drain_script,
    render_mark_script,
    render_marker_query,
    render_return_script,
)
from rigwright.rollout.state_file import MOST_GENERATION, RolloutAction
from rigwright.serving.takeover import drain_seconds
from roles import root_shell
from roles.operations.drivers import BOOT
from roles.rollback import find_rollback_target

T = TypeVar("T")
LISTED = 3  # failing checks that a reason names
DRIVER_CHECKS = ("N14", "N20")
"""Checks that compare the driver with the lock and with the last deploy: after a rollback it is another one."""
START_SECONDS = 3600.0  # for the start of all instances after a reboot
LOOK_SECONDS = 2.0


def describe_interrupted_rollout() -> str:
    """The words after Ctrl-C."""
    return f"\nInterrupted; `{prog_name()} rollout --resume` continues.\n"


@dataclass(frozen=True)
class BoxSteps:
    """Steps on the boxes of an inventory; `cli.rollout_run.RolloutSteps`."""

    inventory: str
    action: RolloutAction

    def observe(self, names: Collection[str]) -> Mapping[str, BoxBefore | BoxUnreachable]:
        """The served generation, the boot and the marker of boxes."""
        return self._map(names, _observe_box)

    def mark(self, markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        """Replace the markers of boxes; returns their digests, or None for one that another controller has written."""

        def write(box: ConnectedHost) -> str | None:
            marker, expected = markers[box.name]
            is_written, digest = box.run_and_parse(parse_mark, render_mark_script(box.rig.roots, marker, expected))
            return digest if is_written else None

        return self._map(markers, write)

    def share_builds(self, names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
        """Copy engines from the boxes that have compiled them, to those of these that lack them; others build."""
        from cli.rollout_builds import share_builds

        if names:
            share_builds(self.inventory, names, builders)

    def drain(self, names: Collection[str]) -> None:
        """Wait for the requests of other boxes' gateways."""
        rigs = load_host_rigs(load_hosts(self.inventory, ",".join(names))) if names else {}
        lenders = [name for name, rig in rigs.items() if rig.gateway and rig.gateway.fleet.listener]
        drained = self._map(
            lenders, lambda box: box.run_and_parse(parse_left, render_drain_script(drain_seconds(box.rig.gateway)))
        )
        for name, left in drained.items():
            if isinstance(left, BoxUnreachable):
                # its deploy says so, too
                print_prose(f"{name}: not drained: {left}")
            elif left:
                print_prose(f"{name}: {format_count(left, 'request')} of other boxes did not end in time")

    def await_gateways(self, names: Collection[str]) -> None:
        """Wait until gateways of other boxes send requests to these boxes again."""
        lent: dict[str, list[str]] = {}
        for front, rig in load_host_rigs(load_hosts(self.inventory, None)).items():
            remote = rig.gateway.fleet.remote if rig.gateway else ()
            if found := [f"{one.box}/{one.instance}" for one in remote if one.box in names and front not in names]:
                lent[front] = found

        def await_return(box: ConnectedHost) -> int:
            return box.run_and_parse(parse_left, render_return_script(lent[box.name]))

        for front, left in self._map(lent, await_return).items():
            if isinstance(left, BoxUnreachable):
                print_prose(f"{front}: its gateway is unknown: {left}")
            elif left:
                print_prose(
                    f"{front}: its gateway still leaves out {format_count(left, 'instance')} of {', '.join(names)}"
                )

    def _map(self, names: Collection[str], work: Callable[[ConnectedHost], T]) -> Mapping[str, T | BoxUnreachable]:
        """Work on boxes at the same time; for a box that does not answer, the reason."""
        if not names:
            return {}

        def attempt(box: ConnectedHost) -> T | BoxUnreachable:
            try:
                return work(box)
            except click.ClickException as error:
                return BoxUnreachable(printable(error.message))
            except root_shell.BROKEN as error:
                return BoxUnreachable(printable(str(error)))

        from roles.connection_failures import describe_unreachable_host

        found, gone = map_inventory(self.inventory, ",".join(names), attempt)
        unreached = {name: BoxUnreachable(describe_unreachable_host(why)) for name, why in gone.items()}
        return {**{box.name: one for box, one in found}, **unreached}

    def deploy(self, names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        """Deploy boxes at the same time, or return them to a driver; returns the reason for each on which that failed.

        `reboot` is the consent, None without a word on it: the inventory's holds then.
        """
        orders: dict[str, object] = {} if reboot is None else {"reboot": reboot}
        verb = "rollback" if driver else self.action
        orders |= {"driver": True, "driver_version": driver} if driver else {}
        request = RunRequest(self.inventory, ",".join(names), verb, dry=False, verbose=0, orders=orders)
        try:
            run_request(request)
        except HostFailure as error:
            if not error.causes:
                raise
            return {name: f"{verb}: {cause}" for name, cause in error.causes.items()}
        finally:
            exit_on_interrupt(describe_interrupted_rollout)
        return {}

    def run_gate(self, name: str, *, speed: bool) -> str:
        """Why a box fails its checks, a completion of an instance, or its speed baseline; empty if it passes all."""
        try:
            box = self._connect(name)
            if self.action == "rollback":
                return find_serving_fault(box)
            if self.action == "driver rollback":
                # the deploy of another driver ends when instances are ready, its rollback when the driver is
                await_started_instances(box)
            if fault := self._find_check_fault(name):
                return fault
            if fault := find_verification_fault(box, [one.name for one in box.rig.instances], _print_failed):
                return fault
            return self._find_speed_fault(box) if speed else ""
        except BoxUnreachable as error:
            return str(error)
        except (NotAsDeclared, InterruptedMeasurement):
            # both end by Ctrl-C alone: the box has not failed
            raise KeyboardInterrupt from None
        finally:
            exit_on_interrupt(describe_interrupted_rollout)

    def roll_back(self, name: str, generation: int) -> str:
        """Return a box to a generation; the reason if that failed."""
        orders = {"to": generation}
        try:
            run_request(RunRequest(self.inventory, name, "rollback", dry=False, verbose=0, orders=orders))
        except click.ClickException as error:
            return printable(error.message)
        finally:
            exit_on_interrupt(describe_interrupted_rollout)
        return ""

    def _connect(self, name: str) -> ConnectedHost:
        found, gone = connect_inventory(self.inventory, name)
        if gone:
            raise BoxUnreachable(gone[name])
        return found[0]

    def _find_check_fault(self, name: str) -> str:
        """The failing checks of a box; pytest runs once a process, so `check` has its own."""
        command = [sys.executable, str(ROOT), "check", self.inventory, "--limit", name, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in STATUS.values():
            raise InvalidRequest(printable(done.stderr.strip()) or f"check ended with status {done.returncode}")
        if waived := describe_waived_checks(done.stdout):
            print_prose(f"{name}: waived by the inventory: {waived}")
        other = DRIVER_CHECKS if self.action == "driver rollback" else ()
        return "" if done.returncode == 0 else describe_check_fault(done.stdout, other)

    def _find_speed_fault(self, box: ConnectedHost) -> str:
        for one in box.rig.instances:
            if one.is_on_demand:
                print_prose(f"{box.name}: speed of {one.name} not measured: it is loaded on demand")
                continue
            try:
                if fault := find_speed_fault(self.inventory, box, one):
                    return fault
            except InvalidRequest as error:
                # others use the instance: a measurement would slow them
                print_prose(f"{box.name}: speed not measured: {error.message}")
        return ""


def _observe_box(box: ConnectedHost) -> BoxBefore:
    marker, digest = box.run_and_parse(parse_marker, render_marker_query(box.rig.roots))
    served = box.read_serving_state()
    boot = root_shell.run_command(box.target, BOOT).out
    target = find_rollback_target(served)
    refuse_generations(box.name, served.current, target)
    return BoxBefore(served.current, hashlib.sha256(boot).hexdigest()[:12], marker, digest, target)


def refuse_generations(name: str, *numbers: int | None) -> None:
    """Refuse numbers that no state file takes.

    Raises:
        HostReadFailed: a box reports such a generation.
    """
    for number in numbers:
        if number is not None and not 1 <= number <= MOST_GENERATION:
            raise HostReadFailed(f"{name}: generation {number} is refused: must be between 1 and {MOST_GENERATION}")


def await_started_instances(box: ConnectedHost, wait: Callable[[float], None] = time.sleep) -> None:
    """Wait until no instance of a box is starting; the checks after that report those that are not ready.

    Raises:
        BoxUnreachable: it does not answer.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            observed = observe_box(box, "served")
        except click.ClickException as error:
            raise BoxUnreachable(printable(error.message)) from None
        if all(observed.assess_state(one).state != "starting" for one in box.rig.instances):
            return
        wait(LOOK_SECONDS)


def find_serving_fault(box: ConnectedHost) -> str:
    """Why a box does not serve its generation, which may be another one than the inventory's; empty if it does."""
    try:
        observed = observe_box(box, "served")
        variants = observed.box.read_serving_state().served_variants
    except click.ClickException as error:
        raise BoxUnreachable(printable(error.message)) from None
    states = [observed.assess_state(one) for one in box.rig.instances if one.name in variants]
    return "; ".join(state.describe() for state in states if state.state not in SERVES)


def _print_failed(box: ConnectedHost, instance: Instance, finding: ProbeFinding) -> None:
    """Print a failed finding alone: others of each box would hide it."""
    if finding.verdict == "fail":
        print_finding(box.name, instance.name, finding)


def describe_waived_checks(report: str) -> str:
    """The waived failures that a JSON report of `check` has; empty without any."""
    try:
        checks = [one for host in json.loads(report)["hosts"] for one in host["checks"]]
        return printable(
            ", ".join(f"{one['id']} {one['part']}".rstrip() for one in checks if one["verdict"] == "waived")
        )
    except (ValueError, KeyError, TypeError):
        return ""


def describe_check_fault(report: str, other: Collection[str] = ()) -> str:
    """The failing checks that a JSON report of `check` has, in one line, except for other ones; empty if those fail
    alone.
    """
    try:
        hosts = json.loads(report)["hosts"]
        red = [one for host in hosts for one in host["checks"] if one["verdict"] in ("fail", "changed")]
        failed = [one for one in red if one["id"] not in other]
        counted = [one for one in failed if one["verdict"] == "fail"] or failed
        named = [f"{one['id']} {one['title']}: {one['found'] or one['note']}" for one in counted[:LISTED]]
        unreached = any(host["verdict"] == "not reached" for host in hosts)
    except (ValueError, KeyError, TypeError):
        return "check: its report cannot be read"
    if unreached:
        from roles.connection_failures import describe_unreachable_host

        return describe_unreachable_host("")
    if red and not failed:
        return ""
    more = f"; and {len(counted) - LISTED} more" if len(counted) > LISTED else ""
    return printable(f"{format_count(len(counted), 'check')}: {'; '.join(named)}{more}")
