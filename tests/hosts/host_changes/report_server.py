"""Reports of `check --json`, one after another: each from a fork of a process that has imported all of it.

The imports take four fifths of a report's processor time, and a run needs hundreds of reports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from functools import cached_property
from pathlib import Path

from rigwright.project_root import ROOT
from tests.hosts.host_changes.report_findings import FINGERPRINT

LIMIT = 120
"""Seconds of a report: an unreachable host is given up earlier."""
SECTIONS = ("fingerprint", "host_summary")
"""Sections of the survey that checks of the fingerprint read, and the report itself."""
LENGTH = 8
"""Bytes of the number before a report."""


class ReportMissing(Exception):
    """`check` prints no report."""


class ReportServer:
    """The server's process, and reports from it."""

    def __init__(self, inventory: Path, *, whole: bool) -> None:
        """Keep what to report.

        Args:
            inventory: The inventory of the host.
            whole: Whether all checks report, not those of the fingerprint alone.
        """
        self.words = [str(inventory), "whole" if whole else "fingerprint"]

    @cached_property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, once it is needed."""
        command = [sys.executable, "-m", __name__, *self.words]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def print_report(self) -> str:
        """A report.

        Raises:
            ReportMissing: there is none; its text is what was printed instead.
        """
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        length = int(self.process.stdout.read(LENGTH) or b"0")
        text = self.process.stdout.read(length).decode(errors="replace")
        if not text.startswith("{"):
            raise ReportMissing(text[-1000:] or f"no report in {LIMIT} s")
        return text

    def close(self) -> None:
        """End the process."""
        if "process" in vars(self):
            self.process.communicate()


def main(inventory: str, extent: str) -> None:
    """Print a report for each line of standard input, each after its length."""
    from cli import import_speedups

    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (as `cli.check` imports it: before anything else of it)

    import pytest  # noqa: F401
    from click import ClickException

    import checks.conftest
    import checks.pytest_frame  # noqa: F401
    from checks.check_catalogue import list_checks
    from checks.runner import run_checks

    options = ["--json"]
    if extent == "fingerprint":
        _read_fingerprint_alone()
        options.append(f"--only={','.join(sorted({one.id for one in list_checks() if one.id[0] == FINGERPRINT}))}")
    output = os.dup(sys.stdout.fileno())
    for _ in sys.stdin:
        with tempfile.TemporaryFile() as file:
            if not (child := os.fork()):
                signal.alarm(LIMIT)
                os.dup2(file.fileno(), sys.stdout.fileno())
                try:
                    run_checks(inventory, *options)
                except ClickException as error:
                    print(error.message)
                finally:
                    sys.stdout.flush()
                    os._exit(0)
            os.waitpid(child, 0)
            file.seek(0)
            text = file.read()
        os.write(output, f"{len(text):0{LENGTH}}".encode())
        while text:
            text = text[os.write(output, text) :]


def _read_fingerprint_alone() -> None:
    """Have hosts answer those sections of the survey alone that the fingerprint's checks read."""
    from checks.survey import collection
    from checks.survey.section import Phase, Section
    from checks.survey.sections import list_sections

    def list_read_sections(*phases: Phase) -> tuple[Section[object], ...]:
        return tuple(section for section in list_sections(*phases) if section.name in SECTIONS)

    collection.list_sections = list_read_sections  # type: ignore[assignment]


if __name__ == "__main__":
    main(*sys.argv[1:])
