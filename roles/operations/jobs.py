"""Long work as a transient systemd unit on the host: it outlives the connection, and a second run re-attaches."""

from __future__ import annotations

import re
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import gevent
from pyinfra import host, logger
from pyinfra.api import FunctionCommand, StringCommand, operation

from rigwright.host import script_output
from rigwright.host.script_output import (
    HostOutput,
    file_name,
    free_text,
    number,
    optional,
    text,
    tolerant,
    word,
    yes_or_no,
)
from rigwright.model import api_keys
from rigwright.model.secret_sources import SecretSource
from rigwright.problems import format_count
from rigwright.supply.bundle import LocalFile
from roles.download_progress import parse_progress_document, report_files
from roles.operations.facts import ChannelFact
from roles.operations.reconnecting_shell import HostLost, ReconnectingShell
from roles.progress import progress

POLL = 0.5  # seconds between looks at a job
LOG_LINES = 30  # of a failed job, shown to the operator
# Seconds that one that has ended has to be gone, with an engine that is bound to it (`rigwright.serving.standby.MOST`,
# and its 30 to stop): 60 of silence are a lost connection
LEAVING = 50
NINJA = re.compile(r"^\[([0-9]{1,9})/([0-9]{1,9})\]", re.MULTILINE)
# apt's APT::Status-Fd: its subject, percent of all downloads (dl) or of all installations (pm), words
APT = re.compile(r"^(dl|pm)status:[^\n]{1,200}?:([0-9]{1,3})(?:\.[0-9]+)?:", re.MULTILINE)
# apt, of each file by itself
FETCH_FAILURE = re.compile(r"[EW]: Failed to fetch ")
# Lines of a log that are not for people
STATUS = re.compile(r"==> |(dl|pm)status:")


HOLDS: script_output.Schema = {"holds": (yes_or_no,)}
LISTED: script_output.Schema = {"there": (tolerant(file_name), number)}
STATE: script_output.Schema = {
    "active": (word,),
    "size": (optional(number, 0),),
    "files": (parse_progress_document,),
    "log": (text,),
}
"""The output of templates/look/holds.sh.j2, sent.sh.j2 and job.sh.j2."""


class JobDoneFact(ChannelFact[bool]):
    """Whether a job's result is there: a test command succeeds."""

    default = bool

    def command(self, test: str) -> StringCommand:
        """templates/look/holds.sh.j2."""
        return self.render_command("look/holds.sh.j2", test=test)

    def read(self, output: list[str]) -> bool:
        """Read its verdict."""
        return bool(script_output.parse_output(output, HOLDS).one("holds"))


@operation()
def ensure_job(
    unit: str,
    script: str,
    test: str,
    folder: str,
    watch: str = "",
    files: Sequence[LocalFile] = (),
    present: str = "",
    secrets: Mapping[str, SecretSource] = MappingProxyType({}),
) -> Generator[FunctionCommand, None, None]:
    """Run a script as a transient unit until a test succeeds, showing how far it is.

    A unit that is already running is watched, not started again. The script must put its result in place as its
    last step, in one step: after an earlier end, the next run starts it anew.

    + unit: name of the transient unit, without `.service`; names the work, so two runs agree on it
    + script: shell script, run as root
    + test: shell condition that holds once the result is there
    + folder: where script and log are kept on the host
    + watch: a file that grows as `size path` (bytes), when progress is a download, or `files path` for the progress
      file of a download of many files, which `roles.download_progress.report_files` describes
    + files: the contents of `FOLDER/UNIT/files`, sent before it starts; it takes them away itself
    + present: shell condition under which they are not sent
    + secrets: a systemd credential's name -> the file or command on the operator's machine whose only line it is

    **Example:**

    .. code:: python

        ensure_job(name="Fetch", unit="rw-job-x", script="curl", test="[ -e /srv/x ]", folder="/var/lib/rigwright/jobs")
    """
    if host.get_fact(JobDoneFact, test=test):
        host.noop(f"{unit} is done")
        return
    yield FunctionCommand(run_job, (unit, script, test, folder, watch, files, present, secrets), {})


def sent_files_folder(folder: str, unit: str) -> str:
    """Where a job finds the files that it was sent."""
    return f"{folder}/{unit}/files"


