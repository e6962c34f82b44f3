"""The records before the first byte of any file is there: all at once, for a disk takes its time to answer."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roles.weights.host import place as place_module
from roles.weights.host.fetch import FetchRun
from roles.weights.host.place import ModelsRoot
from roles.weights.host.records import LockedFile
from roles.weights.host.spec import FileRequest

PATHS = [f"_packages/{number}/some.whl" for number in range(20)]


@pytest.fixture
def place(tmp_path: Path) -> ModelsRoot:
    (tmp_path / "models").mkdir()
    spec = {"root": tmp_path / "models", "records": tmp_path / "records", "ledger": tmp_path / "owned"}
    return ModelsRoot(cast("Any", SimpleNamespace(**spec, fs_verity=False)))


def test_all_claims_reach_the_disk_once_and_before_any_folder_is_made(
    place: ModelsRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[list[str]] = []

    def fsync(handle: int) -> None:
        assert os.path.samestat(os.fstat(handle), place.ledger.stat())
        assert not (place.root / "_packages").exists()
        settled.append(place.ledger.read_text().splitlines())

    monkeypatch.setattr(place_module.os, "fsync", fsync)
    place.claim_paths(*(place.root / path for path in PATHS))
    (lines,) = settled
    folders = [place.root / "_packages", *(place.root / f"_packages/{number}" for number in range(20))]
    assert sorted(lines) == sorted(
        [*(f"dir {folder}" for folder in folders), *(f"file {place.root / path}.part" for path in PATHS)]
    )
    assert lines[0] == f"dir {place.root}/_packages"
    assert all(folder.stat().st_mode & 0o777 == 0o755 for folder in folders)
    # each has its own again where it is brought
    place.claim_paths(place.root / PATHS[3])
    assert len(settled) == 1


def test_a_place_that_cannot_be_used_keeps_no_other_from_being_claimed(place: ModelsRoot) -> None:
    (place.root / "_packages").mkdir()
    (place.root / "_packages/1").symlink_to("/tmp")
    run = FetchRun.__new__(FetchRun)
    run.place = place
    wanted = [FileRequest(LockedFile(path, "0" * 64, 1), ()) for path in PATHS[:3]]
    assert list(run._usable_paths(wanted)) == [place.root / PATHS[0], place.root / PATHS[2]]
