"""The file that a verb edits: whatever it is and whatever happens to it meanwhile, nothing of it is half written."""

from pathlib import Path

import click
import pytest

from cli import inventory_edit
from cli.inventory_edit import replace_file, restore_file
from tests.unit.test_cli_switch import ONE, SwitchOperator, operator

__all__ = ["operator"]
WIDE = ("chat", "llamacpp/wide", *ONE)


def test_an_edit_of_somebody_elses_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "rig.py"
    path.write_bytes(b"theirs")
    with pytest.raises(click.ClickException, match="was changed meanwhile; nothing was changed"):
        replace_file(path, b"mine", b"new")
    assert (path.read_bytes(), [one.name for one in tmp_path.iterdir()]) == (b"theirs", ["rig.py"])
    replace_file(path, b"theirs", b"new")
    restore_file(path, b"theirs", b"new", "")
    assert path.read_bytes() == b"theirs"


def test_an_edit_while_the_box_is_looked_at_stops_it(operator: SwitchOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    look = operator.boxes

    def boxes(inventory: str, limit: str | None) -> object:
        found = look(inventory, limit)
        operator.box.write("rig.py", operator.text + "# mine\n")
        return found

    monkeypatch.setattr("cli.switch.connect_inventory", boxes)
    done = operator.switch(*WIDE)
    assert "was changed meanwhile; nothing was changed: run the same command again" in done.output
    assert (done.exit_code, operator.ran) == (2, [])
    assert operator.text.endswith("# mine\n")
    assert "llamacpp/wide" not in operator.text


def test_a_file_that_is_read_only_is_refused_before_the_box_is_touched(operator, monkeypatch):
    # root may write what nobody may
    monkeypatch.setattr(inventory_edit.os, "access", lambda path, mode: False)
    done = operator.switch(*WIDE)
    assert "is read-only: make it writable, or try it with --once" in done.output
    assert (done.exit_code, operator.ran, operator.looked) == (2, [], 0)
    assert operator.switch(*WIDE, "--once").exit_code == 0


def test_line_ends_and_comments_stay(operator: SwitchOperator) -> None:
    text = "# llamacpp/cpu\r\n" + operator.text.replace("\n", "\r\n") + "# 'variant': 'llamacpp/cpu'\r\n"
    operator.box.inventory.write_bytes(text.encode())
    assert operator.switch(*WIDE).exit_code == 0
    # another box has the same literal before it
    first, second = text.split("'one'")
    assert "llamacpp/cpu" in first
    edited = second.replace("llamacpp/cpu", "llamacpp/wide", 1)
    assert operator.box.inventory.read_bytes() == f"{first}'one'{edited}".encode()
