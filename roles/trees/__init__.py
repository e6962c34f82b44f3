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

from rigwright.host import script_output
from rigwright.model.rig import Rig
from rigwright.plan import plan_inputs
from rigwright.plan.plan_inputs import TargetState
from rigwright.weights.verification import PACKAGE, weights_program_folder
from roles import artefact_fetch
from roles.operations.facts import ChannelFact
from roles.operations.jobs import run_job

HOST = Path(__file__).with_name("host")
JOB = "rw-job-trees"
"""The transient unit that proves and records."""


@dataclass(frozen=True)
class PendingTree:
    """The pending work on a tree."""

    what: str
    tree: str
    where: str
    """The first place in it."""


@dataclass(frozen=True)
class TreeFacts:
    """The trees of a host."""

    there: dict[str, str] = field(default_factory=dict)
    """Tree -> for a generation, the digest of what it says of itself."""
    pending: tuple[PendingTree, ...] = ()
    """The parts of them that differ from the record."""


class TreesFact(ChannelFact[TreeFacts]):
    """The trees, and what of them is not as it was recorded."""

    default = TreeFacts

    def command(self, asked: str) -> StringCommand:
        """templates/trees/look.sh.j2."""
        return self.render_command("trees/look.sh.j2", program=render_tree_program("tree_records"), asked=asked)

    def read(self, output: list[str]) -> TreeFacts:
        """Read what it tells."""
        told = script_output.parse_output(output, plan_inputs.SCAN_SCHEMA)
        return TreeFacts(dict(told.many("there")), tuple(PendingTree(*row) for row in told.many("pending")))


@cache
def render_tree_program(main: str) -> str:
    """The text of a program of ours, for `python3 -c`: the modules that it needs, each before those that import it."""
    names = ("tree_entry", "tree_fingerprint", "tree_records", "package_manifests", "reconcile")
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


def collect_program_texts(rig: Rig) -> dict[str, dict[str, bytes]]:
    """Trees that are programs of ours: path -> name -> content."""
    return {f"{weights_program_folder(rig.roots)}/{PACKAGE}": _read_programs(artefact_fetch.PROGRAMS)}


@cache
def _read_programs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}


def read_trees(rig: Rig) -> TreeFacts:
    """The trees of the host of the running deploy."""
    return host.get_fact(
        TreesFact, asked=json.dumps(plan_inputs.scan_request(rig.roots, collect_program_texts(rig)), sort_keys=True)
    )


def describe_changed_trees(rig: Rig) -> list[str]:
    """Which trees of the host of the running deploy have other bytes than were installed, a line each: nothing of them
    may be run any more.
    """
    cure = "remove that folder, which is installed again then"
    return [
        f"{one.tree}: {script_output.free_text(one.where)} differs from the installed file: {cure}"
        for one in read_trees(rig).pending
        if one.what == "changed"
    ]


@operation()
def write_tree_records(rig: Rig, wanted: TargetState) -> Generator[FunctionCommand, None, None]:
    """Have each tree as it was installed, and a record of it.

    + rig: the rig
    + wanted: its target state on the host
    """
    found = read_trees(rig)
    missing = plan_inputs.find_missing_trees(wanted, collect_program_texts(rig), found.there)
    if not (found.pending or missing):
        host.noop("everything installed is as it was recorded")
        return
    for one in found.pending:
        # a new installation has no record yet: this step makes it, and says so
        if one.what not in ("stale", "unrecorded"):
            logger.info(
                f"{host.print_prefix}{one.tree}: {script_output.free_text(one.where) or 'itself'} is {one.what}"
            )
    yield FunctionCommand(run_job, (*render_record_job(rig, wanted.generation.digest), rig.roots.jobs), {})


def render_record_job(rig: Rig, generation: str) -> tuple[str, str, str]:
    """The job that records what is installed: its unit, its script, and the condition that holds once that is done.

    Args:
        rig: The rig.
        generation: The digest of its generation.
    """
    words = ["/usr/bin/python3", "-I", "-S", "-B", "-c"]
    asked = plan_inputs.scan_request(rig.roots, collect_program_texts(rig))
    spec = json.dumps({**asked, "sealed": generation}, sort_keys=True)
    script = f"exec {shlex.join([*words, render_tree_program('reconcile'), spec])}\n"
    test = f'[ -z "$({shlex.join([*words, render_tree_program("tree_records"), spec])})" ]'
    return JOB, script, test
