"""The file that a verb edits: whatever it is and whatever happens to it meanwhile, nothing of it is half written."""

from pathlib import Path

import click
import pytest

import cli.switch as verb
from cli import inventory_edit
from cli.deploy_verbs import RunRequest
from cli.exit_codes import HostUnreached, NotAsDeclared
from cli.inventory_edit import replace_file, restore_file
from tests.unit.test_cli_switch import ONE, SwitchOperator, operator

__all__ = ["operator"]
WIDE = ("chat", "llamacpp/wide", *ONE)


def test_a_foreign_edit_is_not_lost(tmp_path: Path) -> None:
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
    # root may write where no other user may
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


def test_computed_entries_are_refused_except_once(operator: SwitchOperator) -> None:
    operator.box.write(
        "rig.py", operator.text.replace("rigs =", 'NEW = "llamacpp/" + "cpu"\nrigs =').replace("'llamacpp/cpu'", "NEW")
    )
    before = operator.text
    words = ("chat", "llamacpp/wide", *ONE)
    refused = operator.switch(*words)
    assert "one.instances.chat.variant: line 3 has 'llamacpp/' + 'cpu' for it" in refused.output
    assert (refused.exit_code, operator.text, operator.looked) == (2, before, 0)
    assert (operator.switch(*words, "--once").exit_code, operator.text) == (0, before)


def test_a_literal_that_says_more_than_that_is_not_edited(operator: SwitchOperator) -> None:
    text = operator.text.replace("rigs = ", "CHAT = 'llamacpp/cpu'\nrigs = ").replace(
        "'variant': 'llamacpp/cpu'", "'variant': CHAT"
    )
    operator.box.write("rig.py", text)
    assert text.count("CHAT") == 3
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert done.exit_code == 2
    assert "would be another change than that (one, two)" in done.output
    assert (operator.text, operator.looked) == (text, 0)


@pytest.mark.parametrize(
    ("serves", "restored", "status", "said"),
    [
        ({"chat": "llamacpp/cpu"}, True, 1, "chat does not serve llamacpp/wide (see above). {file} is as it was"),
        ({"chat": "llamacpp/wide"}, False, 1, "run the same command again to continue"),
        (None, False, 3, "one cannot be reached: its state is unknown; run the same command again"),
    ],
)
def test_after_a_deploy_that_failed_the_file_says_what_the_box_serves(
    operator, serves, restored, status, said, monkeypatch
):
    before = operator.text

    def deploy(wanted: RunRequest) -> None:
        operator.serves = serves
        raise NotAsDeclared("deploy failed (see above)")

    monkeypatch.setattr(verb, "run_request", deploy)
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert done.exit_code == status
    assert said.format(file=operator.box.inventory) in done.output, done.output
    assert (operator.text == before) == restored


def test_a_file_that_changed_meanwhile_is_left_alone(operator, monkeypatch):
    def deploy(wanted: RunRequest) -> None:
        operator.box.write("rig.py", operator.text + "# mine\n")
        raise HostUnreached("deploy failed (see above)")

    monkeypatch.setattr(verb, "run_request", deploy)
    done = operator.switch("chat", "llamacpp/wide", *ONE)
    assert "changed meanwhile and was not overwritten: edit it by hand" in done.output
    assert operator.text.endswith("# mine\n")


def test_the_mode_of_the_file_and_a_link_to_it_stay(operator: SwitchOperator, tmp_path: Path) -> None:
    operator.box.inventory.chmod(0o640)
    real = operator.box.inventory.rename(tmp_path / "real.py")
    operator.box.inventory.symlink_to(real)
    assert operator.switch("chat", "llamacpp/wide", *ONE).exit_code == 0
    assert operator.box.inventory.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "llamacpp/wide" in real.read_text()
    assert not list(tmp_path.glob(".real.py.*"))
