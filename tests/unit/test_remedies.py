"""Every remedy that checks can print is listed, parses, and uses programs that its host has."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from checks import DEPLOY, Drift, remedy
from checks.remedy import Remedy, host_command, instruction, rig_command
from cli import COMMANDS, main
from rigwright.project_root import ROOT
from tests.hosts.drift_tables import load_drifts
from tests.remedy_table import (
    HOST_COMMANDS,
    INSTRUCTIONS,
    NO_HOST,
    PROGRAMS,
    RIG_COMMANDS,
    command_pattern,
)

MAKERS = {"rig_command": RIG_COMMANDS, "host_command": HOST_COMMANDS, "instruction": INSTRUCTIONS}
ASSERTIONS = {"Drift": 2, "expect": 2, "expect_none": 2, "expect_no_items": 2}
"""The functions that take a remedy -> the position of that argument."""
OWN = ("remedy.py", "__init__.py")
SAMPLE = "/srv/it's here; $(reboot)"
SEPARATORS = re.compile(r"&&|\|\||[;|]")


def iterate_sources() -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the checks that run on the operator's machine."""
    for path in sorted((ROOT / "checks").rglob("*.py")):
        if "host" not in path.relative_to(ROOT / "checks").parts:
            yield path, ast.parse(path.read_text())


def literal_text(node: ast.expr) -> str | None:
    """A literal text, with {} for each value in it; None for what is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return None


def collect_templates(maker: str) -> set[str]:
    """The texts that one of remedy.py's functions is called with."""
    found = set()
    for path, tree in iterate_sources():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == maker):
                continue
            words = [literal_text(one) for one in (node.args if maker == "rig_command" else node.args[:1])]
            # of a user's own check the text is the user's
            if path.name != "remedy.py" or None not in words:
                assert None not in words, f"{path}:{node.lineno}: the text is not a literal"
                found.add(" ".join(map(str, words)))
    return found


@pytest.mark.parametrize("maker", MAKERS)
def test_all_that_checks_print_is_listed_with_the_test_that_runs_it_or_a_reason(maker: str) -> None:
    assert collect_templates(maker) == set(MAKERS[maker])


def test_each_command_is_run_by_a_drift_that_there_is() -> None:
    rows = load_drifts()
    for command, proof in (HOST_COMMANDS | RIG_COMMANDS).items():
        assert proof.startswith(NO_HOST) or proof in rows, f"{command}: {proof}"


def test_no_check_of_ours_has_a_text_as_its_remedy() -> None:
    for path, tree in iterate_sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASSERTIONS:
                given = node.args[ASSERTIONS[node.func.id] :][:1]
                assert given, f"{path}:{node.lineno}"
                assert literal_text(given[0]) is None, f"{path}:{node.lineno}: a remedy is a Remedy"


@pytest.mark.parametrize("words", [pytest.param(words.split(), id=words) for words in RIG_COMMANDS])
@pytest.mark.parametrize("host", ["", "box one"])
def test_a_command_of_this_machine_is_one_of_ours_with_the_inventory_and_the_host(words: list[str], host: str) -> None:
    names = [word for word in words if not word.startswith("-")]
    (step,) = rig_command(" ".join(names), *words[len(names) :]).locate("/srv/my boxes/rig.py", host)
    program, verb, *rest = shlex.split(step.text)
    command: click.Command | None = COMMANDS[verb]
    assert program == "rigwright"
    if isinstance(command, click.Group):
        command, rest = command.get_command(click.Context(command), rest[0]), rest[1:]
    assert command is not None
    values, rest, _ = command.make_parser(click.Context(command, **main.context_settings)).parse_args(rest)
    assert (values["inventory"], values.get("limit") or "", rest) == ("/srv/my boxes/rig.py", host, [])


@pytest.mark.parametrize("template", HOST_COMMANDS)
def test_a_command_of_the_host_is_whole_quoted_and_of_known_programs(template: str) -> None:
    (step,) = host_command(template, *[SAMPLE] * 4).steps
    assert step.where == "host"
    done = subprocess.run(["sh", "-n", "-c", step.text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"(?<![-=:])\b[A-Z]{3,}\b|<|\.\.\.", template), "it has a placeholder"
    assert command_pattern(template).fullmatch(step.text)
    bare = re.sub(r"'[^']*'|\$\([^)]*\)", "x", template.replace("> /dev/null", ""))
    for part in SEPARATORS.split(bare):
        words = [one for one in part.split() if one not in ("do", "done")]
        if words and words[0] != "for" and "=" not in words[0]:
            assert words[0] in PROGRAMS, f"{words[0]}: not known to be there"


def test_values_are_quoted_and_what_does_not_print_makes_an_instruction() -> None:
    (step,) = host_command("rm -- {}", ["/a b", "/c'd"]).steps
    assert shlex.split(step.text) == ["rm", "--", "/a b", "/c'd"]
    assert host_command("rm -- {}", "/a\nb").steps[0].where == "person"


def test_steps_keep_their_order_and_each_is_printed_once() -> None:
    both = remedy.restart_units("a.service") + DEPLOY + remedy.restart_units("a.service")
    assert [one.where for one in both.steps] == ["host", "here"]
    drift = Drift.combine([Drift(1, 2, instruction("look")), Drift(1, 3, both), Drift(1, 4, DEPLOY)])
    assert [one.where for one in drift.remedy.steps] == ["person", "host", "here"]


def test_the_text_of_a_users_own_check_is_an_instruction() -> None:
    assert Drift(1, 2, "mount /data").remedy == Remedy(instruction("mount /data").steps)  # type: ignore[arg-type]
