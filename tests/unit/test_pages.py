"""Pages, docstrings and comments name files that exist."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.project_root import ROOT

CODE = ("rigwright", "roles", "templates", "checks", "cli", "lab", "bench", "benchmarks", "tests", "docs", "inventory")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
TEMPLATES = [*(ROOT / "templates").rglob("*.j2")]
PROGRAMS = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
NAMED = re.compile(rf"(?<![\w/.~-])(?:{'|'.join(CODE)})/[\w./*-]*(?:\.(?:py|j2|md)|/)(?!\.?\w)")
# a folder or a file; the rest is a place in it
LINKED = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
ANCHORED = re.compile(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def spoken(text: str) -> Iterator[str]:
    """Docstrings and comments of a program."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def missing(text: str) -> list[str]:
    """Files that a text names from the root, and that are not there."""
    return [name for name in NAMED.findall(text) if not any(ROOT.glob(name.rstrip("/")))]


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings, as forges make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(text)}


def named_paths(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PAGES, *TEMPLATES], ids=named_paths)
def test_a_page_names_files_that_are_there(path: Path) -> None:
    text = path.read_text()
    lost = [name for name in LINKED.findall(text) if not (path.parent / name).exists()] if path in PAGES else []
    assert missing(text) + lost == []


@pytest.mark.parametrize("path", PROGRAMS, ids=named_paths)
def test_docstrings_and_comments_name_files_that_are_there(path: Path) -> None:
    text = path.read_text()
    # its words are a part of its text, and hardly any has to be distinguished from code
    assert not missing(text) or [name for said in spoken(text) for name in missing(said)] == []


@pytest.mark.parametrize("path", PAGES, ids=named_paths)
def test_a_link_to_a_heading_finds_it(path: Path) -> None:
    links = [(path.parent / name if name else path, anchor) for name, anchor in ANCHORED.findall(path.read_text())]
    assert [anchor for target, anchor in links if target.suffix == ".md" and anchor not in anchors(target)] == []


def test_the_index_of_decisions_has_each_of_them() -> None:
    folder = ROOT / "docs" / "design" / "decisions"
    pages = {path.name: path.read_text().splitlines()[0] for path in folder.glob("0*.md")}
    index = (folder / "index.md").read_text()
    rows = {name: f"# {number}. {title}" for number, name, title in re.findall(r"\[(\d+)\]\((.+?)\) \| (.+) \|", index)}
    assert rows == pages
