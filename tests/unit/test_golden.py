"""Output of commands and files for hosts are unchanged, byte for byte.

`python -m tests.unit.golden` writes them anew. An intended difference is a commit of its own, and reviewed.
"""

import difflib

import pytest

from rigwright.inventory import ROOT
from tests.unit.golden import Texts, render
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


def test_files_that_another_host_has_too_are_counted_with_their_paths() -> None:
    texts = Texts()
    texts.host("first", [(path, f"{path}\n") for path in ("a", "b", "c")])
    sections = [texts.host("second", [(path, f"{path}\n") for path in paths]) for paths in ("ab", "ba", "ac")]
    assert all(one.startswith("== second = first: 2 files") for one in sections)
    assert (sections[0] == sections[1], sections[0] == sections[2]) == (True, False)