def run_job(
    state: Any,
    host: Any,
    unit: str,
    script: str,
    test: str,
    folder: str,
    watch: str = "",
    files: Sequence[LocalFile] = (),
    present: str = "",
    secrets: Mapping[str, SecretSource] = MappingProxyType({}),
) -> bool:
    """Start or re-attach, and watch to the end; False fails this host, where an exception would show a traceback."""
    folder = f"{folder}/{unit}"
    watcher = _JobWatcher(host, unit, folder, watch)
    try:
        if watcher.read_progress().one("active") in ("active", "activating"):
            logger.info(f"{host.print_prefix}{unit} is already running: watching it")
            watcher.begun = True
        else:
            if watcher.needs_files(files, present):
                watcher.send_files(files)
            watcher.start_unit(script, {name: api_keys.load_api_key(source) for name, source in secrets.items()})
        succeeded = watcher.watch_to_end(test)
    except (LocalFileMismatch, ValueError) as error:  # the latter: a secret's file is gone
        logger.error(f"{host.print_prefix}{error}")
        return False
    except HostLost as error:
        then = (
            "the job continues on the host: run it again to watch it" if watcher.begun else "run it again to continue"
        )
        logger.error(f"{host.print_prefix}{error}; {then}")
        return False
    if succeeded:
        for line in watcher.shell.run(f"grep '^note: ' {shlex.quote(f'{folder}/log')} || true"):
            logger.warning(f"{host.print_prefix}{free_text(line.removeprefix('note: '))}")
    else:
        log = watcher.shell.run(f"grep -vaE '^(dl|pm)status:' {shlex.quote(f'{folder}/log')} | tail -n {LOG_LINES}")
        logger.error(f"{host.print_prefix}{unit} failed; the end of {folder}/log:")
        for line in fold_fetch_failures(log):
            logger.error(f"{host.print_prefix}  {free_text(line)}")
    return succeeded


def fold_fetch_failures(log: Sequence[str]) -> Iterator[str]:
    """A log with one line for consecutive files that apt did not fetch: they have one cause."""
    for is_failure, lines in groupby(log, lambda line: bool(FETCH_FAILURE.match(line))):
        first, *rest = lines
        if is_failure and rest:
            yield first
            yield f"({format_count(len(rest), 'more file')} not fetched)"
        else:
            yield from (first, *rest)


def _report_sent_bytes(task: Any, before: int, total: int, there: int) -> None:
    task.report_done(before + there, total, "bytes")


class LocalFileMismatch(Exception):
    """A file of this machine is not what the host is to have."""


