"""The output of commands in pages.

It stands in a fenced block without a language, between `<!-- output of NAME -->` and `<!-- end of NAME -->`: either
`tests/unit/documented_outputs.py` knows how NAME is made, or `tests/hosts/test_documented_output.py` takes it from a
host. Whatever else is fenced says what it is.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rigwright.project_root import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BLOCK = re.compile(
    r"(?P<begin><!-- output of (?P<name>[a-z-]+) -->\n+```\n)(?P<text>.*?)(?P<end>```\n+<!-- end of (?P=name) -->\n)",
    re.DOTALL,
)
FENCE = re.compile(r"^```(?P<language>[^\n]*)\n.*?^```$", re.DOTALL | re.MULTILINE)
MADE = re.compile(r"<!-- (?:keys|output) of (?P<name>[a-z.-]+) -->\n.*?<!-- end of (?P=name) -->\n", re.DOTALL)
DIFFERS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z| UTC)?", "TIME"),
    (r"\b[0-9a-f]{12}(?:[0-9a-f]{52})?\b", "DIGEST"),
    (r"\b(?:\d+[dhm] )?\d+[dhms]\b", "AGE"),
    (r"\b\d+\.\d (?:[GMk]?B)\b", "SIZE"),
    (r"\b\w[\w.-]*@[\w.-]+", "WHO"),
    (r"process \d+", "process N"),
    (r"(?:~|/?[\w.-]+)(?:/[\w.-]+)*/rig\.py", "INVENTORY"),
)
"""Parts that differ on another host or day."""


def parse_outputs(text: str) -> dict[str, str]:
    """Name -> what a page shows under it."""
    return {found["name"]: found["text"] for found in BLOCK.finditer(text)}


def all_outputs() -> dict[str, str]:
    """Name -> what any page shows under it."""
    return {name: text for path in PAGES for name, text in parse_outputs(path.read_text()).items()}


def unmarked_outputs(text: str) -> Iterator[str]:
    """Fenced blocks of a page that are output by their look, and that nothing makes."""
    for found in FENCE.finditer(MADE.sub("", text)):
        if not found["language"]:
            yield found[0]


def normalise_output(text: str) -> str:
    """A text without what differs from host to host and day to day, nor how wide its columns and lines are."""
    text = " ".join(text.split())
    for pattern, word in DIFFERS:
        text = re.sub(pattern, word, text)
    return text


def compare_page(path: Path, made: dict[str, str]) -> tuple[str, str]:
    """A page's text as it is, and as it should be by what was made.

    Args:
        path: The page.
        made: Name -> output; other blocks stay.
    """
    text = path.read_text()
    return text, BLOCK.sub(
        lambda found: f"{found['begin']}{made.get(found['name'], found['text'])}{found['end']}", text
    )
