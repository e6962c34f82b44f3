"""The table of protections that `python -m tests.mutations` removes fits the code."""

import pytest

from rigwright.project_root import ROOT
from tests.mutations import ProtectionMutation, load_mutations


@pytest.mark.parametrize("mutation", load_mutations(), ids=lambda one: one.protects)
def test_a_protection_is_where_the_table_says(mutation: ProtectionMutation) -> None:
    assert mutation.locate(ROOT).is_file()
    assert mutation.new != mutation.old
    assert all((ROOT / test).exists() for test in mutation.tests)
