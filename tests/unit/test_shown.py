"""What README shows of a verb's output is what it prints on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import click
import pytest

from cli.plan import Planned, _show
from cli.status_lines import Row, Status, lines, table
from cli.tables import paragraph
from rigwright.host.plan import desired, plan
from rigwright.inventory import ROOT, hosts, load
from rigwright.serving.live import Served
from tests.unit.samples import facts

README = (ROOT / "README.md").read_text()
MISSING = ("curl", "python3-venv", "cmake", "g++", "ninja-build")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """What was printed, as a page has it; standard output stands in for a terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    for module in ("cli.tables", "cli.status_lines"):
        monkeypatch.setattr(f"{module}.sys", terminal)

    def taken() -> str:
        text = click.unstyle(capsys.readouterr().out)
        assert 0 < max(map(len, text.splitlines())) <= 80, text
        return text

    return taken


def test_a_plan_of_a_blank_machine(shown: Callable[[], str]) -> None:
    declared = {"instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}}}
    ((_, data),) = hosts(
        {"box1": {"ssh_hostname": "192.0.2.7", "mirrors": {"shelf": ["http://192.0.2.1"]}, **declared}}
    )
    rig = load(data["rig"])
    made = plan(desired(rig, facts(missing_packages=MISSING)), Served())
    _show({"box1": Planned(made, [], [], None, [], [], [], [], rig.digest)})
    text = shown()
    # the digest of the lock moves with each lock
    kept = text[: text.index("box1: lock and bundle")]
    assert kept in README, kept


def test_a_status_after_a_rollback(shown: Callable[[], str]) -> None:
    one = Row("chat", "llamacpp/my-model", "ready", "", 8040.0, 8020, [], 4, 4096, memory_bytes=1_100_000_000)
    seen = [Status("box1", True, generation=1, instances=[one])]
    table(seen)
    for line in lines(seen, "~/boxes/rig.py"):
        paragraph(line)
    assert (text := shown()) in README, text
