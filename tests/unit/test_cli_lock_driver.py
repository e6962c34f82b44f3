"""`rigwright lock` and drivers, against small archives that real tools have signed and the real apt reads."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from cli.resolving import archives, packages
from cli.resolving.web import Unavailable
from rigwright.nvidia.driver import openpgp
from tests.unit.bundle_world import AptArchive
from tests.unit.driver_world import (
    CATALOG,
    DRIVER,
    FINGERPRINT,
    FOLDER,
    NAME,
    NEWER,
    PACKAGES,
    DriverArchive,
    DriverWorld,
    Signer,
    signer,
)
from tests.unit.file_server import FileServer


def test_every_package_of_the_driver_is_locked_with_the_archives_key(drivers: DriverWorld, drivers_key: Signer) -> None:
    assert drivers.locked() == [f"+ driver {NAME} {DRIVER}, 6 packages"]
    rows = {row.name: row for row in drivers.read.groups[NAME] if row.kind == "deb"}
    assert set(rows) == {*PACKAGES, f"nvidia-driver-pinning-{DRIVER}", "nvidia-driver-pinning-595"}
    library = rows["libcuda1"]
    content = drivers.archive.debs[library.file]
    assert (library.version, library.file) == (f"{DRIVER}-1", f"libcuda1_{DRIVER}-1_amd64.deb")
    assert (library.sha256, library.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert library.sources == (f"nvidia:{FOLDER}/{library.file}",)
    (row,) = [row for row in drivers.read.groups[NAME] if row.kind == "key"]
    assert (row.name, row.version, row.file) == ("nvidia-debian-13", drivers_key.fingerprint, f"{NAME}.asc")
    assert row.sources == (f"nvidia:{FOLDER}/8793F200.pub",)
    assert drivers.read.keys == {NAME: drivers_key.armoured}
    assert drivers.kept[f"{NAME}.asc"] == drivers_key.armoured
    assert drivers.archive.files.url not in drivers.kept["mine.lock.toml"]


def test_what_is_locked_stays_and_is_not_asked_for_again(drivers: DriverWorld) -> None:
    drivers.locked()
    before = drivers.kept
    drivers.archive.files.asked.clear()
    assert drivers.locked() == ["no change"]
    assert (drivers.kept, drivers.archive.files.asked) == (before, [])
    assert drivers.locked("--refresh") == ["no change"]
    assert drivers.kept == before


def test_another_version_is_one_line_and_a_driver_that_nobody_asks_for_leaves_nothing(drivers: DriverWorld) -> None:
    drivers.archive.driver(NEWER)
    drivers.archive.publish()
    drivers.locked()
    drivers.wanted(NEWER)
    assert drivers.locked() == [f"~ driver {NAME} {DRIVER} -> {NEWER}, 6 packages, 5 other files"]
    drivers.write("catalog/mine.toml", "")
    assert drivers.locked() == [f"- driver {NAME} {NEWER}"]
    assert drivers.kept == {}


def test_a_package_that_was_built_again_is_locked_in_its_newest_version(drivers: DriverWorld) -> None:
    for version in (f"{DRIVER}-9", f"{DRIVER}-10", f"{DRIVER}~rc-1"):
        drivers.archive.package("libcuda1", version)
    drivers.archive.publish()
    drivers.locked()
    (library,) = [row for row in drivers.read.groups[NAME] if row.name == "libcuda1"]
    assert library.version == f"{DRIVER}-10"


def test_an_epoch_and_a_tilde_are_locked_as_they_are(drivers: DriverWorld) -> None:
    file = drivers.archive.package("libcuda1", f"1:{DRIVER}-1~deb13u1")
    drivers.archive.publish()
    drivers.locked()
    (library,) = [row for row in drivers.read.groups[NAME] if row.name == "libcuda1"]
    assert (library.version, library.file) == (f"1:{DRIVER}-1~deb13u1", file)
    assert file == f"libcuda1_{DRIVER}-1~deb13u1_amd64.deb"


def test_a_version_that_is_not_there_is_refused_with_those_that_are(drivers: DriverWorld) -> None:
    drivers.archive.driver(NEWER)
    drivers.archive.publish()
    url = f"{drivers.archive.files.url}/mirror/{FOLDER}"
    drivers.wanted("595.84")
    assert drivers.refused() == f"cannot be locked: {url} has no driver 595.84; of branch 595 it has {DRIVER}, {NEWER}"
    drivers.wanted("580.95.05")
    assert drivers.refused().endswith(
        "the tables of drivers have no branch 580 of NVIDIA's archive for debian-13, but 595, 610"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nvidia:debian12", f"nvidia:debian12 is refused: branch 595 for debian-13 is had from nvidia:{FOLDER}"),
        ("apt:main", "the tables of drivers have no branch 595 of the distribution's archive for debian-13, but none"),
    ],
)
def test_another_archive_than_the_tables_is_refused(drivers: DriverWorld, source: str, said: str) -> None:
    path = drivers.folder / "catalog/mine.toml"
    path.write_text(path.read_text().replace(f"nvidia:{FOLDER}", source))
    assert drivers.refused() == f"cannot be locked: {said}"


def test_a_key_that_the_tables_do_not_know_is_refused(drivers: DriverWorld, drivers_key: Signer) -> None:
    drivers.tables(FINGERPRINT)
    said = f"is the key {drivers_key.fingerprint}, and the tables of drivers know {FINGERPRINT}"
    assert said in drivers.refused()


def test_a_key_that_has_expired_is_refused(drivers: DriverWorld) -> None:
    with signer("20200102T000000", "--faked-system-time", "20200101T000000!") as old:
        drivers.archive.signer = old
        drivers.archive.serve("8793F200.pub", old.armoured.encode())
        drivers.tables(old.fingerprint)
        assert "8793F200.pub expired on 2020-01-02: a new key needs its fingerprint" in drivers.refused()


def test_what_is_no_key_is_refused(drivers: DriverWorld, drivers_key: Signer) -> None:
    for content, said in (
        (b"\x99\x01\x0d binary", "is not an ASCII-armoured OpenPGP key"),
        ((drivers_key.armoured * 2).encode(), "is not an ASCII-armoured OpenPGP key"),
        (drivers_key.armoured.replace("KEY BLOCK", "MESSAGE").encode(), "is not an ASCII-armoured OpenPGP key"),
    ):
        drivers.archive.serve("8793F200.pub", content)
        assert drivers.refused().endswith(said)


def test_an_archive_that_is_signed_by_another_key_is_refused(drivers: DriverWorld, drivers_key: Signer) -> None:
    with signer() as stranger:
        drivers.archive.signer = stranger
        drivers.archive.publish()
        drivers.archive.serve("8793F200.pub", drivers_key.armoured.encode())
        line = drivers.refused()
    assert f"cannot be read and verified by its key {drivers_key.fingerprint}: apt-get failed: " in line
    assert "NO_PUBKEY" in line


def test_a_weak_key_that_this_machines_apt_refuses_is_told_apart(
    drivers: DriverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what apt 3.0.3 of Debian 13 says
    said = (
        "apt-get failed: W: OpenPGP signature verification failed: Sub-process /usr/bin/sqv returned an error code (1)"
    )

    def fail(*_: object, **__: object) -> None:
        raise Unavailable(said)

    monkeypatch.setattr(archives, "Apt", fail)
    assert drivers.refused().endswith(said)
    with signer("0", "--cert-digest-algo", "SHA1", "--allow-weak-digest-algos") as weak:
        drivers.archive.signer = weak
        drivers.archive.publish()
        drivers.tables(weak.fingerprint)
        assert drivers.refused().endswith(
            f"{said}: the key signs itself with SHA-1, which this machine's apt refuses: lock on Debian 12"
        )


def test_an_archive_without_a_signature_is_refused(drivers: DriverWorld) -> None:
    drivers.archive.publish(signed=False)
    assert "is not signed" in drivers.refused()


def test_an_archive_whose_signature_has_run_out_is_refused(drivers: DriverWorld) -> None:
    drivers.archive.publish(until="Sun, 02 Nov 2025 00:00:00 UTC")
    assert "is expired" in drivers.refused()


def test_a_list_that_was_changed_after_it_was_signed_is_refused(drivers: DriverWorld) -> None:
    listed = drivers.archive.listed
    drivers.archive.publish(served=listed.replace("SHA256: ", "SHA256: 0", 1)[: len(listed)])
    assert "Hash Sum mismatch" in drivers.refused()
    drivers.archive.publish(listed=listed.replace("SHA256: ", "SHA512: "))
    assert "without a file, SHA-256 or size" in drivers.refused()
    drivers.archive.publish(listed=listed.replace("Filename: ./", "Filename: ../"))
    assert "has a package whose sources is refused" in drivers.refused()


def test_mirrors_are_tried_in_order_and_nvidias_own_address_is_used_without_any(drivers: DriverWorld) -> None:
    url = drivers.archive.files.url
    behind = DriverArchive(drivers.archive.files, drivers.archive.signer, f"behind/{FOLDER}")
    behind.driver("595.12")
    behind.publish()
    drivers.inventory(nvidia=[f"{url}/gone", f"{url}/behind", f"{url}/mirror/"])
    drivers.locked()
    drivers.inventory(nvidia=[f"{url}/gone"])
    drivers.wanted("595.84")
    assert drivers.refused().endswith(f"{url}/gone/{FOLDER}/8793F200.pub answers 404 Not Found")
    drivers.inventory()
    drivers.archive.place = f"compute/cuda/repos/{FOLDER}"
    drivers.archive.publish()
    drivers.tables(drivers.archive.signer.fingerprint, url)
    assert f"{url}/compute/cuda/repos/{FOLDER} has no driver 595.84" in drivers.refused()


def test_a_key_that_is_gone_or_changed_is_refused_and_written_anew(drivers: DriverWorld) -> None:
    drivers.locked()
    path = drivers.folder / "locks" / f"{NAME}.asc"
    whole = drivers.kept
    for change, said in (
        (path.unlink, "is locked, and does not exist"),
        (lambda: path.write_text("other"), "is not the locked key"),
    ):
        change()
        with pytest.raises(Exception, match="run `rigwright lock`") as caught:
            _ = drivers.read
        assert str(caught.value) == f"{path}: the file: {said}: run `rigwright lock`"
        assert str(caught.value) in drivers.checked(1)
        done = drivers.lock()
        assert (done.exit_code, drivers.kept) == (0, whole), done.output
        assert "it is written anew" in done.stderr


def test_a_driver_of_the_distributions_archive_is_locked_without_a_key(
    files: FileServer,
    archive_key: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    drivers_key: Signer,
) -> None:
    monkeypatch.setattr(packages, "KEYRING", str(archive_key[0]))
    archive = AptArchive(files, archive_key[1])
    for name, version in (
        ("libnvidia-compute-580-server", "580.178.04-0ubuntu0.24.04.1"),
        ("nvidia-utils-580-server", "580.178.04-0ubuntu0.24.04.1"),
        ("linux-modules-nvidia-580-server-open-generic", "6.8.0-40.40"),
        ("nvidia-settings", "510.47.03-0ubuntu4"),
    ):
        archive.package(name, version)
    archive.publish("noble", ("restricted",))
    box = DriverWorld(tmp_path / "box", DriverArchive(files, drivers_key))
    box.inventory(apt=[f"{files.url}/archive/debian"])
    catalog = CATALOG.replace(NAME, '"driver-ubuntu-24.04"').replace(DRIVER, "580.178.04")
    box.write("catalog/mine.toml", catalog.replace(f"nvidia:{FOLDER}", "apt:restricted"))
    assert box.locked() == ["+ driver driver-ubuntu-24.04 580.178.04, 2 packages"]
    rows = box.read.groups["driver-ubuntu-24.04"]
    assert [row.name for row in rows] == ["libnvidia-compute-580-server", "nvidia-utils-580-server"]
    assert rows[0].sources == (f"apt:pool/{rows[0].file}",)
    assert box.checked(0) == ["nothing changed"]
    assert list(box.kept) == ["mine.lock.toml"]
    box.write("catalog/mine.toml", catalog.replace(f"nvidia:{FOLDER}", "apt:multiverse"))
    refused = box.lock("--refresh").stderr
    assert "apt:multiverse is refused: branch 580 for ubuntu-24.04 is had from apt:restricted" in refused


def test_a_key_is_read_as_gpg_reads_it() -> None:
    if shutil.which("gpg") is None:
        pytest.skip("no gpg here")
    with signer("20200102T000000", "--faked-system-time", "20200101T000000!") as old, signer("0") as stays:
        found = openpgp.read(old.armoured)
        assert (found.fingerprint, found.sha1) == (old.fingerprint, False)
        assert found.expires is not None
        assert 1577923200 - 86400 <= found.expires <= 1577923200 + 86400  # 2020-01-02
        assert openpgp.read(stays.armoured.replace("\n", "\r\n")).expires is None
        for cut in (stays.armoured[:-40], stays.armoured.replace("\n\nm", "\n\nA", 1), ""):
            with pytest.raises(ValueError, match="OpenPGP key"):
                openpgp.read(cut)
    with signer("0", "--cert-digest-algo", "SHA1", "--allow-weak-digest-algos") as weak:
        assert openpgp.read(weak.armoured).sha1
