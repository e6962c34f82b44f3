"""Role trees: root's own record of everything that a deploy has installed, and of each generation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, StringCommand, operation

from rigwright import trees
from rigwright.declaration.rig import Rig
from rigwright.host import channel
from rigwright.host.plan import Desired
from rigwright.weights.records import PACKAGE
from rigwright.weights.records import programs as programs_folder
from roles import fetching
from roles.operations.jobs import run_job
from roles.operations.look import Look

HOST = Path(__file__).with_name("host")
JOB = "rw-job-trees"
"""The transient unit that proves and records."""


@dataclass(frozen=True)
class Pending:
    """What is to be done about a tree."""

    what: str
    tree: str
    where: str
    """The first place in it."""


class Looked(Look[tuple[Pending, ...]]):
    """What of the trees is not as it was recorded."""

    default = tuple

    def command(self, asked: str) -> StringCommand:
        """templates/trees/look.sh.j2."""
        return self.script("trees/look.sh.j2", program=program("look"), asked=asked)

    def read(self, output: list[str]) -> tuple[Pending, ...]:
        """Read what it tells."""
        return tuple(Pending(*row) for row in channel.read(output, trees.PENDING).many("pending"))


@cache
def program(main: str) -> str:
    """The text of a program of ours, for `python3 -c`: the modules that it needs, each before those that import it."""
    names = ("look", "prove", "settle")
    texts = {name: (HOST / f"{name}.py").read_text() for name in names[: names.index(main) + 1]}
    return (
        "import sys, types\n"
        "sys.modules['trees'] = types.ModuleType('trees')\n"
        f"for name, text in {texts!r}.items():\n"
        "    made = sys.modules['trees.' + name] = types.ModuleType('trees.' + name)\n"
        "    made.__package__ = 'trees'\n"
        "    exec(compile(text, name, 'exec'), made.__dict__)\n"
        "sys.exit(made.main(sys.argv[1:]))\n"
    )


def asked(wanted: Desired) -> str:
    """What the host's program is told, as JSON."""
    rig = wanted.rig
    sources = {path.name: path.read_bytes() for path in fetching.PROGRAMS.glob("*.py")}
    # else nobody has put them there, or they are of an earlier deploy
    texts = {f"{programs_folder(rig)}/{PACKAGE}": sources} if rig.weights else {}
    return json.dumps(trees.asked(wanted, texts), sort_keys=True)


def changed(wanted: Desired) -> list[str]:
    """Which trees of the host of the running deploy have other bytes than were installed, a line each: nothing of them
    may be run any more.
    """
    found = host.get_fact(Looked, asked=asked(wanted))
    cure = "remove that folder, which is installed again then"
    return [
        f"{one.tree}: {channel.said(one.where)} is not what was installed: {cure}"
        for one in found
        if one.what == "changed"
    ]


@operation()
def recorded(rig: Rig, wanted: Desired) -> Generator[FunctionCommand, None, None]:
    """Have each tree as it was installed, and a record of it.

    + rig: the rig
    + wanted: what it comes to on the host
    """
    spec = asked(wanted)
    found = host.get_fact(Looked, asked=spec)
    if not found:
        host.noop("everything installed is as it was recorded")
        return
    for one in found:
        if one.what not in ("missing", "stale"):
            logger.info(f"{host.print_prefix}{one.tree}: {channel.said(one.where) or 'itself'} is {one.what}")
    words = ["/usr/bin/python3", "-I", "-S", "-B", "-c"]
    script = f"exec {shlex.join([*words, program('settle'), spec])}\n"
    test = f'[ -z "$({shlex.join([*words, program("look"), spec])})" ]'
    yield FunctionCommand(run_job, (JOB, script, test, rig.jobs), {})
