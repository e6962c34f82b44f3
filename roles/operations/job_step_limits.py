"""Run one step of a job and end it at its limits. Root runs this on the host, by the distribution's Python.

    supervisor.py UNIT MOST_KIB LEAST_FREE_KIB LOG_BYTES FOLDER... -- COMMAND...

COMMAND is the systemd-run that starts UNIT and waits for it. The step's output is passed on up to LOG_BYTES; the rest
is dropped. The step is ended as soon as FOLDERs and its own /tmp and /var/tmp take more than MOST_KIB, files that
it has removed and still has open among them, or their file systems have less than LEAST_FREE_KIB, or few files, left. A
limit that ended the step is the last line of output.
"""

from __future__ import annotations

import glob
import os
import selectors
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

LOOK = 0.2  # seconds between two looks at file systems
MEASURE = 2.0  # seconds between two looks at all files, at least
SHARE = 20  # such a look takes at most one part in so many of the time
PATIENCE = 60.0  # seconds for one look: with more files than that, the step has more than a build leaves
FILES = 10_000  # that a file system has to have left
PIECE = 1 << 16
CGROUPS = "/sys/fs/cgroup"
# Where systemd's private ones lie. The job has its own in place of them; process 1 sees the host's.
TEMPORARY = ("/proc/1/root/tmp", "/proc/1/root/var/tmp")
CAUSES = {
    "timeout": "it exceeded its unit's time limit (RuntimeMaxSec): see above for the step that does not end",
    "oom-kill": "it needed more memory than its unit may have (MemoryMax), or than the host has: free memory, or stop "
    "other services for the time of the build",
}


class TooManyFiles(Exception):
    """There are more files than can be looked at in PATIENCE."""


def temporary_folders(unit: str) -> list[str]:
    """The step's own /tmp and /var/tmp (systemd.exec(5), PrivateTmp=)."""
    pattern = f"systemd-private-*-{glob.escape(unit)}-*"
    found = []
    for folder in TEMPORARY:
        with suppress(OSError):
            found += [str(path) for path in Path(folder).glob(pattern) if is_private_folder(path)]
    return found


def is_private_folder(path: Path) -> bool:
    """Whether systemd made it: anybody can give a folder or a link such a name, but not to root."""
    there = path.lstat()
    return stat.S_ISDIR(there.st_mode) and there.st_uid == 0


def describe_shortage(folders: Sequence[str], least_kib: int) -> str:
    """Why the step has to end for the sake of the file systems that it writes to; empty where it has not."""
    for folder in folders:
        place = folder.removeprefix("/proc/1/root")
        try:
            there = os.statvfs(folder)
        except OSError:
            continue
        if there.f_bavail * there.f_frsize < least_kib << 10:
            return f"less than {least_kib >> 10} MiB are left where it writes ({place}): free space, then deploy again"
        if there.f_files and there.f_favail < FILES:
            return f"fewer than {FILES} files are left where it writes ({place}): remove files, then deploy again"
    return ""


def unit_processes(unit: str) -> list[str]:
    """Numbers of a unit's processes; none where it does not run, or the host has no cgroups."""
    asked = ["systemctl", "show", "--property=ControlGroup", "--value", unit]
    group = subprocess.run(asked, stdout=-1, stderr=-3, text=True).stdout.strip()
    found: list[str] = []
    for listed in Path(f"{CGROUPS}{group}").rglob("cgroup.procs") if group else ():
        with suppress(OSError):
            found += listed.read_text().split()
    return found


def list_entries(folder: str) -> list[Path]:
    """A folder's entries; none where the kernel does not list it."""
    try:
        return list(Path(folder).iterdir())
    except OSError:
        return []


def open_files(processes: Iterable[str]) -> Iterator[Path]:
    """Links of /proc to what processes have open or mapped, one for each descriptor and mapping.

    Each thread counts: it may have descriptors of its own (unshare(2), CLONE_FILES), and the first one of a process,
    for which /proc/PID stands, may have ended before the others. Mappings are the process's: any live thread lists
    them, by its own /proc/TID (task/TID has no map_files).
    """
    for process in processes:
        threads = list_entries(f"/proc/{process}/task")
        for thread in threads:
            yield from list_entries(f"{thread}/fd")
        yield from next(filter(None, (list_entries(f"/proc/{thread.name}/map_files") for thread in threads)), [])


