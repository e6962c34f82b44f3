"""What commands print and hosts are given is what it was, byte for byte.

Whoever means a difference writes the files anew (`python -m tests.unit.golden`) in a commit of its own, and reviews it.
"""

from __future__ import annotations

import difflib

import pytest

from tests.unit.golden import FOLDER, render


def test_each_output_is_what_it_was() -> None:
    made = render()
    assert {path.name for path in FOLDER.glob("*.txt")} == made.keys()
    for name, text in made.items():
        before = (FOLDER / name).read_text()
        if text != before:
            lines = list(difflib.unified_diff(before.splitlines(), text.splitlines(), "kept", "now", n=1, lineterm=""))
            pytest.fail(f"{name}: {len(lines)} lines; the first:\n" + "\n".join(lines[:40]), pytrace=False)
