"""Which engine is taken for which sources."""

import shutil
from pathlib import Path

import pytest

from lab import base_images, engine_cache
from rigwright.project_root import ROOT


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of all that an engine is compiled from."""
    for pattern in engine_cache.SOURCES:
        for path in ROOT.glob(pattern):
            copy = tmp_path / "sources" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path / "sources"


def test_every_pattern_of_sources_finds_something() -> None:
    assert [pattern for pattern in engine_cache.SOURCES if not list(ROOT.glob(pattern))] == []


def test_the_same_sources_have_the_same_place_wherever_they_are(sources: Path) -> None:
    assert engine_cache.cache_path("debian-13", sources) == engine_cache.cache_path("debian-13")


@pytest.mark.parametrize("pattern", engine_cache.SOURCES)
def test_a_change_of_anything_that_is_compiled_from_is_another_engine(sources: Path, pattern: str) -> None:
    before = engine_cache.cache_path("debian-13", sources)
    changed = next(sources.glob(pattern))
    changed.write_text(changed.read_text() + "\n")
    assert engine_cache.cache_path("debian-13", sources) != before


def test_another_release_or_base_image_has_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine_cache.cache_path("debian-13").name.partition("engines-")[2]
    assert engine_cache.cache_path("debian-12").name.partition("engines-")[2] != before
    monkeypatch.setattr(base_images, "PACKAGES", (*base_images.PACKAGES, "gcc"))
    assert engine_cache.cache_path("debian-13").name.partition("engines-")[2] != before
