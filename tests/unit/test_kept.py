"""Which engine is taken for which sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab import images, kept
from rigwright.paths import ROOT


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of all that an engine is compiled from."""
    for pattern in kept.SOURCES:
        for path in ROOT.glob(pattern):
            copy = tmp_path / "sources" / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return tmp_path / "sources"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own."""
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    yield tmp_path / "cache"


def test_every_pattern_of_sources_finds_something() -> None:
    assert [pattern for pattern in kept.SOURCES if not list(ROOT.glob(pattern))] == []


def test_the_same_sources_have_the_same_place_wherever_they_are(sources: Path) -> None:
    assert kept.place("debian-13", sources) == kept.place("debian-13")


@pytest.mark.parametrize("pattern", kept.SOURCES)
def test_a_change_of_anything_that_is_compiled_from_is_another_engine(sources: Path, pattern: str) -> None:
    before = kept.place("debian-13", sources)
    changed = next(sources.glob(pattern))
    changed.write_text(changed.read_text() + "\n")
    assert kept.place("debian-13", sources) != before


def test_another_release_or_base_image_has_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept.place("debian-13").name.partition("engines-")[2]
    assert kept.place("debian-12").name.partition("engines-")[2] != before
    monkeypatch.setattr(images, "PACKAGES", (*images.PACKAGES, "gcc"))
    assert kept.place("debian-13").name.partition("engines-")[2] != before


def host(upper: Path, *engines: str) -> Any:
    """A host that has compiled some, and not finished another."""
    for name in (*engines, "unfinished"):
        (upper / kept.ENGINES / name / "bin").mkdir(parents=True)
    for name in engines:
        (upper / kept.ENGINES / name / "build.json").write_text("{}")
        (upper / kept.ENGINES / "link").symlink_to(name)
    return cast("Any", SimpleNamespace(upper=upper, spec=SimpleNamespace(release="debian-13")))


def test_what_a_host_has_compiled_is_there_for_the_next_one(cache: Path, tmp_path: Path) -> None:
    assert kept.layers("debian-13") == ()
    kept.keep(host(tmp_path / "upper", "llama.cpp-1"))
    (layer,) = kept.layers("debian-13")
    assert layer == str(kept.place("debian-13"))
    assert [path.name for path in (Path(layer) / kept.ENGINES).iterdir()] == ["llama.cpp-1"]
    assert kept.layers("debian-12") == ()


def test_where_none_is_of_these_sources_the_last_one_of_the_release_is_taken(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ("debian-13-engines-new", "debian-13-engines-old", "debian-13-engines-half.123", "debian-12-engines-x")
    for age, name in zip((2, 3, 1, 0), made, strict=True):
        (cache / name).mkdir()
        os.utime(cache / name, (1_000_000 - age, 1_000_000 - age))
    assert kept.layers("debian-13") == (str(cache / "debian-13-engines-new"),)
    kept.keep(host(tmp_path / "upper", "llama.cpp-1"))
    now = kept.place("debian-13")
    os.utime(now, (1, 1))
    assert kept.layers("debian-13") == (str(now),)
    os.utime(now)
    monkeypatch.setattr(kept, "SOURCES", ())
    assert kept.place("debian-13") != now
    assert kept.layers("debian-13") == (str(now),)


def test_a_layer_that_is_there_is_never_changed(cache: Path, tmp_path: Path) -> None:
    kept.keep(host(tmp_path / "upper", "llama.cpp-1"))
    kept.keep(host(tmp_path / "another", "llama.cpp-2"))
    assert [path.name for path in (kept.place("debian-13") / kept.ENGINES).iterdir()] == ["llama.cpp-1"]
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
        kept.keep(made)
        assert list(cache.iterdir()) == [kept.place("debian-13")]
    else:
        with pytest.raises(OSError, match="there is something"):
            kept.keep(made)


def test_links_of_an_engine_stay_links(cache: Path, tmp_path: Path) -> None:
    made = host(tmp_path / "upper", "llama.cpp-1")
    (tmp_path / "upper" / kept.ENGINES / "llama.cpp-1/lib.so").symlink_to("lib.so.1")
    kept.keep(made)
    assert (kept.place("debian-13") / kept.ENGINES / "llama.cpp-1/lib.so").is_symlink()


def test_a_host_that_has_compiled_nothing_keeps_nothing(cache: Path, tmp_path: Path) -> None:
    kept.keep(host(tmp_path / "upper"))
    assert list(cache.iterdir()) == []
