"""A command's output in pages is its real one, and every block of it has a generator."""

import re
from pathlib import Path

import pytest

from cli.lock_resolver.lock_diff import describe_changes
from rigwright.project_root import ROOT
from tests.documented_output import PAGES, all_outputs, unmarked_outputs
from tests.unit.documented_outputs import COLUMNS, OUTPUT_MAKERS
from tests.unit.samples import sample_artefact, sample_deb

HOSTS = ROOT / "tests" / "hosts" / "test_documented_output.py"


@pytest.mark.parametrize("name", OUTPUT_MAKERS)
def test_a_page_shows_what_is_printed(name: str) -> None:
    made = OUTPUT_MAKERS[name]()
    assert 0 < max(map(len, made.splitlines())) <= COLUMNS
    assert all_outputs()[name] == made, "run `.venv/bin/python -m tests.unit.documented_outputs`"


def test_every_output_is_made_here_or_taken_from_a_host() -> None:
    hosts = set(re.findall(r'shown\["([a-z-]+)"\]', HOSTS.read_text()))
    assert hosts
    assert {*all_outputs()} == {*OUTPUT_MAKERS} | hosts


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_shows_what_nothing_makes(path: Path) -> None:
    assert [*unmarked_outputs(path.read_text())] == []


MODEL: dict[str, object] = {
    "group": "qwen",
    "repository": "unsloth/Qwen3.6-27B-GGUF",
    "version": "1234567" + "0" * 33,
    "sources": ["hub:unsloth/Qwen3.6-27B-GGUF"],
}


@pytest.mark.parametrize(
    ("page", "rows", "shown"),
    [
        (
            "reference/lock-and-bundle.md",
            [sample_artefact(name="my-model", version="2026-11", size=773_700)],
            "+ weight my-model 2026-11  773.7 kB",
        ),
        (
            "reference/lock-and-bundle.md",
            [sample_deb(f"package-{number}", "595.91.07-1") for number in range(42)] + [sample_deb()],
            "+ driver driver-debian-13 595.91.07, 43 packages",
        ),
        ("guides/weights.md", [sample_artefact(**MODEL)], "+ model qwen unsloth/Qwen3.6-27B-GGUF@1234567 "),
    ],
)
def test_a_line_of_lock_is_as_a_page_has_it(page: str, rows: list[object], shown: str) -> None:
    (line,) = describe_changes([], rows)  # type: ignore[arg-type]
    assert line.startswith(shown)
    assert shown in (ROOT / "docs" / page).read_text()
