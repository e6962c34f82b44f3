"""A deployed, accepted host to which changes happen."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rigwright.project_root import ROOT
from tests.hosts.drift_host import SETTLES, DriftHost
from tests.hosts.host_changes.host_snapshot import HostSnapshot
from tests.hosts.host_changes.report_findings import HostFinding, new_findings, parse_findings
from tests.hosts.host_changes.report_server import ReportMissing, ReportServer

SCRIPT_LIMIT = 180.0
"""Seconds of a step of a change: a kernel is fetched and installed in two minutes."""
REST_LIMIT = 20.0
"""Seconds until a host is as it was before: services that a change has stopped start again meanwhile."""
START_LIMIT = 120.0
"""Seconds until a restarted host serves, on a machine with other work."""
OUTPUT = "/run/host-change.log"
"""Output of a step there: a program that it starts in the background keeps it open, and not the connection."""
SETTLE = """while [ -n "$(systemctl list-units --no-legend --state=activating,deactivating,reloading 'rigwright*')" ]
do sleep 0.1; done"""
"""Shell that ends once no unit of ours is on its way."""


class StepFailed(Exception):
    """A step of a change fails on the host."""


@dataclass
class ChangedHost(DriftHost):
    """The host, and what its reports say."""

    whole: bool = True
    """Whether all checks report, not those of the fingerprint alone."""
    reports: ReportServer = field(init=False)
    snapshot: HostSnapshot = field(init=False)
    at_rest: list[HostFinding] = field(default_factory=list)
    """Findings of the host before any change."""

    def __post_init__(self) -> None:
        self.reports = ReportServer(self.inventory, whole=self.whole)
        self.snapshot = HostSnapshot(self.host, self.inventory.parent)

    def run_step(self, command: str) -> None:
        """Run a step of a change as root, and wait until no unit of ours is on its way.

        Raises:
            StepFailed: it fails, or does not end in SCRIPT_LIMIT seconds.
        """
        words = "".join(f"{name}={shlex.quote(value)}\n" for name, value in self.words.items())
        remote = (
            f"sh -c {shlex.quote(words + command)} > {OUTPUT} 2>&1 < /dev/null; status=$?; "
            f"tail -c 600 {OUTPUT}; rm -f {OUTPUT}; timeout {SETTLES:.0f} sh -c {shlex.quote(SETTLE)}; exit $status"
        )
        try:
            done = subprocess.run(
                self.host.ssh_command(remote), capture_output=True, text=True, errors="replace", timeout=SCRIPT_LIMIT
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"does not end in {SCRIPT_LIMIT:.0f} s") from None
        if done.returncode:
            raise StepFailed(f"exit status {done.returncode}: {done.stdout.strip()[-300:]}")

    def run_steps(self, script: str) -> None:
        """Run a script of a change, with its reboots and deploys.

        Raises:
            StepFailed: a step fails.
        """
        for step in re.split(r"^(reboot|deploy)$", script, flags=re.MULTILINE):
            if step == "reboot":
                self.host.reboot()
                self.wait_until_serving()
            elif step == "deploy":
                if printed := self.deploy_error():
                    raise StepFailed(f"a deploy fails: {printed[-600:]}")
            elif step.strip():
                self.run_step(step.strip())

    def report_findings(self) -> list[HostFinding]:
        """Findings of all checks, or of the fingerprint's.

        Raises:
            ReportMissing: `check` prints none.
        """
        return parse_findings(json.loads(self.reports.print_report()))

    def accept_changes(self) -> None:
        """Accept the host as it is, as its operator does.

        Raises:
            ReportMissing: that fails.
        """
        command = [sys.executable, "-m", "cli", "check", str(self.inventory), "--accept", "--yes"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReportMissing(f"`check --accept` fails: {done.stdout[-500:]}{done.stderr[-1000:]}")

    def begin(self, *, accepts: bool) -> None:
        """Accept the host, keep a snapshot of it, and remember its findings.

        Args:
            accepts: Whether the operator accepts it; without that only new findings count.
        """
        self.wait_until_serving()
        if accepts:
            self.accept_changes()
        self.snapshot.take()
        self.wait_until_serving()
        self.at_rest = self.report_findings()

    def restore(self) -> list[HostFinding]:
        """Return to the snapshot; the host's reports then and now."""
        self.snapshot.restore()
        self.wait_until_serving()
        return self.wait_for_findings(self.at_rest, START_LIMIT)

    def wait_for_findings(self, expected: list[HostFinding], limit: float = REST_LIMIT) -> list[HostFinding]:
        """The host's findings, as soon as they are not more than expected, or at the end of so many seconds."""
        for _ in poll_until(limit):
            found = self.report_findings()
            if not new_findings(expected, found):
                break
        return found

    def wait_until_serving(self) -> None:
        """Wait until all units of ours that a boot starts have started, or have failed."""
        states = "systemctl list-units --plain --no-legend --all --type=service 'rigwright-*' | awk '{print $3}'"
        for _ in poll_until(START_LIMIT):
            found = self.host.run(states, check=False).split()
            if found and "activating" not in found:
                break


def poll_until(limit: float, every: float = 0.3) -> Iterator[None]:
    """One turn at once, and then one after another for so many seconds."""
    deadline = time.monotonic() + limit
    while True:
        yield
        if time.monotonic() > deadline:
            return
        time.sleep(every)
