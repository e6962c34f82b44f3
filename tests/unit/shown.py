"""`python -m tests.unit.shown`: writes what pages show of commands' output anew, as a terminal of 80 columns has it.

What is found on a host is given here; what is said of it is said by what says it to an operator.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import patch

import click
import pytest
from _pytest._io import TerminalWriter

from checks import Drift, frame, test_base
from checks.report import Reporter
from checks.survey.accounts import User
from cli import bench_speed, state
from cli.advisories import tell_finding
from cli.output import say
from cli.plan import Planned, _show
from cli.status_lines import Row, Status, lines, table
from cli.tables import paragraph
from cli.variants import variants
from rigwright.advisories.audit import audit
from rigwright.host.deploy_lock import Holder
from rigwright.inventory import hosts, load
from rigwright.patches import apply
from rigwright.patches import patch as patches
from rigwright.paths import ROOT
from rigwright.plan.desired import desired
from rigwright.plan.plan import plan
from rigwright.plugins.verdict import verdict
from rigwright.serving.live import Kept, Served
from tests.shown import PAGES, stale
from tests.unit import shipped
from tests.unit.plugin_samples import DOCTOR
from tests.unit.samples import facts
from tests.unit.test_baseline import FINGERPRINT

MISSING = ("curl", "python3-venv", "cmake", "g++", "ninja-build")
COLUMNS = 80


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Standard output as a terminal; gives what was printed there since, as a page has it."""
    told = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}))
        for module in ("cli.tables", "cli.status_lines"):
            stack.enter_context(patch(f"{module}.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))))
        stack.enter_context(redirect_stdout(told))
        yield lambda: click.unstyle(told.getvalue())


def _plan() -> str:
    declared = {"instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}}}
    ((_, data),) = hosts(
        {"box1": {"ssh_hostname": "192.0.2.7", "mirrors": {"shelf": ["http://192.0.2.1"]}, **declared}}
    )
    one = load(data["rig"])
    made = plan(desired(one, facts(missing_packages=MISSING)), Served())
    with terminal() as printed:
        _show({"box1": Planned(made, [], [], None, [], [], [], [], one.digest)})
        text = printed()
    # the digest of the lock moves with each lock
    return text[: text.index("box1: lock and bundle")]


def _rolled_back() -> str:
    one = Row("chat", "llamacpp/demo", "ready", "", 8040.0, 8020, [], 4, 1024, memory_bytes=1_100_000_000)
    one = replace(one, declared="llamacpp/wide")
    seen = [Status("box1", True, generation=1, instances=[one])]
    digests = ("446cd978a919", "88b3e9f10509")
    times = ("2026-11-21T13:23:34Z", "2026-11-21T13:26:27Z")
    generations = tuple(
        Kept(number, digest, digest, time, True)
        for number, (digest, time) in enumerate(zip(digests, times, strict=True), 1)
    )
    found = Served(generations=generations, current=1)
    with terminal() as printed:
        table(seen)
        for line in lines(seen, "boxes/rig.py"):
            paragraph(line)
        click.echo()
        with (
            patch.object(state, "boxes", lambda *asked: ([SimpleNamespace(name="box1")], {})),
            patch.object(state, "each", lambda *asked: [(found, digests[1])]),
        ):
            state.generations.main([__file__], standalone_mode=False)
        return printed()


def _refused() -> str:
    holder = Holder("ana@desk", "23459", "2026-11-21 13:28:55 UTC", "deploy of /home/ana/boxes/rig.py")
    with terminal() as printed:
        say(f"box1: refused: {holder}")
        return printed()


def _check() -> str:
    name = "rigwright"
    (mark,) = (one for one in test_base.test_users.pytestmark if one.name == "check")
    found = User(name, 990, 990, "/nonexistent", "/bin/bash")
    survey = SimpleNamespace(read=lambda section: SimpleNamespace(user=lambda asked: found))
    with pytest.raises(Drift) as drift:
        test_base.test_users(survey, SimpleNamespace(users=(name,)))
    result = frame.judged(mark.kwargs, "", SimpleNamespace(duration=0.0, excinfo=drift), "")  # type: ignore[arg-type]
    written = TerminalWriter(io.StringIO())
    written.fullwidth = COLUMNS
    one = Reporter.__new__(Reporter)
    one.__dict__.update(
        _tw=written, config=SimpleNamespace(option=SimpleNamespace(verbose=1)), tally={"box1": {"fail": 0}}
    )
    one.tell("box1", result)
    text: str = written._file.getvalue()
    return text


def _speed() -> str:
    now = FINGERPRINT.model_copy(update={"driver": "590.10", "power_w": (230.0,)})
    with terminal() as printed:
        bench_speed.tell_changes([*now.changes(FINGERPRINT)])
        return printed()


def _patch() -> str:
    one = patches.read(ROOT / "patches" / "mamba-prefix-cache-mtp")
    with pytest.raises(apply.Refused) as refused:
        apply.outcome(one.plan, lambda path: b"another version's")
    with terminal() as printed:
        say(str(refused.value))
        return printed()


def _doctor() -> str:
    kinds = {name: {"holds": "", **line, "kind": line.get("kind", "verdict")} for name, line in DOCTOR["lines"].items()}
    said = b"Python 3.10.20: PASS\nGDN interface (legacy): PASS\nTopology: 2 x SM75\nAutoSpec = 3\n"
    found = verdict({"lines": kinds, "seconds": 60, "largest": 65536}, said, 0, 3)
    with terminal() as printed:
        say(f"box1: louder-doctor with what chat serves: {', '.join(' '.join(one) for one in found.items())}")
        return printed()


def _variants() -> str:
    with terminal() as printed:
        asked = ["--need", "streams", "--cards", "2", "--card", "rtx-3090"]
        with suppress(SystemExit):
            variants.main(asked, standalone_mode=False)
        return printed()


def _advisories() -> str:
    with TemporaryDirectory() as folder, terminal() as printed:
        rigs = shipped.rigs("rig3090", Path(folder))
        made = audit({"rig3090": rigs["rig3090"]})
        found = {one.advisory: one for one in made[0].findings}
        for name in ("PYSEC-2026-4199", "CVE-2026-114051", "PYSEC-2026-3408", "CVE-2026-114053"):
            tell_finding(found[name])
        return printed()


MADE: dict[str, Callable[[], str]] = {
    "plan": _plan,
    "rolled-back": _rolled_back,
    "refused": _refused,
    "check": _check,
    "speed": _speed,
    "patch": _patch,
    "doctor": _doctor,
    "variants": _variants,
    "advisories": _advisories,
}


def main() -> None:
    """Write what is stale, and say which pages."""
    made = {name: make() for name, make in MADE.items()}
    for path in PAGES:
        text, right = stale(path, made)
        if text != right:
            path.write_text(right)
            sys.stdout.write(f"{path.relative_to(ROOT)} written anew\n")


if __name__ == "__main__":
    main()
