"""A host in the middle of a run, on which packages are brought: its shell, its jobs, and what the operator is told."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from pyinfra import logger

from rigwright.model.rig import Rig
from rigwright.supply.bundle import LocalFile
from roles.operations.jobs import run_job
from roles.operations.shell import HostLost, ReconnectingShell

WRITE = 'mkdir -p "$1" && cat > "$1/$2.new" && sync -d "$1/$2.new" && mv "$1/$2.new" "$1/$2"'


class PackageRun:
    """One host."""

    def __init__(self, state: Any, host: Any, rig: Rig) -> None:
        self.state, self.host, self.rig = state, host, rig
        self.shell = ReconnectingShell(host)
        self.jobs = rig.roots.jobs

    def run_package_job(self, unit: str, script: str, files: Sequence[LocalFile] = ()) -> bool:
        """Run a script that makes `done` in the job's folder as its last step; without a script, watch it."""
        test = f"[ -e {shlex.quote(self.done_path(unit))} ]"
        return run_job(self.state, self.host, unit, script, test, self.jobs, files=files)

    def done_path(self, unit: str) -> str:
        """What a job's script makes as its last step."""
        return f"{self.jobs}/{unit}/done"

    def is_job_active(self, unit: str) -> bool:
        """Whether a job runs, of an earlier run that was ended."""
        said = self.shell.run(f"systemctl is-active {shlex.quote(unit)}.service || true")[0]
        return said in ("active", "activating")

    def report_error(self, *lines: str) -> bool:
        """Say why this host fails."""
        for line in lines:
            logger.error(f"{self.host.print_prefix}{line}")
        return False

    def write_lines(self, folder: str, name: str, lines: Iterable[str]) -> None:
        """Write a file of a line each in a folder of ours."""
        script = f"set -- {shlex.quote(folder)} {shlex.quote(name)}; {WRITE}"
        self.shell.run(script, stdin="".join(f"{line}\n" for line in lines))

    def mark_packages(self, verb: str, names: list[str]) -> None:
        """Have apt hold packages, or release them."""
        if names:
            self.shell.run(f"{shlex.join(['apt-mark', verb, *names])} >/dev/null")


def fail_host_on_error(state: Any, host: Any, function: Any, rig: Rig, *arguments: Any) -> bool:
    """False fails this host, where an exception would show a traceback."""
    try:
        return bool(function(PackageRun(state, host, rig), *arguments))
    except (HostLost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False
