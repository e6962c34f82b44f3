"""The table of protections that `python -m tests.mutations` removes fits the code."""

from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.mutations import ProtectionMutation, load_mutations


@pytest.mark.parametrize("mutation", load_mutations(), ids=lambda one: one.protects)
def test_a_protection_is_where_the_table_says(mutation: ProtectionMutation) -> None:
    assert mutation.locate(ROOT).is_file()
    assert mutation.new != mutation.old
    assert all((ROOT / test).exists() for test in mutation.tests)


def test_a_protection_whose_file_and_names_have_changed_is_removed(tmp_path: Path) -> None:
    (tmp_path / "roles").mkdir()
    moved = tmp_path / "roles/renamed.py"
    moved.write_text("if size == file.size and digest == file.sha256:\n    pass\n")
    row = ProtectionMutation(
        "", "roles/gone.py", "if <1> == <2>.size and <3> == <2>.sha256:", "if <1> == <2>.size:", ()
    )
    assert row.locate(tmp_path) == moved
    row.apply(moved)
    assert moved.read_text() == "if size == file.size:\n    pass\n"
