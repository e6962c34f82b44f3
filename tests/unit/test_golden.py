"""Output of commands and files for hosts are unchanged, byte for byte.

`python -m tests.unit.golden` writes them anew. An intended difference is a commit of its own, and reviewed.
"""

import difflib

import pytest

from rigwright.inventory import ROOT
from tests.unit.golden import render
from tests.unit.golden_hosts import FOLDER, INVENTORIES


def test_each_output_is_what_it_was() -> None:
    made = render()
    assert {*INVENTORIES} == {path.stem for path in (ROOT / "inventory").glob("*.py")} | {"everything"}
    assert {path.name for path in FOLDER.glob("*.txt")} == made.keys()
    for name, text in made.items():
        before = (FOLDER / name).read_text()
        if text != before:
            lines = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "kept", "now", n=1, lineterm=""))
            pytest.fail(f"{name}: {len(lines)} lines; the first:\n" + "\n".join(lines[:40]), pytrace=False)
