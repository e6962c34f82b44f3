"""Units that are no instances: the actions on them, as they are found."""

from types import SimpleNamespace
from typing import Any

import pytest

from roles.operations import files, units
from roles.operations.files import PathEntry, TextFile
from roles.operations.units import UnitStatus

TIMER, SERVICE = (f"/etc/systemd/system/x.{kind}" for kind in ("timer", "service"))
TEXTS = [TextFile(path, f"{path}\n") for path in (TIMER, SERVICE)]


def steps(
    monkeypatch: pytest.MonkeyPatch, operation: Any, entries: dict[str, PathEntry], state: UnitStatus, **given: Any
) -> list[str]:
    """The commands for a host with these files, whose units say so of themselves."""

    def fact(kind: type, **_: object) -> object:
        return entries if kind is files.PathEntriesFact else state

    for module in (files, units):
        monkeypatch.setattr(module, "host", SimpleNamespace(get_fact=fact, noop=lambda _: None, print_prefix=""))
    monkeypatch.setattr(files, "state", SimpleNamespace(config=SimpleNamespace(DIFF=False)))
    return [command.get_raw_value() for command in operation._inner(**given)]


def test_only_the_units_that_are_there_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemctl fails for one that has no file; a removal that was cut off has left the other."""
    entries = {TIMER: PathEntry(), SERVICE: TEXTS[1].expected_entry}
    made = steps(monkeypatch, units.remove_units, entries, UnitStatus(), paths=[TIMER, SERVICE])
    assert made == ["systemctl disable --quiet --now x.service", f"rm -f {SERVICE}", "systemctl daemon-reload"]
    assert steps(monkeypatch, units.remove_units, {}, UnitStatus(), paths=[TIMER, SERVICE]) == []


def test_other_objects_than_units_are_only_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd's stamp of a persistent timer is called as a unit would be."""
    stamp = "/var/lib/systemd/timers/stamp-x.timer"
    entries = {TIMER: TEXTS[0].expected_entry, stamp: PathEntry("file")}
    made = steps(monkeypatch, units.remove_units, entries, UnitStatus(), paths=[TIMER, stamp])
    assert made == ["systemctl disable --quiet --now x.timer", f"rm -f {TIMER} {stamp}", "systemctl daemon-reload"]
    made = steps(monkeypatch, units.remove_units, {stamp: PathEntry("file")}, [], paths=[TIMER, stamp])
    assert made == [f"rm -f {stamp}", "systemctl daemon-reload"]


@pytest.mark.parametrize(
    ("state", "settled"),
    [
        (UnitStatus("enabled", "active"), True),
        (UnitStatus("enabled", "active", unread=True), False),
        (UnitStatus("enabled", "inactive"), False),
        (UnitStatus(), False),
    ],
)
def test_systemd_has_to_have_read_all_files(monkeypatch: pytest.MonkeyPatch, state: UnitStatus, settled: bool) -> None:
    entries = {text.path: text.expected_entry for text in TEXTS}
    made = steps(monkeypatch, units.ensure_unit_running, entries, state, unit="x.timer", files=TEXTS)
    assert (made == []) == settled
    assert ("systemctl daemon-reload" in made) != settled
