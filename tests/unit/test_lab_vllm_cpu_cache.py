"""What the lab keeps of an environment that a host has put together: what is whole, and not for ever."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.engine_cache import ENGINES
from lab.hosts import LabHost
from rigwright.supply.lock import Artefact
from tests.stand_ins import vllm_cpu_cache
from tests.stand_ins.vllm_cpu_cache import NAME, cache_path, prune_cache, save_environment
from tests.unit.samples import sample_wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr(vllm_cpu_cache, "CACHE", folder)
    monkeypatch.setattr(vllm_cpu_cache, "list_labs", list)
    return folder


def host(folder: Path, *built: str) -> LabHost:
    """One that has put environments together; the last thing that it writes is build.json."""
    for name in built:
        (folder / ENGINES / name / "env/lib").mkdir(parents=True)
        (folder / ENGINES / name / "env/lib/a b.py").write_text("1")
        (folder / ENGINES / name / "env/python").symlink_to("lib")
        (folder / ENGINES / name / "build.json").write_text("{}")
    return cast("LabHost", SimpleNamespace(upper_folder=folder))


def test_what_is_whole_is_kept(tmp_path: Path, cache: Path) -> None:
    built = host(tmp_path / "upper", "vllm-1.0-abc", "other-1.0-def")
    half = tmp_path / "upper" / ENGINES / "vllm-2.0-abc"
    half.mkdir()
    save_environment(built, cache / f"{NAME}1", "vllm")
    assert [path.name for path in (cache / f"{NAME}1" / ENGINES).iterdir()] == ["vllm-1.0-abc"]
    kept = cache / f"{NAME}1" / ENGINES / "vllm-1.0-abc"
    assert (kept / "env/lib/a b.py").read_text() == "1"
    assert (kept / "env/python").readlink() == Path("lib")


def test_what_is_kept_is_not_changed_and_nothing_is_kept_of_nothing(tmp_path: Path, cache: Path) -> None:
    save_environment(host(tmp_path / "a"), cache / f"{NAME}1", "vllm")
    assert list(cache.iterdir()) == []
    (cache / f"{NAME}1").mkdir()
    save_environment(host(tmp_path / "b", "vllm-1.0-abc"), cache / f"{NAME}1", "vllm")
    assert list((cache / f"{NAME}1").iterdir()) == []


def test_the_oldest_go_that_no_host_stands_on(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in range(5):
        (cache / f"{NAME}{age}").mkdir()
        os.utime(cache / f"{NAME}{age}", (1000 - age, 1000 - age))
    used: Any = SimpleNamespace(hosts=[SimpleNamespace(spec=SimpleNamespace(layers=(str(cache / f"{NAME}4"),)))])
    monkeypatch.setattr(vllm_cpu_cache, "list_labs", lambda: [used])
    prune_cache(2)
    assert sorted(path.name for path in cache.iterdir()) == [f"{NAME}0", f"{NAME}1", f"{NAME}4"]


def test_another_package_and_another_way_of_putting_together_are_another_environment(
    tmp_path: Path, cache: Path
) -> None:
    rows = [sample_wheel("a", sha256="a" * 64), sample_wheel("b", sha256="b" * 64)]
    other = [*rows[:1], sample_wheel("b", sha256="c" * 64)]
    program = tmp_path / "roles/envs/host/make.py"
    program.parent.mkdir(parents=True)

    def of(found: list[Artefact], text: str) -> str:
        program.write_text(text)
        return cache_path(found, tmp_path).name

    assert of(rows, "1") == of(rows[::-1], "1")
    assert len({of(rows, "1"), of(other, "1"), of(rows, "2")}) == 3
