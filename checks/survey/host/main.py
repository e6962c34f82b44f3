"""The survey's program: runs each section in a process of its own, all at once, and prints what they found.

Run by checks/survey/survey_program.py, which appends a call of `main`.
"""

from __future__ import annotations

import base64
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import types
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

PACKAGE = "checks.survey.host"
MARK = "rigwright-probe:"  # before what a probe has found: a login may print lines of its own
WAITING = "rigwright-waiting:"  # before names of sections that have not answered yet
SOON = 1.0  # seconds in which they usually have
READ_EVERY = 1.0  # seconds between two lines of how many bytes sections have read
LATE = "it took too long"


def load(name: str, source: str) -> types.ModuleType:
    """Make a module of its source, under the name that it is imported by."""
    full = f"{PACKAGE}.{name}"
    module = types.ModuleType(full)
    sys.modules[full] = module
    setattr(sys.modules[PACKAGE], name, module)
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 (our own source)
    return module


def packages() -> None:
    """Have the packages that modules are imported from."""
    parts = PACKAGE.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
        if end > 1:
            setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], sys.modules[name])


def run_section(name: str, source: str, question: object) -> dict[str, object]:
    """The answer of a section; the reason where it has none."""
    began = time.monotonic()
    try:
        answer = {"told": load(name, source).look(question)}
    except BaseException as error:
        place: Any = error.__traceback__
        while place.tb_next:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename} line {place.tb_lineno}"
        answer = {"failed": f"{type(error).__name__}: {error} ({where})"}
    return {**answer, "took": round(time.monotonic() - began, 4)}


def started(name: str, source: str, question: object) -> tuple[int, int]:
    """Start a section; returns its process, the first of a group of its own, and where its answer comes from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        with suppress(OSError):  # it has done so itself
            os.setpgid(pid, pid)
        return pid, reading
    try:
        os.setpgid(0, 0)
        os.close(reading)
        # a process that waits for a disk or a driver that hangs must not keep the connection open, which ends with its
        # last user
        nothing = os.open("/dev/null", os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        # names that are no text have their author's spelling, and the answer goes on without them
        said = json.dumps(run_section(name, source, question), ensure_ascii=False)
        left = memoryview(said.encode(errors="replace"))
        while left:
            left = left[os.write(writing, left) :]
    finally:
        os._exit(0)


def parse_section_answer(said: bytes) -> dict[str, object]:
    """The output of a section, unless it was ended before."""
    try:
        found: dict[str, object] = json.loads(said)
    except ValueError:
        return {"failed": "it died"}
    return found


def silent() -> list[str]:
    """The object that a section most likely has waited for, where a file system does not answer."""
    heard = sys.modules[f"{PACKAGE}.fs_responsiveness"]
    found: list[str] = heard.silent(heard.mounted(), 1.0)
    return found


def tell(found: object, mark: str = "") -> None:
    """Print a line, packed."""
    sys.stdout.write(mark + base64.b64encode(zlib.compress(json.dumps(found).encode(), 1)).decode() + "\n")
    sys.stdout.flush()


def count_read_bytes(processes: Iterable[int], known: dict[int, int]) -> int:
    """Bytes that processes have read, with their children that have ended (proc_pid_io(5)).

    Args:
        processes: Their numbers.
        known: Process -> bytes of an earlier count; brought up to date.
    """
    for pid in processes:
        with suppress(OSError, ValueError), open(f"/proc/{pid}/io") as file:
            known[pid] = max(known.get(pid, 0), int(file.readline().partition(": ")[2]))
    return sum(known.values())


def probed(probe: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Write what a probe has found; returns the questions that this leads to, None if there are no further ones.

    Args:
        probe: A shell that runs it.
    """
    out, err = (said.decode(errors="replace") for said in probe.communicate())
    tell({"probe": {"status": probe.returncode, "out": out, "err": err}}, MARK)
    line = sys.stdin.buffer.readline()
    return json.loads(zlib.decompress(base64.b64decode(line))) if line.endswith(b"\n") else None


def main(modules: dict[str, str], common: tuple[str, ...], probe: str, questions: str) -> None:
    """Run all sections; prints one line, what they have answered, packed.

    Args:
        modules: Their sources, and of what they have in common.
        common: The names of that.
        probe: A script that is run beside, if any: it has a line of its own before, and further questions come by it.
        questions: Those of the first sections.
    """
    # as a login shell has it: a deploy's probe does too
    probing = subprocess.Popen(["sh", "-c", probe], stdin=-3, stdout=-1, stderr=-1) if probe else None
    os.environ.clear()
    os.environ.update({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"})
    os.chdir("/")
    packages()
    for name in common:
        load(name, modules[name])
    if dpkg := sys.modules.get(f"{PACKAGE}.dpkg"):
        cast("Any", dpkg).known()
    found: dict[str, dict[str, object]] = {}
    parts: dict[str, list[bytes]] = {}
    waiting = selectors.DefaultSelector()
    limits: dict[str, float] = {}
    pids: dict[str, int] = {}

    def begin(asked: dict[str, Any]) -> None:
        for name, (limit, question) in asked.items():
            pids[name], reading = started(name, modules[name], question)
            limits[name], parts[name] = limit, []
            waiting.register(reading, selectors.EVENT_READ, name)

    begin(json.loads(questions))
    if probing:
        more = probed(probing)
        if more is None:
            for pid in pids.values():
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
            return
        begin(more)
    # their answers are unread before this
    until = {name: time.monotonic() + limit for name, limit in limits.items()}
    slow, named = time.monotonic() + SOON, list[str]()
    read, counted = dict[int, int](), slow
    while waiting.get_map():
        now = time.monotonic()
        left = sorted(one.data for one in waiting.get_map().values())
        if now >= slow and left != named:
            tell(left, WAITING)
            named = left
        if now >= counted:
            tell(count_read_bytes(pids.values(), read), WAITING)
            counted = now + READ_EVERY
        times = [slow if now < slow else counted, *(until[name] for name in left)]
        for key, _ in waiting.select(max(0.0, min(times) - now)):
            piece = os.read(key.fd, 1 << 20)
            parts[key.data].append(piece)
            if not piece:
                waiting.unregister(key.fd)
                found[key.data] = parse_section_answer(b"".join(parts[key.data]))
        for key in [*waiting.get_map().values()]:
            if time.monotonic() > until[key.data]:
                waiting.unregister(key.fd)
                # a process that waits for a driver that hangs does not even die; the survey does not wait for it
                with suppress(OSError):
                    os.killpg(pids[key.data], signal.SIGKILL)
                found[key.data] = {"failed": LATE}
    if any(one.get("failed") == LATE for one in found.values()) and (gone := silent()):
        said = f"{LATE}: file systems that do not answer: {', '.join(gone)}"
        found = {name: {"failed": said} if one.get("failed") == LATE else one for name, one in found.items()}
    tell(found)
