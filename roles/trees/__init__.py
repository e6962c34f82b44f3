"""Role trees: root's own record of everything that a deploy has installed, and of each generation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, StringCommand, operation

from rigwright.host import channel
from rigwright.model.rig import Rig
from rigwright.plan import trees
from rigwright.plan.desired import Desired
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


@dataclass(frozen=True)
class Found:
    """The trees of a host."""

    there: dict[str, str] = field(default_factory=dict)
    """Tree -> for a generation, the digest of what it says of itself."""
    pending: tuple[Pending, ...] = ()
    """What of them is not as it was recorded."""


class Looked(Look[Found]):
    """The trees, and what of them is not as it was recorded."""

    default = Found

    def command(self, asked: str) -> StringCommand:
        """templates/trees/look.sh.j2."""
        return self.script("trees/look.sh.j2", program=program("look"), asked=asked)

    def read(self, output: list[str]) -> Found:
        """Read what it tells."""
        told = channel.read(output, trees.LOOKED)
        return Found(dict(told.many("there")), tuple(Pending(*row) for row in told.many("pending")))


@cache
def program(main: str) -> str:
    """The text of a program of ours, for `python3 -c`: the modules that it needs, each before those that import it."""
    names = ("entry", "glance", "look", "prove", "settle")
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


def texts(rig: Rig) -> dict[str, dict[str, bytes]]:
    """Trees that are programs of ours: path -> name -> content."""
    sources = {path.name: path.read_bytes() for path in fetching.PROGRAMS.glob("*.py")}
    return {f"{programs_folder(rig)}/{PACKAGE}": sources}


def look(rig: Rig) -> Found:
    """The trees of the host of the running deploy."""
    return host.get_fact(Looked, asked=json.dumps(trees.asked(rig, texts(rig)), sort_keys=True))


def changed(rig: Rig) -> list[str]:
    """Which trees of the host of the running deploy have other bytes than were installed, a line each: nothing of them
    may be run any more.
    """
    cure = "remove that folder, which is installed again then"
    return [
        f"{one.tree}: {channel.said(one.where)} is not what was installed: {cure}"
        for one in look(rig).pending
        if one.what == "changed"
    ]


@operation()
def recorded(rig: Rig, wanted: Desired) -> Generator[FunctionCommand, None, None]:
    """Have each tree as it was installed, and a record of it.

    + rig: the rig
    + wanted: what it comes to on the host
    """
    found, asked = look(rig), trees.asked(rig, texts(rig))
    missing = trees.missing(wanted, texts(rig), found.there)
    if not (found.pending or missing):
        host.noop("everything installed is as it was recorded")
        return
    for one in found.pending:
        # what has just been installed has no record yet: this step makes it, and says so
        if one.what not in ("stale", "unrecorded"):
            logger.info(f"{host.print_prefix}{one.tree}: {channel.said(one.where) or 'itself'} is {one.what}")
    words = ["/usr/bin/python3", "-I", "-S", "-B", "-c"]
    spec = json.dumps({**asked, "sealed": wanted.generation.digest}, sort_keys=True)
    script = f"exec {shlex.join([*words, program('settle'), spec])}\n"
    test = f'[ -z "$({shlex.join([*words, program("look"), spec])})" ]'
    yield FunctionCommand(run_job, (JOB, script, test, rig.jobs), {})
