"""What checks say of what they found: names that hosts made up neither steer a terminal nor hide a verdict."""

import os
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from checks import Drift, catalogue, conftest, expect
from rigwright.delivery.tool_environments import parse_installed_tools, render_tool_query
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in

FORGED = "x\x1b[2J\n  ok  box  S01  it runs\u2028\r"


def test_what_was_found_stays_on_its_line() -> None:
    with pytest.raises(Drift) as drift:
        expect(FORGED, "y", "deploy again")
    said = str(drift.value)
    assert said.isprintable()
    assert said.startswith("expected y, found x")
    assert said.endswith("; deploy again")


def package(folder: Path, name: str, version: str) -> None:
    made = folder / f"{name}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def packages(folder: Path) -> set[str]:
    script = render_tool_query(str(folder))
    return parse_installed_tools(
        short_programs.run_program(["sh", "-c", script], env={"PATH": os.environ["PATH"]}).stdout.splitlines()
    )


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with two packages."""
    site = tmp_path / "site"
    site.mkdir()
    package(site, "Some_Thing", "1.0")
    package(site, "other", "2.0.1")
    write_stand_in(tmp_path / "bin", "python", f'shift; exec env PYTHONPATH={site} /usr/bin/env python3 -S "$@"')
    return tmp_path


def test_packages_of_an_environment_are_known_as_an_index_spells_them(environment: Path) -> None:
    assert packages(environment) == {"some-thing==1.0", "other==2.0.1"}


def test_a_package_of_a_forged_name_is_none_of_the_locked_ones(environment: Path) -> None:
    package(environment / "site", "third", "3.0\n other==9")
    (environment / "site/odd-1.dist-info").mkdir()
    (environment / "site/odd-1.dist-info/METADATA").write_text("Name: odd x==1\\x1b\nVersion: \x1b[2J1\n")
    (environment / "site/bare-1.dist-info").mkdir()
    assert {one for one in packages(environment) if one.startswith(("some", "other"))} == {
        "some-thing==1.0",
        "other==2.0.1",
    }
    package(environment / "site", "cut", "1\03\0package\0locked\09")
    assert all(one.isprintable() for one in packages(environment))
    assert not [one for one in packages(environment) if one.startswith(("==", "locked")) or one.endswith("==")]


def test_without_an_environment_there_is_none(tmp_path: Path) -> None:
    assert packages(tmp_path) == set()


def fixtures(module: ModuleType) -> set[str]:
    """Names of those that a module defines or imports."""
    return {name for name, one in vars(module).items() if isinstance(one, FixtureFunctionDefinition)}


def test_every_check_is_given_only_what_there_is() -> None:
    known = {*fixtures(conftest), *conftest.PARTS, "pytestconfig", "record_property"}
    lacking = {
        one.id: set(one.given) - known - fixtures(import_module(f"checks.test_{one.file}"))
        for one in catalogue.list_checks()
    }
    assert {name: names for name, names in lacking.items() if names} == {}
