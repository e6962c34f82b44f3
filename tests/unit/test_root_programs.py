"""The one list of what root starts on hosts: nothing that templates, units and roles start is missing in it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.fetch_job_spec import render_requirements
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from rigwright.supply.root_programs import LOCKED_GROUPS, PROGRAMS
from tests.unit.samples import sample_wheel
from tests.unit.shell_words import defined_functions, parse_started

LISTED = frozenset(name for one in PROGRAMS for name in one.names)
CONTROLLER = frozenset({"ssh-keygen"})
"""Programs that the operator's machine starts; no host does."""
TEMPLATES = sorted(one for one in (ROOT / "templates").rglob("*.j2") if one.suffixes[-2:] != [".conf", ".j2"])
SHELL = [one for one in TEMPLATES if one.name.endswith(".sh.j2") or one.read_text().startswith("#!/bin/sh")]
UNITS = [one for one in TEMPLATES if ".service." in one.name or "hardened" in one.name]
SOURCES = sorted(one for folder in ("roles", "rigwright") for one in (ROOT / folder).rglob("*.py"))
DEFINED = frozenset(name for one in TEMPLATES for name in defined_functions(one.read_text()))
INSTALLED = re.compile(r"(?:\}|\$\w+)(/bin/[a-z][\w-]*)(?![\w.-])")
"""A program below a folder that is named elsewhere: of an environment, a toolkit, an engine."""
EXEC = re.compile(r"^Exec\w+=[-+!@:|]*(/\S+)", re.MULTILINE)


def _name(program: str) -> str:
    """As the list has it."""
    return program.rpartition("/")[2]


def _of_python(path: Path) -> Iterator[str]:
    """The programs that a module starts by subprocess, and those that operations of roles have a host run."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if called in ("run", "Popen", "check_output", "check_call") and isinstance(first, ast.List) and first.elts:
            first = first.elts[0]
        elif called != "StringCommand":
            continue
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield from parse_started(first.value)


@pytest.mark.parametrize("path", SHELL, ids=lambda one: str(one.relative_to(ROOT / "templates")))
def test_programs_of_scripts_are_listed(path: Path) -> None:
    assert {_name(one) for one in parse_started(path.read_text()) - DEFINED} - LISTED == set()


@pytest.mark.parametrize("path", UNITS, ids=lambda one: str(one.relative_to(ROOT / "templates")))
def test_programs_of_units_are_listed(path: Path) -> None:
    assert {_name(one) for one in EXEC.findall(path.read_text())} - LISTED == set()


def test_programs_of_roles_and_host_programs_are_listed() -> None:
    found = {_name(one): path.name for path in SOURCES for one in _of_python(path)}
    assert {name: path for name, path in found.items() if name not in LISTED | CONTROLLER} == {}


def test_programs_of_what_is_installed_from_a_lock_are_listed() -> None:
    found = {one[1:] for path in (*TEMPLATES, *SOURCES) for one in INSTALLED.findall(path.read_text())}
    assert found - LISTED == set()


def test_groups_that_root_runs_are_shipped() -> None:
    assert {*Lock.load([ROOT / "locks"]).groups} >= LOCKED_GROUPS


def test_no_group_that_is_not_listed_is_installed_for_root() -> None:
    assert render_requirements([sample_wheel(group=group) for group in LOCKED_GROUPS])
    with pytest.raises(ValueError, match="another is not among the locked groups"):
        render_requirements([sample_wheel(group="another")])


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("curl -s x | evil --now", {"curl", "evil"}),
        ('a="$(evil "$1" | sort)" && [ -e x ] || { other; }', {"evil", "sort", "other"}),
        ("case $x in\n  none | some) evil ;;\n  'a b') ;;\nesac", {"evil"}),
        ("f() {\n  local x\n  if ! evil; then x=1 second y; fi\n}\nf", {"evil", "second", "f"}),
        ("prlimit --fsize={{ size }} -- evil x", {"prlimit", "evil"}),
        ("# evil\ncat <<'END' | second\nevil\nEND\n{% if evil %}true{% endif %}", {"cat", "second"}),
        ("/usr/bin/evil x; echo evil 'evil; evil'", {"/usr/bin/evil"}),
    ],
)
def test_programs_that_a_text_starts_are_read_off_it(text: str, programs: set[str]) -> None:
    assert parse_started(text) == programs