class _JobWatcher:
    """One job on one host."""

    def __init__(self, target: Any, unit: str, folder: str, watch: str) -> None:
        self.host, self.unit, self.folder, self.watch = target, unit, folder, watch
        self.shell = ReconnectingShell(target)
        self.begun = False
        """Whether the job runs, as far as is known."""

    def read_progress(self) -> HostOutput:
        """How far it is; systemd's ActiveState is `inactive` also for a unit that does not exist (any more)."""
        size, _, grown = self.watch.partition(" ")
        values = {"grown": grown if size != "files" else "", "document": grown if size == "files" else ""}
        return self.shell.read_facts("look/job.sh.j2", STATE, unit=self.unit, log=f"{self.folder}/log", **values)

    def is_condition_met(self, test: str) -> bool:
        """Whether a condition of the host's holds."""
        return bool(self.shell.read_facts("look/holds.sh.j2", HOLDS, test=test).one("holds"))

    def needs_files(self, files: Sequence[LocalFile], present: str) -> bool:
        """Whether the host needs files to be sent; files that an earlier run has sent for nothing are taken away."""
        if files and not (present and self.is_condition_met(present)):
            return True
        self.shell.run(f"rm -rf {shlex.quote(f'{self.folder}/files')}")
        return False

    def send_files(self, files: Sequence[LocalFile]) -> None:
        """Bring files that are not there yet, or not whole.

        Raises:
            LocalFileMismatch: one of them is not what it is to be, on this machine.
        """
        folder, total, done = f"{self.folder}/files", sum(file.size for file in files), 0
        # apt reads them as a user of its own, whatever the login's umask is
        there = dict(self.shell.read_facts("look/sent.sh.j2", LISTED, folder=folder).many("there"))
        with progress.task(self.host.name, f"sending {format_count(len(files), 'file')}") as task:
            for file in files:
                if there.get(file.name) != file.size:
                    # in a thread: the deploy lock needs its signs of life while a large file is read
                    if wrong := gevent.get_hub().threadpool.apply(file.refusal):
                        raise LocalFileMismatch(wrong)
                    report = partial(_report_sent_bytes, task, done, total)
                    self.shell.append_file(file.path, f"{folder}/{file.name}", report)
                done += file.size
                task.report_done(done, total, "bytes")

    def start_unit(self, script: str, secrets: Mapping[str, str]) -> None:
        """Write the script and start the unit; one that failed before makes room.

        systemd copies a secret to where only the unit reads it, before the unit begins; ours is on no disk, and goes.
        """
        paths = {name: f"/run/{self.unit}.{name}" for name in secrets}
        # one command: a connection that breaks leaves none of them behind
        read = "".join(f"read -r value && printf '%s\\n' \"$value\" > {shlex.quote(path)}; " for path in paths.values())
        trap = shlex.quote(f"rm -f {shlex.join(paths.values())}")
        taken = f"umask 077; trap {trap} EXIT; {read}" if paths else ""
        log, script_at, folder = f"{self.folder}/log", f"{self.folder}/script", shlex.quote(self.folder)
        words = (
            *("systemd-run", "--quiet", f"--unit={self.unit}", "--service-type=exec", "--nice=5"),
            *(f"--property=StandardOutput=append:{log}", f"--property=StandardError=append:{log}"),
            *("--property=PrivateTmp=yes", *(f"--property=LoadCredential={name}:{at}" for name, at in paths.items())),
            *("--setenv=HOME=/root", "--setenv=LC_ALL=C.UTF-8", "/bin/sh", script_at),
        )
        self.shell.run(f"mkdir -p {folder} && umask 077 && cat > {shlex.quote(script_at)}", stdin=script)
        service = shlex.quote(f"{self.unit}.service")
        # one that was killed is loaded until the last of its processes has gone, and with units that are bound to it
        gone = (
            f"until=$(($(date +%s) + {LEAVING})); "
            f"while systemctl reset-failed {service} $(systemctl show --property=BoundBy --value {service}) "
            "2>/dev/null; "
            f'[ "$(systemctl show --property=LoadState --value {service})" = loaded ] && [ "$(date +%s)" -lt $until ]; '
            "do sleep 0.1; done; "
        )
        self.shell.run(
            f"{taken}{gone}: > {shlex.quote(log)}; {shlex.join(words)}",
            stdin="".join(f"{value}\n" for value in secrets.values()) if secrets else None,
        )
        self.begun = True

    def watch_to_end(self, test: str) -> bool:
        """Watch until the unit ends; whether it has not failed, and its result is there."""
        with progress.task(self.host.name, self.unit.removeprefix("rw-job-"), detached=True) as task:
            while True:
                told = self.read_progress()
                self._report(task, told.one("size"), told.one("log").splitlines())
                for shown in filter(None, told.all("files")):
                    report_files(task, shown)
                if told.one("active") in ("inactive", "failed"):
                    break
                gevent.sleep(POLL)
            if told.one("active") == "inactive" and task.unit == "bytes":
                task.report_done(task.total, task.total, "bytes")
        # its result may be there from before: systemd keeps a unit that has failed, and forgets one that has not
        return told.one("active") == "inactive" and self.is_condition_met(test)

    def _report(self, task: Any, size: int, log: list[str]) -> None:
        begins = [number for number, line in enumerate(log) if line.startswith("==> ")]
        steps = [log[number].removeprefix("==> ") for number in begins]
        # counts of an earlier step are not this one's
        since = "\n".join(log[begins[-1] :] if begins else log)
        built, percent = NINJA.findall(since), APT.findall(since)
        if steps:
            task.start_step(free_text(steps[-1]))
        task.last = next((free_text(line) for line in reversed(log) if line.strip() and not STATUS.match(line)), "")
        if percent:
            phase, done = percent[-1]
            # apt counts to 100 twice: for what it downloads, and for what it installs
            task.report_done((number(done) + (100 if phase == "pm" else 0)) // 2, 100, "%")
        elif built:
            task.report_done(number(built[-1][0]), number(built[-1][1]), "steps")
        elif self.watch and size:
            task.report_done(size, int(self.watch.partition(" ")[0]), "bytes")
