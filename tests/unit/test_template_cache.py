"""Compiled templates are kept, and never stale."""

import os
from pathlib import Path

import pytest
from jinja2 import Environment, FileSystemLoader

from rigwright.template_cache import TemplateCache


class TemplateFolder:
    """Templates, the file that says how they are compiled, and what is kept of them."""

    def __init__(self, folder: Path) -> None:
        self.templates, self.kept, self.how = folder, folder / "__pycache__", folder / "render.py"
        self.template = folder / "one.j2"
        self.template.write_text("{{ 1 | shown }} {{ value }}")
        self.how.write_text("one")
        self.compiled = 0

    def render(self, shown: str = "a") -> str:
        """A new process's rendering of the template."""
        house = self

        class Counting(Environment):
            def _generate(self, *arguments: object, **more: object) -> str:
                house.compiled += 1
                return super()._generate(*arguments, **more)  # type: ignore[no-any-return,misc]

        environment = Counting(
            loader=FileSystemLoader(self.templates), bytecode_cache=TemplateCache(self.kept, self.how)
        )
        environment.filters["shown"] = lambda value: f"{shown}{value}"
        return environment.get_template("one.j2").render(value="x")


@pytest.fixture
def house(tmp_path: Path) -> TemplateFolder:
    return TemplateFolder(tmp_path)


def test_a_template_is_compiled_once(house: TemplateFolder) -> None:
    assert [house.render() for _ in range(3)] == ["a1 x"] * 3
    assert house.compiled == 1


def test_a_template_that_changed_is_compiled_anew_though_its_time_and_size_are_the_same(house: TemplateFolder) -> None:
    house.render()
    there = house.template.stat()
    house.template.write_text("{{ 2 | shown }} {{ value }}")
    os.utime(house.template, ns=(there.st_atime_ns, there.st_mtime_ns))
    assert house.render() == "a2 x"


def test_filters_that_changed_are_in_constants_too(house: TemplateFolder) -> None:
    house.render()
    house.how.write_text("two")
    assert house.render(shown="b") == "b1 x"


def test_one_that_is_damaged_is_compiled_anew(house: TemplateFolder) -> None:
    house.render()
    (kept,) = house.kept.iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:20], whole[:-9], whole[:-9] + bytes(9)):
        kept.write_bytes(damaged)
        assert house.render() == "a1 x"
        assert kept.read_bytes() == whole


def test_where_nothing_can_be_kept_each_process_compiles(house: TemplateFolder) -> None:
    house.kept.write_text("a file")
    assert [house.render() for _ in range(2)] == ["a1 x"] * 2
    assert house.compiled == 2
