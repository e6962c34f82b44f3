"""A host in the middle of a run, on which packages are brought: its shell, its jobs, and what the operator is told."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from pyinfra import logger

from rigwright.model.rig import Rig
from rigwright.supply.bundle import LocalFile
from roles.operations.jobs import run_job
from roles.operations.shell import Lost, Shell

WRITE = 'mkdir -p "$1" && cat > "$1/$2.new" && sync -d "$1/$2.new" && mv "$1/$2.new" "$1/$2"'


class Working:
    """One host."""

    def __init__(self, state: Any, host: Any, rig: Rig) -> None:
        self.state, self.host, self.rig = state, host, rig
        self.shell = Shell(host)
        self.jobs = rig.jobs

    def job(self, unit: str, script: str, files: Sequence[LocalFile] = ()) -> bool:
        """Run a script that makes `done` in the job's folder as its last step; without a script, watch it."""
        test = f"[ -e {shlex.quote(self.done(unit))} ]"
        return run_job(self.state, self.host, unit, script, test, self.jobs, files=files)

    def done(self, unit: str) -> str:
        """What a job's script makes as its last step."""
        return f"{self.jobs}/{unit}/done"

    def active(self, unit: str) -> bool:
        """Whether a job runs, of an earlier run that was ended."""
        said = self.shell.run(f"systemctl is-active {shlex.quote(unit)}.service || true")[0]
        return said in ("active", "activating")

    def error(self, *lines: str) -> bool:
        """Say why this host fails."""
        for line in lines:
            logger.error(f"{self.host.print_prefix}{line}")
        return False

    def write(self, folder: str, name: str, lines: Iterable[str]) -> None:
        """Write a file of a line each in a folder of ours."""
        script = f"set -- {shlex.quote(folder)} {shlex.quote(name)}; {WRITE}"
        self.shell.run(script, stdin="".join(f"{line}\n" for line in lines))

    def mark(self, verb: str, names: list[str]) -> None:
        """Have apt hold packages, or release them."""
        if names:
            self.shell.run(f"{shlex.join(['apt-mark', verb, *names])} >/dev/null")


def guarded(state: Any, host: Any, function: Any, rig: Rig, *arguments: Any) -> bool:
    """False fails this host, where an exception would show a traceback."""
    try:
        return bool(function(Working(state, host, rig), *arguments))
    except (Lost, ValueError) as error:  # the latter: a host that answers what it cannot mean
        logger.error(f"{host.print_prefix}{error}; run it again to continue")
        return False
