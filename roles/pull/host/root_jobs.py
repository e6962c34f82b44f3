"""Programs that a pull starts, and jobs of root: each ends at its limits, for the deploy lock is held meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress

from .settings import read_bounded, write_whole

TYPE_CHECKING = False  # as in settings.py
if TYPE_CHECKING:
    from .settings import PullSettings

PROGRAM_S = 600.0  # seconds for a program that answers, such as systemctl or a test of files
ENDED = 124  # exit status, as that of timeout
POLL_S = 1.0  # seconds between two looks at a job
SILENCE_S = 1800.0  # seconds without a byte of a download: a disk may take that long to verify a large file
LEAST_RATE = 1 << 20  # bytes a second, over the whole sizes of files that are incomplete at the beginning
SLACK_S = 1800.0  # seconds for all that is no byte of a download
MOST_DOCUMENT = 8 << 20  # bytes of a download's own progress
FOR_PEER = "waiting for peer"  # a file's state in that progress, as roles/weights/host/progress.py has it
PEER_S = 86400.0  # seconds in which such a wait is progress: those of `peer` in roles/weights/host/spec.py
STATE_S = 60.0  # seconds for a state that is unreadable, as while systemd executes itself again
UP = ("active", "activating", "deactivating", "reloading")
DOWN = ("inactive", "failed")


class JobStopped(Exception):
    """A job that was stopped at one of its limits; the text has the limit."""


class StateUnreadable(Exception):
    """A unit of unknown state: it may run, and may have ended; the next pull looks again."""


class JobLimits:
    """Seconds that a job may be silent, and seconds for all of it."""

    def __init__(self, silence: float, whole: float, document: str = "") -> None:
        """Set the limits.

        Args:
            silence: Seconds without progress.
            whole: Seconds for the job, without those for bytes of a download.
            document: The file with the progress of a download; empty where the job's log shows it.
        """
        self.silence, self.whole, self.document = silence, whole, document


def download_limits(settings: PullSettings) -> JobLimits:
    """The limits of the job that fetches weights."""
    return JobLimits(SILENCE_S, SLACK_S, settings.download_progress)


class _JobProgress:
    """The progress of a job, as far as it was seen."""

    def __init__(self, limits: JobLimits, log: str) -> None:
        self.limits, self.log = limits, log
        self.began = self.moved = time.monotonic()
        self.done, self.total = -1, 0
        self.updated: object = None
        self.waited = 0.0
        self.looked = self.began

    def find_excess(self) -> str:
        """The limit that the job has exceeded; empty for none."""
        now, limits = time.monotonic(), self.limits
        done = self._read_bytes() if limits.document else self._read_size()
        if done != self.done:
            self.done, self.moved = done, now
        whole = limits.whole + self.waited + self.total / LEAST_RATE
        if now - self.moved > limits.silence:
            unit = "byte came" if limits.document else "line was written"
            return f"no {unit} within {_spell_seconds(limits.silence)}{self._describe()}"
        if now - self.began > whole:
            return f"not complete within {_spell_seconds(whole)}{self._describe()}"
        return ""

    def _describe(self) -> str:
        return f" ({self.done} of {self.total} bytes)" if self.total else ""

    def _read_size(self) -> int:
        with suppress(OSError):
            return os.stat(self.log).st_size
        return self.done

    def _read_bytes(self) -> int:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            table = json.loads(read_bounded(self.limits.document, MOST_DOCUMENT) or b"")
            done, total = int(table["done"]), int(table["total"])
            # a file that fails leaves the total
            self.total = max(self.total, total)
            self._count_wait(table["updated"], [row["state"] for row in table["files"]])
            return done
        return self.done

    def _count_wait(self, updated: object, states: list[object]) -> None:
        """Count a wait for a peer as progress while the job writes; its clock may be set, so that any change counts."""
        if updated == self.updated:
            return
        now = time.monotonic()
        if FOR_PEER in states and self.updated is not None and self.waited < PEER_S:
            self.waited += now - self.looked
            self.moved = now
        self.updated, self.looked = updated, now


def _spell_seconds(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"


def run_program(*words: str, limit: float = PROGRAM_S) -> tuple[int, str]:
    """Run a program; returns its exit status and its output.

    Args:
        words: The program and its arguments.
        limit: Seconds after which it is ended.
    """
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return ENDED, f"{words[0]} has not ended within {limit:.0f} s"
    return done.returncode, done.stdout.decode(errors="replace")


def run_root_job(
    settings: PullSettings, unit: str, script: str, argument: str = "", *, limits: JobLimits
) -> tuple[bool, str]:
    """Run a script as the transient unit in which a deploy runs it; returns its success and the end of its log.

    A unit that runs already, of a pull that was ended, is watched.

    Raises:
        JobStopped: it exceeds a limit.
        StateUnreadable: systemd does not start it, or does not say whether it runs.
    """
    folder = f"{settings.jobs}/{unit}"
    log = f"{folder}/log"
    if not is_up(f"{unit}.service"):
        os.makedirs(folder, 0o755, exist_ok=True)
        write_whole(f"{folder}/script", script, 0o600)
        write_whole(log, "")
        run_program("systemctl", "reset-failed", f"{unit}.service")
        status, complaint = run_program(
            *("systemd-run", "--quiet", f"--unit={unit}", "--service-type=exec", "--nice=5"),
            *(f"--property=StandardOutput=append:{log}", f"--property=StandardError=append:{log}"),
            *("--property=PrivateTmp=yes", "--setenv=HOME=/root", "--setenv=LC_ALL=C.UTF-8"),
            *("/bin/sh", f"{folder}/script", *([argument] if argument else [])),
        )
        if status:
            raise StateUnreadable(f"systemd has not started {unit}: {complaint.strip()[:300]}")
    wait_for_job(settings, unit, limits)
    with open(log, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file.read(1 << 20).splitlines() if line.strip()]
    # systemd keeps a transient unit that has failed, and forgets one that has not
    return _read_state(f"{unit}.service") != "failed", (lines[-1] if lines else "it failed without a message")[:400]


def wait_for_job(settings: PullSettings, unit: str, limits: JobLimits) -> None:
    """Wait until a job ends, and stop it at its limits.

    Raises:
        JobStopped: it exceeds a limit.
        StateUnreadable: systemd does not say whether it runs.
    """
    progress = _JobProgress(limits, f"{settings.jobs}/{unit}/log")
    while is_up(f"{unit}.service"):
        if text := progress.find_excess():
            run_program("systemctl", "stop", f"{unit}.service")
            raise JobStopped(text)
        time.sleep(POLL_S)


def is_up(unit: str) -> bool:
    """Whether a unit is neither inactive nor failed: `systemctl is-active` counts no unit that starts or ends.

    Raises:
        StateUnreadable: systemd does not say.
    """
    return _read_state(unit) in UP


def _read_state(unit: str) -> str:
    """The state of a unit, one of UP and DOWN; where systemctl prints another text, it is asked again."""
    until = time.monotonic() + STATE_S
    while True:
        text = run_program("systemctl", "show", "--property=ActiveState", "--value", "--", unit)[1].strip()
        if text in UP + DOWN:
            return text
        if time.monotonic() >= until:
            raise StateUnreadable(f"the state of {unit} is unknown: {text[:300]}")
        time.sleep(POLL_S)
