"""Which engine is taken for which sources."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab import base_images, engine_cache
from rigwright.paths import ROOT


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of all that an engine is compiled from."""
    for pattern in engine_cache.SOURCES:
        for path in ROOT.glob(pattern):
            copy = tmp_path / "sources" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path / "sources"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setattr(engine_cache, "CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    yield tmp_path / "cache"


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


def host(upper: Path, *engines: str) -> Any:
    """A host that has compiled some, and not finished another."""
    for name in (*engines, "unfinished"):
        (upper / engine_cache.ENGINES / name / "bin").mkdir(parents=True)
    for name in engines:
        (upper / engine_cache.ENGINES / name / "build.json").write_text("{}")
        (upper / engine_cache.ENGINES / "link").symlink_to(name)
    return cast("Any", SimpleNamespace(upper_folder=upper, spec=SimpleNamespace(release="debian-13")))


def test_what_a_host_has_compiled_is_there_for_the_next_one(cache: Path, tmp_path: Path) -> None:
    assert engine_cache.cached_layers("debian-13") == ()
    engine_cache.save_engines(host(tmp_path / "upper", "llama.cpp-1"))
    (layer,) = engine_cache.cached_layers("debian-13")
    assert layer == str(engine_cache.cache_path("debian-13"))
    assert [path.name for path in (Path(layer) / engine_cache.ENGINES).iterdir()] == ["llama.cpp-1"]
    assert engine_cache.cached_layers("debian-12") == ()


def test_where_none_is_of_these_sources_the_last_one_of_the_release_is_taken(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ("debian-13-engines-new", "debian-13-engines-old", "debian-13-engines-half.123", "debian-12-engines-x")
    for age, name in zip((2, 3, 1, 0), made, strict=True):
        (cache / name).mkdir()
        os.utime(cache / name, (1_000_000 - age, 1_000_000 - age))
    assert engine_cache.cached_layers("debian-13") == (str(cache / "debian-13-engines-new"),)
    engine_cache.save_engines(host(tmp_path / "upper", "llama.cpp-1"))
    now = engine_cache.cache_path("debian-13")
    os.utime(now, (1, 1))
    assert engine_cache.cached_layers("debian-13") == (str(now),)
    os.utime(now)
    monkeypatch.setattr(engine_cache, "SOURCES", ())
    assert engine_cache.cache_path("debian-13") != now
    assert engine_cache.cached_layers("debian-13") == (str(now),)


def test_a_layer_that_is_there_is_never_changed(cache: Path, tmp_path: Path) -> None:
    engine_cache.save_engines(host(tmp_path / "upper", "llama.cpp-1"))
    engine_cache.save_engines(host(tmp_path / "another", "llama.cpp-2"))
    assert [path.name for path in (engine_cache.cache_path("debian-13") / engine_cache.ENGINES).iterdir()] == [
        "llama.cpp-1"
    ]
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("first", [True, False])
def test_another_process_may_be_first(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    def lost(new: Path, layer: Path) -> None:
        if first:
            layer.mkdir()
        raise OSError("there is something")

    monkeypatch.setattr(Path, "rename", lost)
    made = host(tmp_path / "upper", "llama.cpp-1")
    if first:
        engine_cache.save_engines(made)
        assert list(cache.iterdir()) == [engine_cache.cache_path("debian-13")]
    else:
        with pytest.raises(OSError, match="there is something"):
            engine_cache.save_engines(made)


def test_links_of_an_engine_stay_links(cache: Path, tmp_path: Path) -> None:
    made = host(tmp_path / "upper", "llama.cpp-1")
    (tmp_path / "upper" / engine_cache.ENGINES / "llama.cpp-1/lib.so").symlink_to("lib.so.1")
    engine_cache.save_engines(made)
    assert (engine_cache.cache_path("debian-13") / engine_cache.ENGINES / "llama.cpp-1/lib.so").is_symlink()


def test_a_host_that_has_compiled_nothing_keeps_nothing(cache: Path, tmp_path: Path) -> None:
    engine_cache.save_engines(host(tmp_path / "upper"))
    assert list(cache.iterdir()) == []
