"""Sharing's operations: when nginx is started, let go, and asked about its settings before they count."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.host.service_states import ServiceState
from rigwright.model.inventory_schema import ShareEntry
from rigwright.weights.weight_server import share_digest
from roles.operations import files, units
from roles.operations.files import PathEntry, TextFile
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig

SHARE = ShareEntry(address="10.0.0.5", allow=("10.0.0.0/24",))
RIG = sample_rig(share=SHARE)
SETTLED = ServiceState("active", "enabled", share_digest(RIG.roots, SHARE))


def run_share_operation(monkeypatch: pytest.MonkeyPatch, module: Any, fact: Any) -> list[str]:
    """Have facts of a host that is not there; the output where nothing is to be done."""
    quiet: list[str] = []
    there = SimpleNamespace(get_fact=lambda *_, **__: fact, noop=quiet.append)
    monkeypatch.setattr(module, "host", there)
    return quiet


def steps(operation: Any, **given: object) -> list[str]:
    inner: Callable[..., Any] = operation._inner
    return [command.get_raw_value() for command in inner(**given)]


@pytest.mark.parametrize(
    ("found", "restarts"),
    [
        (SETTLED, None),
        (None, True),
        (ServiceState(**{**SETTLED.__dict__, "started_from": "other"}), True),
        (ServiceState(**{**SETTLED.__dict__, "enabled": "disabled"}), False),
    ],
    ids=["settled", "blank", "other settings", "disabled"],
)
def test_nginx_is_started_where_it_does_not_run_as_it_should(
    monkeypatch: pytest.MonkeyPatch, found: ServiceState | None, restarts: bool | None
) -> None:
    quiet = run_share_operation(monkeypatch, units, found)
    made = steps(units.ensure_share, roots=RIG.roots, share=SHARE)
    assert (len(made), len(quiet)) == ((0, 1) if restarts is None else (1, 0))
    assert ["systemctl restart" in script for script in made] == ([] if restarts is None else [restarts])


@pytest.mark.parametrize("found", [SETTLED, None], ids=["shared", "never shared"])
def test_undeclared_packages_are_released(monkeypatch: pytest.MonkeyPatch, found: ServiceState | None) -> None:
    quiet = run_share_operation(monkeypatch, units, found)
    made = steps(units.remove_share, roots=sample_rig().roots)
    assert (len(made), len(quiet)) == ((1, 0) if found else (0, 1))


SYSTEMCTL = 'case $1 in show) echo 12 ;; *) echo "$*" >> "$ASKED" ;; esac'
LISTENS = 'LISTEN 0 511 10.0.0.5:8090 0.0.0.0:* users:((\\"nginx\\",pid=13,fd=3),(\\"nginx\\",pid={},fd=3))'


@pytest.mark.parametrize(
    ("listening", "status"),
    [(LISTENS.format(12), 0), ("", 1), (LISTENS.format(120), 1)],
    ids=["it does", "nobody does", "somebody else does"],
)
def test_a_start_counts_once_it_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listening: str, status: int
) -> None:
    run_share_operation(monkeypatch, units, None)
    monkeypatch.setattr(units, "TRIES", 2)
    (script,) = steps(units.ensure_share, roots=RIG.roots, share=SHARE)
    write_stand_in(tmp_path / "bin", "systemctl", SYSTEMCTL)
    write_stand_in(tmp_path / "bin", "ss", f'echo "$*" >> {tmp_path}/ss; echo "{listening}"')
    write_stand_in(tmp_path / "bin", "journalctl", "echo address not available")
    environment = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "ASKED": str(tmp_path / "asked")}
    done = short_programs.run_program(["sh", "-c", script], env=environment)
    assert done.returncode == status
    assert ("does not listen on 10.0.0.5:8090" in done.stderr) == ("not available" in done.stderr) == bool(status)
    assert (tmp_path / "ss").read_text().splitlines()[0] == "-Hltnp src 10.0.0.5:8090"
    verbs = [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()]
    assert verbs == ["daemon-reload", "enable", "reset-failed", "restart"]


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to root")
@pytest.mark.parametrize("accepted", [True, False])
def test_a_text_that_its_program_refuses_does_not_take_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accepted: bool
) -> None:
    monkeypatch.setattr(files, "state", SimpleNamespace(config=SimpleNamespace(DIFF=False)))
    path = tmp_path / "share.conf"
    path.write_text("old\n")
    run_share_operation(monkeypatch, files, {str(path): PathEntry()})
    text = TextFile(str(path), "new\n", proof=f"grep -q {'new' if accepted else 'other'}")
    (script,) = steps(files.write_text_files, files=[text])
    done = short_programs.run_program(["sh", "-c", script], input=text.text)
    assert (done.returncode == 0) == accepted
    assert path.read_text() == ("new\n" if accepted else "old\n")
    assert [one.name for one in tmp_path.iterdir()] == ["share.conf"]
