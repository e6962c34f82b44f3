"""The command line: help for every verb, and refusals in words."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rigwright.cli import main
from tests.unit.samples import Box

EMPTY = "from rigwright.inventory import hosts\n\nrigs = hosts({})\n"
ONE = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "ssh_port": 1}})\n'


def verbs(command: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from verbs(inner, (*path, name))


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rigwright", *words]
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
    assert {("deploy",), ("check",), ("demo",), ("test",), ("lab", "up"), ("lab", "down")} <= set(verbs())


@pytest.mark.parametrize("words", [["deplyo"], ["lab", "dwon"], ["deploy"], ["deploy", "--dyr", "x"]])
def test_a_misspelt_or_half_command_is_refused_in_words(words: list[str]) -> None:
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 2
    assert "Error: " in told.output


@pytest.mark.parametrize("verb", ["deploy", "check"])
def test_an_inventory_that_is_not_there_is_refused(verb: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(main, [verb, str(tmp_path / "gone.py")])
    assert told.exit_code == 2
    assert "gone.py' does not exist" in told.output


@pytest.mark.parametrize(
    ("verb", "text", "options", "status", "words"),
    [
        ("deploy", EMPTY, ["--dry"], 1, "rig.py: no hosts"),
        ("check", EMPTY, [], 2, "rig.py: no hosts"),
        ("deploy", ONE, ["--dry", "--limit", "bix"], 1, "no host or group is called"),
        ("check", ONE, ["--limit", "bix"], 2, "no host or group is called"),
        ("deploy", ONE.replace("ssh_port", "ssh_prot"), ["--dry"], 1, 'did you mean "ssh_port"?'),
    ],
    ids=["deploy-empty", "check-empty", "deploy-limit", "check-limit", "deploy-refused"],
)
def test_an_inventory_with_nothing_to_work_on_is_no_success(
    box: Box, verb: str, text: str, options: list[str], status: int, words: str
) -> None:
    box.write("rig.py", text)
    done = run(verb, "rig.py", *options, folder=box.folder)
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert words in said
    assert "bix" in said or "--limit" not in options
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said


def test_a_lab_is_called_what_a_host_can_be_called() -> None:
    told = CliRunner().invoke(main, ["lab", "--name", "../x", "list"])
    assert told.exit_code == 1
    assert told.output.startswith("Error: ")
