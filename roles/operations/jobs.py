"""Long work as a transient systemd unit on the host: it outlives the connection, and a second run re-attaches."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import gevent
from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation

from rigwright.declaration import keys
from rigwright.supply.bundle import LocalFile
from roles.operations.shell import Lost, Shell
from roles.progress import Files, progress

POLL = 0.5  # seconds between looks at a job
LOG_LINES = 30  # of a failed job, shown to the operator
NINJA = re.compile(r"^\[(\d+)/(\d+)\]", re.MULTILINE)


class Done(FactBase[bool]):
    """Whether a job's result is there: a test command succeeds."""

    default = bool

    def command(self, test: str) -> StringCommand:
        """Run the test."""
        return StringCommand("sh", "-c", QuoteString(f"if {test}; then echo done; else echo open; fi"))

    def process(self, output: list[str]) -> bool:
        """Read its verdict."""
        return output == ["done"]


@operation()
def job(
    unit: str,
    script: str,
    test: str,
    folder: str,
    watch: str = "",
    files: Sequence[LocalFile] = (),
    present: str = "",
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> Generator[FunctionCommand, None, None]:
    """Run a script as a transient unit until a test succeeds, showing how far it is.

    A unit that is already running is watched, not started again. The script must put its result in place as its
    last step, in one step: whatever ends it earlier, the next run starts it anew.

    + unit: name of the transient unit, without `.service`; names the work, so two runs agree on it
    + script: shell script, run as root
    + test: shell condition that holds once the result is there
    + folder: where script and log are kept on the host
    + watch: a file that grows as `size path` (bytes), when progress is a download, or `files path` for the progress
      file of a download of many files, which `roles.progress.Files` describes
    + files: what the script finds in `FOLDER/UNIT/files`, sent before it starts; it takes them away itself
    + present: shell condition under which they are not sent
    + secrets: a systemd credential's name -> the file on the operator's machine whose only line it is

    **Example:**

    .. code:: python

        job(name="Fetch", unit="rw-job-x", script="curl ...", test="[ -e /srv/x ]", folder="/var/lib/rigwright/jobs")
    """
    if host.get_fact(Done, test=test):
        host.noop(f"{unit} has done its work")
        return
    yield FunctionCommand(run_job, (unit, script, test, folder, watch, files, present, secrets), {})


def sent(folder: str, unit: str) -> str:
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
    secrets: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Start or re-attach, and watch to the end; False fails this host, where an exception would show a traceback."""
    folder = f"{folder}/{unit}"
    watcher = _Watcher(host, unit, folder, watch)
    try:
        if watcher.state() in ("active", "activating"):
            logger.info(f"{host.print_prefix}{unit} is already running: watching it")
            watcher.begun = True
        else:
            if watcher.lacks(files, present):
                watcher.send(files)
            watcher.start(script, {name: keys.read(path) for name, path in secrets.items()})
        succeeded = watcher.follow(test)
    except (Unfit, ValueError) as error:  # the latter: a secret's file is gone
        logger.error(f"{host.print_prefix}{error}")
        return False
    except Lost as error:
        then = "the job goes on there: run again to watch it" if watcher.begun else "run again to go on from here"
        logger.error(f"{host.print_prefix}{error}; {then}")
        return False
    if succeeded:
        for line in watcher.shell.run(f"grep '^note: ' {folder}/log || true"):
            logger.warning(f"{host.print_prefix}{line.removeprefix('note: ')}")
    else:
        log = watcher.shell.run(f"tail -n {LOG_LINES} {folder}/log")
        logger.error(f"{host.print_prefix}{unit} failed; the end of {folder}/log:")
        for line in log:
            logger.error(f"{host.print_prefix}  {line}")
    return succeeded


def _add(task: Any, before: int, total: int, there: int) -> None:
    task.at(before + there, total, "bytes")


class Unfit(Exception):
    """A file of this machine is not what the host is to have."""


class _Watcher:
    """One job on one host."""

    def __init__(self, target: Any, unit: str, folder: str, watch: str) -> None:
        self.host, self.unit, self.folder, self.watch = target, unit, folder, watch
        self.shell = Shell(target)
        self.begun = False
        """Whether the job runs, as far as is known."""

    def state(self) -> str:
        """systemd's ActiveState; `inactive` also for a unit that does not exist (any more)."""
        return self.shell.run(f"systemctl show --property=ActiveState --value {self.unit}.service")[0]

    def lacks(self, files: Sequence[LocalFile], present: str) -> bool:
        """Whether the host needs files to be sent; what an earlier run has sent for nothing is taken away."""
        if files and not (present and self.shell.run(f"if {present}; then echo yes; fi")):
            return True
        self.shell.run(f"rm -rf {self.folder}/files")
        return False

    def send(self, files: Sequence[LocalFile]) -> None:
        """Bring files that are not there yet, or not whole.

        Raises:
            Unfit: one of them is not what it is to be, on this machine.
        """
        folder, total, done = f"{self.folder}/files", sum(file.size for file in files), 0
        # apt reads them as a user of its own, whatever the login's umask is
        listed = self.shell.run(f"umask 022 && mkdir -p {folder} && cd {folder} && stat -c '%n %s' * || true")
        there = dict(line.rsplit(" ", 1) for line in listed)
        with progress.task(self.host.name, f"sending {len(files)} files") as task:
            for file in files:
                if int(there.get(file.name, -1)) != file.size:
                    # in a thread: the lease needs its signs of life while a large file is read
                    if wrong := gevent.get_hub().threadpool.apply(file.refusal):
                        raise Unfit(wrong)
                    report = partial(_add, task, done, total)
                    self.shell.append(file.path, f"{folder}/{file.name}", report)
                done += file.size
                task.at(done, total, "bytes")

    def start(self, script: str, secrets: Mapping[str, str]) -> None:
        """Write the script and start the unit; one that failed before makes room.

        systemd copies a secret to where only the unit reads it, before the unit begins; ours is on no disk, and goes.
        """
        paths = {name: f"/run/{self.unit}.{name}" for name in secrets}
        # one command: a connection that breaks leaves none of them behind
        taken = "".join(f"read -r value && printf '%s\\n' \"$value\" > {path}; " for path in paths.values())
        if taken:
            taken = f"umask 077; trap 'rm -f {' '.join(paths.values())}' EXIT; {taken}"
        given = "".join(f"--property=LoadCredential={name}:{path} " for name, path in paths.items())
        self.shell.run(f"mkdir -p {self.folder} && umask 077 && cat > {self.folder}/script", stdin=script)
        self.shell.run(
            f"{taken}systemctl reset-failed {self.unit}.service 2>/dev/null; : > {self.folder}/log; "
            f"systemd-run --quiet --unit={self.unit} --service-type=exec --nice=5 "
            f"--property=StandardOutput=append:{self.folder}/log --property=StandardError=append:{self.folder}/log "
            f"--property=PrivateTmp=yes {given}--setenv=HOME=/root --setenv=LC_ALL=C.UTF-8 "
            f"/bin/sh {self.folder}/script",
            stdin="".join(f"{value}\n" for value in secrets.values()) if secrets else None,
        )
        self.begun = True

    def follow(self, test: str) -> bool:
        """Watch until the unit ends; whether it has not failed, and its result is there."""
        size, _, grown = self.watch.partition(" ")
        listed = size == "files"
        look = (
            f"echo $(systemctl show --property=ActiveState --value {self.unit}.service) "
            f"$(stat -c %s {grown or '/dev/null'} 2>/dev/null || echo 0); "
            f"printf 'files '; cat {grown if listed else '/dev/null'} 2>/dev/null; echo; tail -c 3000 {self.folder}/log"
        )
        with progress.task(self.host.name, self.unit) as task, Files(task) as files:
            while True:
                first, document, *log = self.shell.run(look)
                active, _, there = first.rpartition(" ")
                self._report(task, 0 if listed else int(there), log)
                if text := document.removeprefix("files "):
                    files.show(json.loads(text))
                if active in ("inactive", "failed"):
                    break
                gevent.sleep(POLL)
        # its result may be there from before: systemd keeps a unit that has failed, and forgets one that has not
        return active == "inactive" and self.shell.run(f"if {test}; then echo done; else echo open; fi") == ["done"]

    def _report(self, task: Any, size: int, log: list[str]) -> None:
        steps = [line.removeprefix("==> ") for line in log if line.startswith("==> ")]
        built = NINJA.findall("\n".join(log))
        if steps:
            task.label(steps[-1])
        if built:
            task.at(int(built[-1][0]), int(built[-1][1]), "steps")
        elif self.watch and size:
            task.at(size, int(self.watch.partition(" ")[0]), "bytes")
