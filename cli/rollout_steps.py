"""The actions of a rollout on a box: `deploy`, the gate and `rollback`, by the code of those verbs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import click

from checks.connections import ConnectedHost, connect_inventory
from checks.results import STATUS
from cli.bench_speed import InterruptedMeasurement, find_speed_fault
from cli.deploy_verbs import RunRequest, run_request
from cli.exit_codes import HostFailure, InvalidRequest, NotAsDeclared, exit_on_interrupt
from cli.prog_name import prog_name
from cli.rollout_run import BoxBefore, BoxUnreachable
from cli.switch import find_verification_fault
from cli.tables import print_prose
from cli.verdict_report import print_finding
from rigwright.model.instance import Instance
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.problems import format_count, printable
from rigwright.project_root import ROOT
from roles import root_shell
from roles.operations.drivers import BOOT

LISTED = 3  # failing checks that a reason names


def describe_interrupted_rollout() -> str:
    """The words after Ctrl-C."""
    return f"\nInterrupted; `{prog_name()} rollout --resume` continues.\n"


@dataclass(frozen=True)
class BoxSteps:
    """Steps on the boxes of an inventory; `cli.rollout_run.RolloutSteps`."""

    inventory: str

    def observe(self, name: str) -> BoxBefore:
        """The served generation and the boot of a box."""
        box = self._connect(name)
        try:
            generation = box.read_serving_state().current
            boot = root_shell.run_command(box.target, BOOT).out
        except click.ClickException as error:
            raise BoxUnreachable(printable(error.message)) from None
        except root_shell.BROKEN as error:
            raise BoxUnreachable(printable(str(error))) from None
        return BoxBefore(generation, hashlib.sha256(boot).hexdigest()[:12])

    def deploy(self, names: Collection[str], *, reboot: bool) -> Mapping[str, str]:
        """Deploy boxes at the same time; returns the reason for each on which that failed."""
        orders = {"reboot": True} if reboot else {}
        request = RunRequest(self.inventory, ",".join(names), "deploy", dry=False, verbose=0, orders=orders)
        try:
            run_request(request)
        except HostFailure as error:
            if not error.causes:
                raise
            return {name: f"deploy: {cause}" for name, cause in error.causes.items()}
        finally:
            exit_on_interrupt(describe_interrupted_rollout)
        return {}

    def run_gate(self, name: str, *, speed: bool) -> str:
        """Why a box fails its checks, a completion of an instance, or its speed baseline; empty if it passes all."""
        try:
            if fault := self._find_check_fault(name):
                return fault
            box = self._connect(name)
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
        return "" if done.returncode == 0 else describe_check_fault(done.stdout)

    def _find_speed_fault(self, box: ConnectedHost) -> str:
        for one in box.rig.instances:
            try:
                if fault := find_speed_fault(self.inventory, box, one):
                    return fault
            except InvalidRequest as error:
                # others use the instance: a measurement would slow them
                print_prose(f"{box.name}: speed not measured: {error.message}")
        return ""


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


def describe_check_fault(report: str) -> str:
    """The failing checks that a JSON report of `check` has, in one line."""
    try:
        hosts = json.loads(report)["hosts"]
        failed = [one for host in hosts for one in host["checks"] if one["verdict"] in ("fail", "changed")]
        counted = [one for one in failed if one["verdict"] == "fail"] or failed
        named = [f"{one['id']} {one['title']}: {one['found'] or one['note']}" for one in counted[:LISTED]]
        unreached = any(host["verdict"] == "not reached" for host in hosts)
    except (ValueError, KeyError, TypeError):
        return "check: its report cannot be read"
    if unreached:
        return str(BoxUnreachable(""))
    more = f"; and {len(counted) - LISTED} more" if len(counted) > LISTED else ""
    return printable(f"{format_count(len(counted), 'check')}: {'; '.join(named)}{more}")
