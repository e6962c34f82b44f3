"""The table of protections that `python -m tests.mutations` removes fits the code."""

from __future__ import annotations

import pytest

from rigwright.paths import ROOT
from tests.mutations import Mutation, load_mutations


@pytest.mark.parametrize("mutation", load_mutations(), ids=lambda one: one.protects)
def test_a_protection_is_where_the_table_says(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert all((ROOT / test).exists() for test in mutation.tests)
