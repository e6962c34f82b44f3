"""Messages of checks about their findings: names that hosts made up neither steer a terminal nor hide a verdict."""

import re
from importlib import import_module
from types import ModuleType

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from checks import Drift, check_catalogue, conftest, expect
from checks.remedy import instruction

FORGED = "x\x1b[2J\n  ok  box  S01  it runs\u2028\r"


def test_findings_stay_on_their_line() -> None:
    with pytest.raises(Drift) as drift:
        expect(FORGED, "y", instruction("deploy again"))
    said = str(drift.value)
    assert said.isprintable()
    assert said.startswith("expected y, found x")
    assert said.endswith("; deploy again")


def fixtures(module: ModuleType) -> set[str]:
    """Names of those that a module defines or imports."""
    return {name for name, one in vars(module).items() if isinstance(one, FixtureFunctionDefinition)}


def test_every_check_is_given_only_what_there_is() -> None:
    known = {*fixtures(conftest), *conftest.PARTS, "pytestconfig", "record_property"}
    lacking = {
        one.id: set(one.given) - known - fixtures(import_module(f"checks.test_{one.file}"))
        for one in check_catalogue.list_checks()
    }
    assert {name: names for name, names in lacking.items() if names} == {}


PRONOUN = re.compile(r"\b(nobody|nobody's|somebody|somebody's|anyone|whoever|who)\b")


def test_printed_texts_name_components_in_place_of_persons() -> None:
    texts = {one.id: (one.title, one.why, one.blind) for one in check_catalogue.list_checks()}
    assert {name: found for name, each in texts.items() if (found := PRONOUN.findall(" ".join(each)))} == {}
