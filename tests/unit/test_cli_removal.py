"""`rigwright remove` says what it will take off before it asks."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from checks.connections import ConnectedHost
from cli import deploy_run, deploy_verbs, main, removal_preview
from cli.removal_preview import parse_ledger_packages
from rigwright.render import render
from rigwright.serving.serving_state import ObservedServing
from rigwright.serving.weight_inventory import StoredModel, WeightInventory
from tests.unit.mapped_hosts import map_given_hosts
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import OperatorFolder, sample_rig

RIG = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"ssh_hostname": "127.0.0.1"}})\n'


class RemovalBox(ConnectedHost):
    """A box whose host is known."""

    def prefetch(self, *looks: str) -> ConnectedHost:
        return self

    def read_serving_state(self) -> ObservedServing:
        return ObservedServing(**self.target.served)

    def read_weight_inventory(self) -> WeightInventory:
        return SimpleNamespace()  # type: ignore[return-value]

    def run_and_parse(self, parse: Any, script: str) -> Any:
        return self.target.packages


def model(name: str, size: int) -> StoredModel:
    return StoredModel(name, "0123456789abcdef", "/srv", 1, size, 1, 0, None, 0, ())


UNIT = "rigwright-chat.service"
FULL = {"served": {"links": {UNIT: "x"}, "processes": {}}, "packages": ("curl", "ninja-build")}
LINES = [
    "box: units: rigwright-chat.service",
    "box: models: org/a@0123456789ab 5.4 GB, b@0123456789ab 1.0 MB (5.4 GB in all)",
    "box: packages, unless something else needs them: curl, ninja-build",
]


@pytest.mark.parametrize(
    ("target", "there", "options", "said"),
    [
        (FULL, [model("org/a", 5_400_000_000), model("b", 1_000_000)], [], LINES),
        (
            FULL,
            [model("b", 1_000_000)],
            ["--keep-weights"],
            ["box: models, which stay: b@0123456789ab 1.0 MB (1.0 MB in all)"],
        ),
        ({"served": {}, "packages": ()}, [], [], ["box: Rigwright installed nothing there"]),
    ],
)
def test_removals_are_listed_before_the_question(box, monkeypatch, target, there, options, said):
    box.write("rig.py", RIG)
    looked = RemovalBox("box", sample_rig(), SimpleNamespace(**target))
    monkeypatch.setattr(removal_preview, "map_inventory", map_given_hosts([looked]))
    monkeypatch.setattr(removal_preview, "list_models", lambda *_: there)
    done = CliRunner().invoke(main, ["remove", str(box.inventory), *options], input="n\n")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    at = [number for number, line in enumerate(lines) if line.startswith("Remove everything")]
    assert at, done.output
    assert [line for line in lines[: at[0]] if line in said] == said


@pytest.mark.parametrize(
    ("answer", "status", "end"),
    [("n\n", 1, "Aborted!"), ("", 2, "Error: no answer, nothing was removed: answer y, or give --yes")],
)
def test_a_removal_without_consent_says_how_to_give_it(
    box: OperatorFolder, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, end: str
) -> None:
    box.write("rig.py", RIG)
    looked = RemovalBox("box", sample_rig(), SimpleNamespace(**FULL))
    monkeypatch.setattr(removal_preview, "map_inventory", map_given_hosts([looked]))
    monkeypatch.setattr(removal_preview, "list_models", lambda *_: [])
    done = CliRunner().invoke(main, ["remove", str(box.inventory)], input=answer)
    assert done.exit_code == status
    assert end in done.output


TWO = RIG.replace('"}})', '"}, "away": {"ssh_hostname": "192.0.2.2"}})')


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_nothing_is_asked_of_or_done_to_a_host_out_of_reach(box, monkeypatch, verbose):
    box.write("rig.py", TWO)
    looked = RemovalBox("box", sample_rig(), SimpleNamespace(served={}, packages=()))
    done: list[object] = []
    monkeypatch.setattr(removal_preview, "map_inventory", map_given_hosts([looked], {"away": "no answer"}))
    monkeypatch.setattr(removal_preview, "list_models", lambda *_: [])
    monkeypatch.setattr(deploy_run, "run_deploy", lambda _, __, rigs, *___, **____: done.extend(rigs))
    monkeypatch.setattr(deploy_verbs, "run_pyinfra", lambda *words: done.append(words[-1]) or 0)
    ended = CliRunner().invoke(main, ["remove", str(box.inventory), *verbose], input="y\n")
    assert (ended.exit_code, done) == (3, ["box"]), ended.output
    before, _, after = ended.output.partition("Remove ")
    assert "away: cannot be reached: no answer" in before
    assert "on box?" in after
    assert "not reached, and unchanged: away" in after


def test_nothing_is_asked_where_no_host_is_in_reach(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("rig.py", RIG)
    monkeypatch.setattr(removal_preview, "map_inventory", map_given_hosts([], {"box": "no answer"}))
    ended = CliRunner().invoke(main, ["remove", str(box.inventory)], input="y\n")
    assert (ended.exit_code, ended.output) == (3, "box: cannot be reached: no answer\n")


def test_with_yes_nothing_is_listed(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write("rig.py", RIG)
    monkeypatch.setattr(removal_preview, "map_inventory", lambda *_: pytest.fail("a host was asked"))
    monkeypatch.setattr(deploy_verbs, "run_pyinfra", lambda *_: 0)
    assert CliRunner().invoke(main, ["remove", str(box.inventory), "-v", "--yes"]).exit_code == 0


def test_a_dry_run_prints_the_list_of_the_confirmation_and_asks_nothing(
    box: OperatorFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.write("rig.py", RIG)
    looked = RemovalBox("box", sample_rig(), SimpleNamespace(**FULL))
    models = [model("org/a", 5_400_000_000), model("b", 1_000_000)]
    runs: list[bool] = []
    monkeypatch.setattr(removal_preview, "map_inventory", map_given_hosts([looked]))
    monkeypatch.setattr(removal_preview, "list_models", lambda *_: models)
    monkeypatch.setattr(deploy_run, "run_deploy", lambda *_, dry, **__: runs.append(dry))
    done = CliRunner().invoke(main, ["remove", str(box.inventory), "--dry"])
    assert (done.exit_code, runs) == (0, [True]), done.output
    assert [line for line in done.output.splitlines() if line in LINES] == LINES
    assert "Remove everything" not in done.output


def test_packages_are_those_of_the_ledger_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "owned").write_text("package curl\ntree /x\npackage gone\npackage $(id)\npackage curl\n")
    write_stand_in(tmp_path / "bin", "dpkg-query", 'for last; do :; done; [ "$last" = gone ] || printf installed')
    script = render("look/ledger.sh.j2", ledger=str(tmp_path / "owned"))
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert parse_ledger_packages(done.stdout.splitlines()) == ("curl",)
