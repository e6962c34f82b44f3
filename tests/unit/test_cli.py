"""The command line: help for every verb, and refusals in words."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli import main
from lab.throwaway_lab import ThrowawayLab

EMPTY = "from rigwright.inventory import hosts\n\nrigs = hosts({})\n"
ONE = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "ssh_port": 1}})\n'


def verbs(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from verbs(inner, (*path, name))


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=os.environ | {"COLUMNS": "200"}, check=False
    )


@pytest.mark.parametrize("path", list(verbs()), ids=lambda path: " ".join(path) or "rigwright")
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_verb_says_what_it_does(path: tuple[str, ...], option: str) -> None:
    told = CliRunner().invoke(main, [*path, option])
    assert told.exit_code == 0
    usage, _, rest = told.output.partition("\n\n")
    assert usage.startswith("Usage: ")
    assert len(rest.split("Options:")[0].strip()) > 20


def test_the_verbs_that_a_newcomer_needs_are_there() -> None:
    assert {("lock",), ("deploy",), ("check",), ("demo",), ("test",), ("lab", "up"), ("lab", "down")} <= set(verbs())


@pytest.mark.parametrize("words", [["deplyo"], ["lab", "dwon"], ["deploy"], ["deploy", "--dyr", "x"]])
def test_a_misspelt_or_half_command_is_refused_in_words(words: list[str]) -> None:
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert "Error: " in told.output


@pytest.mark.parametrize("verb", ["deploy", "check"])
def test_an_inventory_that_is_not_there_is_refused(verb: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, [verb, str(tmp_path / "gone.py")])
    assert told.exit_code == 2
    assert "gone.py does not exist" in told.output


NOTHING = (
    ("deploy", EMPTY, ["--dry"], "rig.py: hosts(): must be a table with at least one rig"),
    ("check", EMPTY, [], "rig.py: hosts(): must be a table with at least one rig"),
    ("deploy", "rigs = []\n", ["--dry"], "rig.py: no hosts"),
    ("check", "rigs = []\n", [], "rig.py: no hosts"),
    ("deploy", ONE, ["--dry", "--limit", "bix"], "there is no host or group"),
    ("check", ONE, ["--limit", "bix"], "there is no host or group"),
    # pyinfra would match these with no host, do nothing and call that a success
    ("deploy", ONE, ["--dry", "--limit", "all"], "there is no host or group"),
    ("check", ONE, ["--limit", "all"], "there is no host or group"),
    ("deploy", ONE, ["--dry", "--limit", "rig*"], "there is no host or group"),
    ("check", ONE, ["--limit", "rig*"], "there is no host or group"),
    ("deploy", ONE.replace("ssh_port", "ssh_prot"), ["--dry"], 'did you mean "ssh_port"?'),
    ("check", ONE.replace("ssh_port", "ssh_prot"), [], 'did you mean "ssh_port"?'),
    ("deploy", "import no_such_module\n", ["--dry"], "rig.py: line 1: ModuleNotFoundError: No module named"),
    ("check", "import no_such_module\n", [], "rig.py: line 1: ModuleNotFoundError: No module named"),
    (
        "deploy",
        "rigs = (\n",
        ["--dry"],
        "rig.py: line 1: '(' was never closed in `rigs = (`; each {, [ and ( needs its }, ] and )",
    ),
    (
        "check",
        "rigs = (\n",
        [],
        "rig.py: line 1: '(' was never closed in `rigs = (`; each {, [ and ( needs its }, ] and )",
    ),
    ("check", 'rigs = [("a", {"ssh_hostname": "127.0.0.1"})]\n', [], "was not made by hosts()"),
)
# a check starts another interpreter: of what both verbs say alike, one mistake each of hosts, limits and the program
SAMPLES = tuple(row for row in NOTHING if row[0] == "check")[0::4]


@pytest.mark.parametrize(
    ("verb", "text", "options", "words"),
    [
        pytest.param(*row, marks=[] if row[0] == "deploy" or row in SAMPLES else [pytest.mark.all_only])
        for row in NOTHING
    ],
)
def test_an_inventory_with_nothing_to_work_on_is_no_success(box, verb, text, options, words, monkeypatch):
    box.write("rig.py", text)
    if verb == "check":  # pytest says it, in a process of its own
        done = run(verb, "rig.py", *options, folder=box.folder)
        found, said = done.returncode, done.stdout + done.stderr
    else:
        monkeypatch.chdir(box.folder)
        told = CliRunner().invoke(main, [verb, "rig.py", *options])
        found, said = told.exit_code, told.output
    assert found == 2, said
    assert words in said
    assert "--limit" not in options or options[-1] in said
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said
    assert len(said.split("\n")) <= 5, said


def test_a_lab_is_called_what_a_host_can_be_called() -> None:
    told = CliRunner().invoke(main, ["lab", "--name", "../x", "list"])
    assert told.exit_code == 2
    assert told.output.startswith("Error: ")


@pytest.fixture
def closed_port() -> int:
    """A port of the loopback interface without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


# the host's own name, patterns of it, and groups by their whole name: pyinfra's rule
@pytest.mark.parametrize(
    "limit", [None, "b*", *(pytest.param(one, marks=pytest.mark.all_only) for one in ("box", "[ab]ox", "rigs", "rig"))]
)
def test_a_host_that_cannot_be_reached_is_named_by_check(box, closed_port, limit):
    box.write("rig.py", ONE.replace('"ssh_port": 1', f'"ssh_port": {closed_port}, "ssh_connect_retries": 0'))
    done = run("check", "rig.py", *(["--limit", limit] if limit else []), folder=box.folder)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "box: cannot be reached" in said
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said


@pytest.mark.parametrize("card", ["2204", "", "10DE:2204", "10de:2204:1", "../x"])
def test_an_invalid_card_is_refused_before_the_lab_is_touched(card: str, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[object] = []
    monkeypatch.setattr(ThrowawayLab, "up", lambda *given: touched.append(given) or [])
    told = CliRunner().invoke(main, ["lab", "--name", "unitx", "up", "--card", "10de:2204", "--card", card])
    assert (told.exit_code, touched) == (2, [])
    assert told.output == f"Error: --card {card}: must be vendor:device, such as 10de:2204\n"
