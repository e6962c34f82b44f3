"""The driver that a rig's lock has for a system, and rigs that are refused while it does not answer the catalogue."""

from pathlib import Path

import pytest

from rigwright.inventory import load_for, load_rig
from rigwright.model.nvidia_tables import driver_version_of, is_pinning
from rigwright.model.rig import Rig
from rigwright.nvidia.packages.locked_driver import LockedDriver, archive_addresses, find_locked_driver
from rigwright.problems import Invalid
from rigwright.supply.lock import Artefact, Lock, render_lock
from tests.unit.sample_texts import CATALOG, LOCK
from tests.unit.samples import KEY_TEXT, OperatorFolder, archive_key, sample_deb, sample_entry, sample_rig, sample_wheel

INPUT = """
[inputs.driver-debian-13]
kind = "deb"
version = "595.91.07"
sources = ["nvidia:debian13/x86_64"]
"""
ROWS = [sample_deb(), sample_deb("nvidia-driver-pinning-595", "595-1"), archive_key()]
MANAGED = {"managed": True}
TRUSTED = ["locks.driver-debian-13"]


@pytest.mark.parametrize(
    ("version", "driver"),
    [
        ("595.91.07-1", "595.91.07"),
        ("1:580.95.05-0ubuntu0.24.04.1", "580.95.05"),
        ("580.178.04~rc1", "580.178.04"),
        ("595.84", "595.84"),
        ("13.4.0-1", ""),
        ("595-1", ""),
    ],
)
def test_a_driver_is_read_off_its_packages_versions(version: str, driver: str) -> None:
    assert driver_version_of(version) == driver


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("nvidia-driver-pinning-595", True),
        ("nvidia-driver-pinning-595.91", True),
        ("nvidia-driver-pinning-595.91.07", True),
        ("nvidia-driver-pinning-595.9", False),
        ("nvidia-driver-pinning-59", False),
        ("nvidia-driver-pinning-610", False),
        ("nvidia-driver-pinning-595.91.07.1", False),
        ("nvidia-driver-595", False),
    ],
)
def test_packages_that_hold_apt_to_a_driver_are_known_by_their_names(name: str, holds: bool) -> None:
    assert is_pinning(name, "595.91.07") is holds


def test_the_driver_of_a_system_is_its_packages_and_its_key() -> None:
    made = sample_rig(driver_packages={"debian-13": tuple(ROWS)}, driver_keys={"debian-13": KEY_TEXT})
    packages = {"libcuda1": ROWS[0], "nvidia-driver-pinning-595": ROWS[1]}
    assert find_locked_driver(made.driver_supply, "debian-13") == LockedDriver("595.91.07", packages, KEY_TEXT)
    assert find_locked_driver(made.driver_supply, "debian-12") is None


def test_a_driver_of_the_distributions_archive_has_no_key() -> None:
    row = sample_deb(version="1:580.95.05-0ubuntu1", sources=["apt:pool/restricted/a.deb"])
    found = find_locked_driver(sample_rig(driver_packages={"ubuntu-24.04": (row,)}).driver_supply, "ubuntu-24.04")
    assert found == LockedDriver("580.95.05", {"libcuda1": row}, "")


def test_an_archive_is_below_the_rigs_mirrors_or_else_at_nvidias_own_address() -> None:
    own = "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64"
    box_rig = sample_rig()
    assert archive_addresses(box_rig.driver_supply, box_rig.network, "debian-13") == [own]
    mirrored = sample_rig(mirrors={"nvidia": ("http://a/b/", "http://c")})
    assert archive_addresses(mirrored.driver_supply, mirrored.network, "debian-13") == [
        "http://a/b/debian13/x86_64",
        "http://c/debian13/x86_64",
    ]
    with pytest.raises(KeyError):
        box_rig = sample_rig()
        archive_addresses(box_rig.driver_supply, box_rig.network, "debian-9")


def write_driver_lock(
    box: OperatorFolder, rows: list[Artefact], key: str | None = KEY_TEXT, catalog: str = INPUT
) -> Path:
    """A box with this lock of a driver; returns the place of the key."""
    box.write("catalog/box.toml", CATALOG + catalog)
    box.write("locks/box.lock.toml", LOCK)
    box.write("locks/driver.lock.toml", render_lock(rows, "catalog/box.toml"))
    path = box.folder / "locks/driver-debian-13.asc"
    path.unlink(missing_ok=True)
    if key is not None:
        path.write_text(key)
    return path


