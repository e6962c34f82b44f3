"""The hosts that an inventory file names for the command line: which, and the message when there are none."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli import main
from cli.inventory_loading import load_hosts
from cli.tables import format_size
from rigwright.declaration.inventory_errors import EXAMPLE, IMPORT
from tests.unit.samples import OperatorFolder, sample_entry

GROUPS = """
from rigwright.inventory import hosts

E = {"mirrors": {"store": ["http://127.0.0.1:8000/"]}}
a = hosts({"a1": E, "a2": E})
b = (hosts({"b1": E}), {})
c_ = ["a1", "b1"]
_hidden = [("h1", {})]
ports = [8020, 8021]
VERSION = (1, 2)
"""


def hosts(folder: Path, text: str, limit: str | None = None) -> dict[str, dict[str, Any]]:
    path = folder / "rig.py"
    path.write_text(text)
    return load_hosts(str(path), limit)


@pytest.mark.parametrize(
    ("limit", "names"),
    [
        (None, ["a1", "a2", "b1"]),
        ("a", ["a1", "a2"]),
        ("b", ["b1"]),
        ("a1", ["a1"]),
        ("?1", ["a1", "b1"]),
        ("[ab]*", ["a1", "a2", "b1"]),
        ("rig", ["a1", "a2", "b1"]),
        ("b,a2", ["a2", "b1"]),
    ],
)
def test_a_limit_names_a_group_a_host_or_hosts_by_pattern(tmp_path: Path, limit: str | None, names: list[str]) -> None:
    assert list(hosts(tmp_path, GROUPS, limit)) == names


def test_hosts_come_with_their_data(tmp_path: Path) -> None:
    assert {name: data["rig"]["name"] for name, data in hosts(tmp_path, GROUPS).items()} == {
        "a1": "a1",
        "a2": "a2",
        "b1": "b1",
    }


@pytest.mark.parametrize("limit", ["", "c", "h1", "_hidden", "ports", "VERSION", "A1", "a1 ", "a[", "all", "a1,"])
def test_a_limit_that_names_nothing_is_refused_with_the_nearest_name(tmp_path: Path, limit: str) -> None:
    with pytest.raises(
        click.ClickException, match=f'there is no host or group "{re.escape(limit.rpartition(",")[2])}"'
    ):
        hosts(tmp_path, GROUPS, limit)


CALL = "rigs = hosts({...})"
EMPTY = f"no hosts; it must contain {IMPORT!r} and {EXAMPLE}; `rigwright init USER@HOST` writes such a file"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", EMPTY),
        ("rigs = []", EMPTY),
        ("rigs = ()", EMPTY),
        ("rigs = ([], {})", EMPTY),
        ("_rigs = [('box', {})]", EMPTY),
        ("rigs = {'box': {}}", f"no hosts; rigs is a table: hosts() makes rigs of it: {CALL}, after {IMPORT!r}"),
        ("rigs = [5]", "no hosts; rigs is not a group, because it contains 5: rigs = hosts({...})"),
        ("rigs = ['box', None]", "no hosts; rigs is not a group, because it contains None: rigs = hosts({...})"),
        (
            "rigs = [10**5000]",
            f"no hosts; rigs is not a group, because it contains a number of too many digits: {CALL}",
        ),
        ("rigs = [()]", "rigs: () is refused: must be a host's name, or (name, its data)"),
        ("rigs = [('box',)]", "rigs: ('box',) is refused: must be a host's name, or (name, its data)"),
        ("rigs = [('box', None)]", "rigs: ('box', None) is refused: must be a host's name, or (name, its data)"),
        ("rigs = [(5, {})]", "rigs: (5, {}) is refused: must be a host's name, or (name, its data)"),
        ("rigs = ['']", "rigs: '' is refused: must be a host's name, or (name, its data)"),
        ("raise SystemExit", "defines no hosts"),
        ("raise SystemExit(0)", "defines no hosts"),
        ("raise SystemExit(3)", "defines no hosts"),
        ("raise SystemExit('')", "defines no hosts"),
        ("raise SystemExit({})", "defines no hosts"),
        ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
    ],
)
def test_an_inventory_without_hosts_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        hosts(tmp_path, text)
    assert caught.value.message == f"{tmp_path / 'rig.py'}: {said}"


def test_the_inventorys_own_end_is_the_only_message(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException) as caught:
        hosts(tmp_path, "raise SystemExit('not today')")
    assert caught.value.message == "not today"


@pytest.mark.parametrize("text", ["rigs = [5]", "raise SystemExit(0)"])
@pytest.mark.parametrize(
    "verb", ["validate", "plan", "deploy", "rollback", "remove", "status", "show generations", "logs"]
)
def test_every_verb_refuses_an_inventory_without_hosts_in_words(tmp_path: Path, verb: str, text: str) -> None:
    path = tmp_path / "rig.py"
    path.write_text(text)
    told = CliRunner().invoke(main, [*verb.split(), str(path)])
    assert told.exit_code == 2
    assert isinstance(told.exception, SystemExit)
    (line,) = [line for line in told.output.splitlines() if line.startswith("Error: ")]
    assert str(path) in line


def test_validate_shows_what_a_rig_declares(box: OperatorFolder) -> None:
    box.write("rig.py", f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {sample_entry()!r}}})\n")
    told = CliRunner().invoke(main, ["validate", str(box.inventory)])
    assert told.exit_code == 0, told.output
    lines = [line.split() for line in told.output.splitlines()]
    assert lines[0] == ["rig", "instance", "variant", "engine", "cards", "port", "context", "weights"]
    assert [line[:3] for line in lines[1:3]] == [["box", "chat", "llamacpp/two"], ["box", "code", "llamacpp/cpu"]]
    assert "2 x 4096" in told.output
    assert lines[-1] == ["valid"]


def test_validate_refuses_a_host_that_is_no_rig(tmp_path: Path) -> None:
    (tmp_path / "rig.py").write_text("rigs = ['box']")
    told = CliRunner().invoke(main, ["validate", str(tmp_path / "rig.py")])
    assert (told.exit_code, told.output.count("\n")) == (2, 1)
    assert told.output.startswith(f"Error: {tmp_path / 'rig.py'}: rigs: box: was not made by hosts()")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (1_000_000, "1.0 MB"),
        (19_120_000_000, "19.1 GB"),
        (4_000_000_000_000, "4000.0 GB"),
    ],
)
def test_a_size_is_reported_in_the_largest_unit_that_fits(count: int, text: str) -> None:
    assert format_size(count) == text
