"""What several unit tests are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.cli.resolving import web
from tests.unit.file_server import file_server
from tests.unit.lock_world import World
from tests.unit.samples import Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """An operator's folder with a valid catalogue and lock beside the inventory."""
    return Box(tmp_path)


@pytest.fixture(params=["json", "html"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A box to lock, with an index of either form."""
    with file_server() as files:
        folder = tmp_path / "box"
        folder.mkdir()
        made = World(folder, files, request.param)
        monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
        yield made
