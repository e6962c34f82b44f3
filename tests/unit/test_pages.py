"""Pages, docstrings and comments name files that are there: whoever follows one finds it."""

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
# a folder or a file; what follows is a place in it
LINKED = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


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
    # what it says is a part of its text, and of hardly any has to be told from code
    assert not missing(text) or [name for said in spoken(text) for name in missing(said)] == []
