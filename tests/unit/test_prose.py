"""Documentation, help texts, docstrings and comments avoid the sentence patterns of tests/prose.py."""

import re
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.prose import PATTERNS, find_violations

PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
HELP = ROOT / "tests" / "unit" / "data" / "golden" / "help.txt"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_avoids_the_patterns(path: Path) -> None:
    assert [*find_violations(path.read_text())] == []


def test_help_texts_avoid_the_patterns() -> None:
    assert [*find_violations(HELP.read_text())] == []


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.pattern)
def test_a_pattern_finds_its_examples(pattern: object) -> None:
    for example in pattern.examples:  # type: ignore[attr-defined]
        assert pattern.reason in {reason for _, _, reason in find_violations(example)}  # type: ignore[attr-defined]


def test_code_and_generated_blocks_are_no_prose() -> None:
    text = "`who`\n```sh\nwho\n```\n<!-- keys of a -->\nnobody\n<!-- end of a -->\n[text](nobody.md)\nBeside it.\n"
    assert [(line, words) for line, words, _ in find_violations(text)] == [(9, "Beside")]
    assert re.search(PATTERNS[0].pattern, "users who write") is None