def loaded(box: OperatorFolder, **changes: object) -> Rig:
    ((_, data),) = box.load_group({"box": sample_entry(**changes)})
    return load_rig(data["rig"])


def test_a_managed_rig_has_what_is_locked_and_another_has_none_of_it(box: OperatorFolder) -> None:
    write_driver_lock(box, ROWS)
    managed = loaded(box, driver=MANAGED, allow=TRUSTED)
    assert {row.name for row in managed.driver_supply.packages["debian-13"]} == {row.name for row in ROWS}
    assert managed.driver_supply.keys == {"debian-13": KEY_TEXT}
    assert (loaded(box).driver_supply.packages, loaded(box).driver_supply.keys) == ({}, {})


@pytest.mark.parametrize(
    ("rows", "catalog", "said"),
    [
        ([], INPUT, "driver-debian-13 is not locked: run `rigwright lock "),
        (ROWS, INPUT.replace("91", "99"), "driver-debian-13 is locked with version 595.91.07, not 595.99.07: run "),
        (ROWS[:2], INPUT, "driver-debian-13 is locked without its archive's key: run "),
        ([sample_wheel(group="driver-debian-13")], "", "the lock's driver-debian-13 is a wheel, not a deb"),
    ],
)
def test_a_managed_rig_whose_driver_is_not_locked_as_asked_is_refused(box, rows, catalog, said):
    write_driver_lock(box, rows, catalog=catalog)
    (line,) = box.refusal_lines(driver=MANAGED, allow=TRUSTED)
    assert line.startswith(f"{box.inventory}: box.driver.managed: {said}")
    assert loaded(box).driver_supply.packages == {}
    if catalog:
        with load_for("lock"):
            loaded(box, driver=MANAGED, allow=TRUSTED)


@pytest.mark.parametrize(("key", "said"), [(None, "is locked, and does not exist"), ("other", "is not the locked key")])
def test_a_lock_whose_key_is_gone_or_changed_is_refused(box: OperatorFolder, key: str | None, said: str) -> None:
    path = write_driver_lock(box, ROWS, key)
    assert box.refusal_lines() == [f"{path}: the file: {said}: run `rigwright lock`"]


def test_a_later_folders_driver_has_its_own_key_or_none(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, rows in ((first, ROWS), (second, [sample_deb(version="595.99-1")])):
        folder.mkdir()
        (folder / "a.lock.toml").write_text(render_lock(rows, "x"))
    (first / "driver-debian-13.asc").write_text(KEY_TEXT)
    assert Lock.load([first]).keys == {"driver-debian-13": KEY_TEXT}
    assert Lock.load([first, second]).keys == {}
    assert Lock.load([second, first]).keys == {"driver-debian-13": KEY_TEXT}


def test_only_a_deb_has_a_colon_or_a_tilde(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.toml"
    path.write_text(render_lock([sample_deb(version="1:595.91.07-1~deb13u1")], "x"))
    assert len(Lock.load([tmp_path]).groups["driver-debian-13"]) == 1
    for key in ("version", "file"):
        path.write_text(render_lock([sample_wheel().model_copy(update={key: "1~2"})], "x"))
        with pytest.raises(Invalid, match=f"{key}: '1~2' is refused: .* only debs may contain : and ~"):
            Lock.load([tmp_path])


@pytest.mark.parametrize(
    ("catalog", "said"),
    [
        (
            INPUT.replace("debian-13", "debian-31"),
            'inputs.driver-debian-31: there is no input of packages "driver-debian-31"; did ',
        ),
        (INPUT.replace("driver-debian-13", "nvidia"), 'inputs.nvidia: there is no input of packages "nvidia"; '),
        (
            '[inputs.driver-debian-13]\nkind = "wheel"\nrequirements = ["a"]\n',
            "inputs.driver-debian-13.kind: wheel is refused: must be deb",
        ),
    ],
)
def test_a_driver_is_called_after_a_system_that_has_one(box: OperatorFolder, catalog: str, said: str) -> None:
    path = box.write("catalog/box.toml", CATALOG + catalog)
    (line,) = box.refusal_lines()
    assert line.startswith(f"{path}: {said}")
    if "debian-31" in catalog:
        assert 'did you mean "driver-debian-13"?' in line
