"""Documentation, help texts, docstrings and comments avoid the sentence patterns of tests/prose.py."""

import re
from pathlib import Path

import pytest

from cli.reference import TABLE_RENDERERS
from rigwright.project_root import ROOT
from tests.prose import PATTERNS, SOURCE_PATTERNS, find_source_violations, find_violations

PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ["bench", "benchmarks", "checks", "cli", "distribution", "inventory", "lab", "rigwright", "roles", "tests"]
FIXED = re.compile(
    r"roles/(gateway/host/(router/|reserve)|self_check/host/|monitoring/host/gpu|nvidia_cards/host/power)"
    r"|rigwright/(engines/image/(bundle|calls|originals)\.|engines/.*launcher\.py|patches/apply|plugins/verdict)"
    r"|rigwright/(serving/plugin_selftest|nvidia/cards/(power|smi)\.)|tests/prose\.py"
)
"""Programs whose text enters digests on hosts, and the patterns themselves: an edit would restart services."""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_avoids_the_patterns(path: Path) -> None:
    assert [*find_violations(path.read_text())] == []


def test_help_texts_avoid_the_patterns() -> None:
    assert [*find_violations(TABLE_RENDERERS["verbs"]())] == []


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.pattern)
def test_a_pattern_finds_its_examples(pattern: object) -> None:
    for example in pattern.examples:  # type: ignore[attr-defined]
        assert pattern.reason in {reason for _, _, reason in find_violations(example)}  # type: ignore[attr-defined]


def test_code_and_generated_blocks_are_no_prose() -> None:
    text = "`who`\n```sh\nwho\n```\n<!-- keys of a -->\nnobody\n<!-- end of a -->\n[text](nobody.md)\nBeside it.\n"
    assert [(line, words) for line, words, _ in find_violations(text)] == [(9, "Beside")]
    assert re.search(PATTERNS[0].pattern, "users who write") is None


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_avoid_the_worst_patterns(folder: str) -> None:
    sources = [one for one in sorted((ROOT / folder).rglob("*.py")) if not FIXED.match(str(one.relative_to(ROOT)))]
    assert sources
    assert [(str(one), *row) for one in sources for row in find_source_violations(one.read_text())] == []


@pytest.mark.parametrize("pattern", SOURCE_PATTERNS, ids=lambda one: one.pattern)
def test_a_pattern_of_sources_finds_its_examples(pattern: object) -> None:
    for example in pattern.examples:  # type: ignore[attr-defined]
        for text in (
            f'"""{example}"""',
            f"# {example}",
            f"x = 1  # {example}",
            f'def f():\n    """First.\n\n    {example}"""',
        ):
            assert pattern.reason in {reason for _, _, reason in find_source_violations(text)}  # type: ignore[attr-defined]


def test_code_and_strings_of_sources_are_no_prose() -> None:
    text = 'x = "% what nobody has"\ny = """\n% what is it\n"""\nwho = 1  % a user `nobody`\n\n\n% Who\n% asks.\n'
    assert [(line, words) for line, words, _ in find_source_violations(text.replace("%", "#"))] == [(8, "Who")]
