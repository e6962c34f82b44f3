"""What several unit tests are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.samples import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """An operator's folder with a valid catalogue and lock beside the inventory."""
    return Box(tmp_path)