def unlinked_kib(processes: Iterable[str], folders: Iterable[str], until: float) -> int:
    """KiB of files on the folders' file systems that processes have open, or mapped, and that no folder names.

    Args:
        processes: Their numbers.
        folders: Paths.
        until: Seconds of the monotonic clock, after which there is no more to be looked at.

    Raises:
        TooManyFiles: they have more files open than can be looked at until then.
    """
    devices, sizes = set(), {}
    for folder in folders:
        with suppress(OSError):
            devices.add(Path(folder).stat().st_dev)
    for path in open_files(processes):
        if time.monotonic() > until:
            raise TooManyFiles
        with suppress(OSError):
            there = path.stat()
            if stat.S_ISREG(there.st_mode) and not there.st_nlink and there.st_dev in devices:
                sizes[there.st_dev, there.st_ino] = there.st_blocks
    return sum(sizes.values()) // 2


def describe_excess(folders: Sequence[str], most_kib: int, unit: str) -> str:
    """Why the step has to end for what it has written; empty where it has not."""
    until = time.monotonic() + PATIENCE
    try:
        done = subprocess.run(
            ["du", "--summarize", "--total", "--block-size=1K", "--", *folders],
            stdout=-1,
            stderr=-3,
            timeout=PATIENCE,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
        used = int(done.stdout.split()[-2]) + unlinked_kib(unit_processes(unit), folders, until)
    except (subprocess.TimeoutExpired, TooManyFiles):
        return "it has written more files than can be counted in a minute"
    return f"it has written {used >> 10} MiB, and may write {most_kib >> 10}" if used > most_kib else ""


def end_unit(unit: str) -> None:
    """End the step, whatever it does."""
    subprocess.run(["systemctl", "kill", "--signal=KILL", unit], stderr=-3)
    subprocess.run(["systemctl", "stop", unit], stderr=-3)


def systemd_limit_hit(unit: str) -> str:
    """The limit by which systemd has ended a unit; it forgets the unit then."""
    asked = ["systemctl", "show", "--property=Result", "--value", unit]
    result = subprocess.run(asked, stdout=-1, text=True).stdout.strip()
    subprocess.run(["systemctl", "reset-failed", unit], stderr=-3)
    return CAUSES.get(result, "")


def watch_step(
    output: IO[bytes], unit: str, most_kib: int, least_kib: int, log_bytes: int, folders: Sequence[str]
) -> str:
    """Pass output on and watch limits until the command has ended; returns why the step was ended, if it was.

    Files are counted in a thread, so that neither output nor the looks at file systems wait for that.
    """
    out = sys.stdout.buffer
    why, left, measured = "", log_bytes, time.monotonic() + MEASURE
    looked, started = 0.0, 0.0
    measurement: Future[str] | None = None
    pool = ThreadPoolExecutor(1)
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        try:
            while True:
                if selector.select(LOOK):
                    piece = os.read(output.fileno(), PIECE)
                    if not piece:
                        return why
                    out.write(piece[: max(0, left)])
                    if left > 0 and len(piece) >= left:
                        out.write(f"\nlimit: it has printed {log_bytes >> 20} MiB; the rest is dropped\n".encode())
                    out.flush()
                    left -= len(piece)
                now = time.monotonic()
                if now < looked + LOOK:
                    continue
                looked = now
                if why:  # a unit that was not loaded yet has gone on
                    end_unit(unit)
                    continue
                places = [*folders, *temporary_folders(unit)]
                why = describe_shortage(places, least_kib)
                if measurement and measurement.done():
                    why = why or measurement.result()
                    measurement, measured = None, now + max(MEASURE, SHARE * (now - started))
                elif not measurement and now > measured:
                    measurement, started = pool.submit(describe_excess, places, most_kib, unit), now
                if why:
                    end_unit(unit)
        finally:
            pool.shutdown(wait=False)  # the unit may have to end first; Python waits for the thread as it exits


def main(words: list[str]) -> int:
    """Run the step; its status is this program's, and 1 where a limit ended it."""
    at = words.index("--")
    (unit, most_kib, least_kib, log_bytes, *folders), command = words[:at], words[at + 1 :]
    with subprocess.Popen(command, stdout=-1, stderr=-2) as running:
        try:
            why = watch_step(
                cast("IO[bytes]", running.stdout), unit, int(most_kib), int(least_kib), int(log_bytes), folders
            )
        except BaseException:
            end_unit(unit)
            raise
    found = systemd_limit_hit(unit)
    why = why or found
    if why:
        sys.stdout.write(f"limit: {unit} was ended: {why}\n")
    return 1 if why else running.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
