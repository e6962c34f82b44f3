"""The description of each check, from its own words and its sources: for `--explain`, and the page of all checks."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from checks.pytest_frame import ORDER
from checks.survey.section import Section
from rigwright.problems import describe_exception, describe_unknown

HERE = Path(__file__).parent
OWN = "checks"


class UnknownCheck(Exception):
    """No check has this id, or a file of the user's own cannot be read."""


@dataclass(frozen=True)
class CheckDescription:
    """A check."""

    id: str
    title: str
    severity: str
    why: str
    blind: str
    file: str
    """Where it stands, without `test_`."""
    sections: tuple[Section[Any], ...]
    """Parts of the survey that it decides from."""
    given: tuple[str, ...]
    """Its other arguments, by the names of conftest.py's fixtures."""

    @property
    def limitations(self) -> list[str]:
        """Its limits: its own, and those of the facts that it reads."""
        return [text for text in (self.blind, *(section.blind for section in self.sections)) if text]


def list_checks() -> list[CheckDescription]:
    """All checks of ours, in the order that they run in."""
    place = {part: number for number, part in enumerate(ORDER)}
    names = sorted((path.stem for path in HERE.glob("test_*.py")), key=lambda name: (place.get(name[5:], 99), name))
    return [one for name in names for one in _checks_of_module(importlib.import_module(f"checks.{name}"))]


def list_user_checks(inventory: Path) -> list[CheckDescription]:
    """A user's own, beside an inventory.

    Raises:
        UnknownCheck: one of their files cannot be imported.
    """
    found: list[CheckDescription] = []
    for path in sorted((inventory.absolute().parent / OWN).glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"own_{path.stem}", path)
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            try:
                spec.loader.exec_module(module)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                # it is the operator's program: its errors are reported in one line
                raise UnknownCheck(f"{path}: {describe_exception(error)}") from None
            found += _checks_of_module(module)
    return found


def explain_check(identifier: str, inventory: Path | None) -> str:
    """All that is known of a check.

    Raises:
        UnknownCheck: there is none of that id, or one of the user's files cannot be imported.
    """
    known = {one.id: one for one in [*list_checks(), *(list_user_checks(inventory) if inventory else [])]}
    if identifier not in known:
        raise UnknownCheck(describe_unknown("check", identifier, known))
    one = known[identifier]
    rows = [
        ("proves", one.title),
        ("severity", one.severity),
        ("why", one.why),
        *(("cannot see", text) for text in one.limitations or ["nothing known"]),
        *(("source", f"the survey's {section.name}: {describe_section(section)}") for section in one.sections),
        *(("source", f"{name}: {text}") for name, text in _describe_fixtures(one.given)),
        ("file", f"checks/test_{one.file}.py"),
    ]
    return "\n".join([f"{one.id}  {one.title}", *(f"  {name:<10}  {text}" for name, text in rows[1:])])


def describe_section(section: Section[Any]) -> str:
    """The description of a section, in one line: from its program on the host."""
    text = (HERE / "survey/host" / f"{section.name}.py").read_text()
    return " ".join(text.partition('"""')[2].partition('"""')[0].partition("\n\n")[0].split()).rstrip(".")


def _describe_fixtures(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        function = _find_fixture(name)
        if told := inspect.getdoc(function) if function else "":
            yield name, told.partition("\n")[0].rstrip(".")


def _find_fixture(name: str, module: Any = None) -> FunctionType | None:
    """The function of a fixture: of a file of checks, or of all of them."""
    for place in (module, importlib.import_module("checks.conftest")):
        wrapped = getattr(getattr(place, name, None), "_fixture_function", None)
        if isinstance(wrapped, FunctionType):
            return wrapped
    return None


def _with_fixtures(function: FunctionType, module: Any) -> Iterator[FunctionType]:
    """A check, and the fixtures that it stands on."""
    yield function
    for name in inspect.signature(function).parameters:
        if fixture := _find_fixture(name, module):
            yield from _with_fixtures(fixture, module)


def _checks_of_module(module: Any) -> Iterator[CheckDescription]:
    for function in vars(module).values():
        for mark in getattr(function, "pytestmark", []):
            if mark.name != "check" or function.__module__ != module.__name__:
                continue
            seen: set[object] = set()
            functions = dict.fromkeys(_with_fixtures(function, module))
            sections = tuple(dict.fromkeys(one for each in functions for one in _sections_used(each, seen)))
            given = tuple(name for name in inspect.signature(function).parameters if name != "survey")
            words = {key: mark.kwargs[key] for key in ("title", "severity", "why", "blind")}
            file = re.sub("^(checks[.]|own_)?test_", "", module.__name__)
            yield CheckDescription(id=mark.kwargs["identifier"], **words, file=file, sections=sections, given=given)


def _sections_used(function: FunctionType, seen: set[object]) -> Iterator[Section[Any]]:
    """The sections whose names a function uses, or one of ours that it calls."""
    if function in seen:
        return
    seen.add(function)
    for name in _code_names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, Section):
            yield value
        elif isinstance(value, FunctionType) and value.__module__.startswith("checks"):
            yield from _sections_used(value, seen)


def _code_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _code_names(inner)
