"""`rigwright lock` and drivers, against small archives that real tools have signed and the real apt reads."""

import hashlib
import shutil

import pytest

from cli.lock_resolver import apt_archives, distribution_packages
from cli.lock_resolver.downloads import DownloadUnavailable
from rigwright.nvidia.driver import openpgp
from tests.unit.bundle_world import SignedAptArchive
from tests.unit.driver_world import (
    CATALOG,
    DRIVER,
    FINGERPRINT,
    FOLDER,
    NAME,
    NEWER,
    PACKAGES,
    ArchiveSigner,
    DriverLockFixture,
    FlatDriverArchive,
    make_signer,
)


def test_every_package_of_the_driver_is_locked_with_the_archives_key(drivers, drivers_key):
    assert drivers.lock_lines() == [f"+ driver {NAME} {DRIVER}, 6 packages"]
    rows = {row.name: row for row in drivers.read_lock.groups[NAME] if row.kind == "deb"}
    assert set(rows) == {*PACKAGES, f"nvidia-driver-pinning-{DRIVER}", "nvidia-driver-pinning-595"}
    library = rows["libcuda1"]
    content = drivers.archive.debs[library.file]
    assert (library.version, library.file) == (f"{DRIVER}-1", f"libcuda1_{DRIVER}-1_amd64.deb")
    assert (library.sha256, library.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert library.sources == (f"nvidia:{FOLDER}/{library.file}",)
    (row,) = [row for row in drivers.read_lock.groups[NAME] if row.kind == "key"]
    assert (row.name, row.version, row.file) == ("nvidia-debian-13", drivers_key.fingerprint, f"{NAME}.asc")
    assert row.sources == (f"nvidia:{FOLDER}/8793F200.pub",)
    assert drivers.read_lock.keys == {NAME: drivers_key.armoured}
    assert drivers.lock_files[f"{NAME}.asc"] == drivers_key.armoured
    assert drivers.archive.files.url not in drivers.lock_files["mine.lock.toml"]


def test_locked_rows_stay_and_are_not_resolved_again(drivers: DriverLockFixture) -> None:
    drivers.lock_lines()
    before = drivers.lock_files
    drivers.archive.files.asked.clear()
    assert drivers.lock_lines() == ["no change"]
    assert (drivers.lock_files, drivers.archive.files.asked) == (before, [])
    assert (drivers.lock_lines("--refresh"), drivers.lock_files) == (["no change"], before)


def test_another_version_is_one_line_and_an_unneeded_driver_leaves_nothing(drivers):
    drivers.archive.add_driver(NEWER)
    drivers.archive.publish()
    drivers.lock_lines()
    drivers.request_driver(NEWER)
    assert drivers.lock_lines() == [f"~ driver {NAME} {DRIVER} -> {NEWER}, 6 packages, 5 other files"]
    drivers.write("catalog/mine.toml", "")
    assert (drivers.lock_lines(), drivers.lock_files) == ([f"- driver {NAME} {NEWER}"], {})


def test_a_package_that_was_built_again_is_locked_in_its_newest_version(drivers: DriverLockFixture) -> None:
    for version in (f"{DRIVER}-9", f"{DRIVER}-10", f"{DRIVER}~rc-1"):
        drivers.archive.build_package("libcuda1", version)
    drivers.archive.publish()
    drivers.lock_lines()
    (library,) = [row for row in drivers.read_lock.groups[NAME] if row.name == "libcuda1"]
    assert library.version == f"{DRIVER}-10"


def test_an_epoch_and_a_tilde_are_locked_as_they_are(drivers: DriverLockFixture) -> None:
    file = drivers.archive.build_package("libcuda1", f"1:{DRIVER}-1~deb13u1")
    drivers.archive.publish()
    drivers.lock_lines()
    (library,) = [row for row in drivers.read_lock.groups[NAME] if row.name == "libcuda1"]
    assert (library.version, library.file) == (f"1:{DRIVER}-1~deb13u1", file)
    assert file == f"libcuda1_{DRIVER}-1~deb13u1_amd64.deb"


def test_a_version_that_is_not_there_is_refused_with_those_that_are(drivers: DriverLockFixture) -> None:
    drivers.archive.add_driver(NEWER)
    drivers.archive.publish()
    url = f"{drivers.archive.files.url}/mirror/{FOLDER}"
    drivers.request_driver("595.84")
    assert (
        drivers.lock_error() == f"cannot be locked: {url} has no driver 595.84; of branch 595 it has {DRIVER}, {NEWER}"
    )
    drivers.request_driver("580.95.05")
    assert drivers.lock_error().endswith(
        "the tables of drivers have no branch 580 of NVIDIA's archive for debian-13, but 595, 610"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("nvidia:debian12", f"nvidia:debian12 is refused: branch 595 for debian-13 must come from nvidia:{FOLDER}"),
        ("apt:main", "the tables of drivers have no branch 595 of the distribution's archive for debian-13, but none"),
    ],
)
def test_another_archive_than_the_tables_is_refused(drivers: DriverLockFixture, source: str, said: str) -> None:
    path = drivers.folder / "catalog/mine.toml"
    path.write_text(path.read_text().replace(f"nvidia:{FOLDER}", source))
    assert drivers.lock_error() == f"cannot be locked: {said}"


def test_a_key_that_the_tables_do_not_know_is_refused(drivers: DriverLockFixture, drivers_key: ArchiveSigner) -> None:
    drivers.write_tables(FINGERPRINT)
    said = f"is the key {drivers_key.fingerprint}, and the tables of drivers know {FINGERPRINT}"
    assert said in drivers.lock_error()


def test_a_key_that_has_expired_is_refused(drivers: DriverLockFixture) -> None:
    with make_signer("20200102T000000", "--faked-system-time", "20200101T000000!") as old:
        drivers.archive.signer = old
        drivers.archive.serve("8793F200.pub", old.armoured.encode())
        drivers.write_tables(old.fingerprint)
        assert "8793F200.pub expired on 2020-01-02: a new key needs its fingerprint" in drivers.lock_error()


def test_an_invalid_key_is_refused(drivers: DriverLockFixture, drivers_key: ArchiveSigner) -> None:
    for content, said in (
        (b"\x99\x01\x0d binary", "is not an ASCII-armoured OpenPGP key"),
        ((drivers_key.armoured * 2).encode(), "is not an ASCII-armoured OpenPGP key"),
        (drivers_key.armoured.replace("KEY BLOCK", "MESSAGE").encode(), "is not an ASCII-armoured OpenPGP key"),
    ):
        drivers.archive.serve("8793F200.pub", content)
        assert drivers.lock_error().endswith(said)


def test_an_archive_that_is_signed_by_another_key_is_refused(drivers, drivers_key):
    with make_signer() as stranger:
        drivers.archive.signer = stranger
        drivers.archive.publish()
        drivers.archive.serve("8793F200.pub", drivers_key.armoured.encode())
        line = drivers.lock_error()
    assert f"cannot be read and verified by its key {drivers_key.fingerprint}: apt-get failed: " in line
    assert "NO_PUBKEY" in line


def test_a_weak_key_that_this_machines_apt_refuses_is_distinguished(drivers, monkeypatch):
    # the output of apt 3.0.3 of Debian 13
    said = (
        "apt-get failed: W: OpenPGP signature verification failed: Sub-process /usr/bin/sqv returned an error code (1)"
    )

    def fail(*_: object, **__: object) -> None:
        raise DownloadUnavailable(said)

    monkeypatch.setattr(apt_archives, "IsolatedApt", fail)
    assert drivers.lock_error().endswith(said)
    with make_signer("0", "--cert-digest-algo", "SHA1", "--allow-weak-digest-algos") as weak:
        drivers.archive.signer = weak
        drivers.archive.publish()
        drivers.write_tables(weak.fingerprint)
        assert drivers.lock_error().endswith(
            f"{said}: the key signs itself with SHA-1, which this machine's apt refuses: lock on Debian 12"
        )


def test_an_archive_without_a_signature_is_refused(drivers: DriverLockFixture) -> None:
    drivers.archive.publish(signed=False)
    assert "is not signed" in drivers.lock_error()


def test_an_archive_whose_signature_has_run_out_is_refused(drivers: DriverLockFixture) -> None:
    drivers.archive.publish(until="Sun, 02 Nov 2025 00:00:00 UTC")
    assert "is expired" in drivers.lock_error()


def test_a_list_that_was_changed_after_it_was_signed_is_refused(drivers: DriverLockFixture) -> None:
    listed = drivers.archive.package_list
    drivers.archive.publish(served=listed.replace("SHA256: ", "SHA256: 0", 1)[: len(listed)])
    assert "Hash Sum mismatch" in drivers.lock_error()
    drivers.archive.publish(listed=listed.replace("SHA256: ", "SHA512: "))
    assert "without a file, SHA-256 or size" in drivers.lock_error()
    drivers.archive.publish(listed=listed.replace("Filename: ./", "Filename: ../"))
    assert "has a package whose sources is refused" in drivers.lock_error()


def test_mirrors_are_tried_in_order_and_nvidias_own_address_is_used_without_any(drivers: DriverLockFixture) -> None:
    url = drivers.archive.files.url
    behind = FlatDriverArchive(drivers.archive.files, drivers.archive.signer, f"behind/{FOLDER}")
    behind.add_driver("595.12")
    behind.publish()
    drivers.write_inventory(nvidia=[f"{url}/gone", f"{url}/behind", f"{url}/mirror/"])
    drivers.lock_lines()
    drivers.write_inventory(nvidia=[f"{url}/gone"])
    drivers.request_driver("595.84")
    assert drivers.lock_error().endswith(f"{url}/gone/{FOLDER}/8793F200.pub answers 404 Not Found")
    drivers.write_inventory()
    drivers.archive.place = f"compute/cuda/repos/{FOLDER}"
    drivers.archive.publish()
    drivers.write_tables(drivers.archive.signer.fingerprint, url)
    assert f"{url}/compute/cuda/repos/{FOLDER} has no driver 595.84" in drivers.lock_error()


def test_a_key_that_is_gone_or_changed_is_refused_and_written_anew(drivers: DriverLockFixture) -> None:
    drivers.lock_lines()
    path = drivers.folder / "locks" / f"{NAME}.asc"
    whole = drivers.lock_files
    for change, said in (
        (path.unlink, "is locked, and does not exist"),
        (lambda: path.write_text("other"), "is not the locked key"),
    ):
        change()
        with pytest.raises(Exception, match="run `rigwright lock`") as caught:
            _ = drivers.read_lock
        assert str(caught.value) == f"{path}: the file: {said}: run `rigwright lock`"
        assert str(caught.value) in drivers.check_lines(1)
        done = drivers.run_lock()
        assert (done.exit_code, drivers.lock_files) == (0, whole), done.output
        assert "`lock` replaces it" in done.stderr


def test_a_driver_of_the_distributions_archive_is_locked_without_a_key(
    files, archive_key, tmp_path, monkeypatch, drivers_key
):
    monkeypatch.setattr(distribution_packages, "KEYRING", str(archive_key[0]))
    archive = SignedAptArchive(files, archive_key[1])
    for name, version in (
        ("libnvidia-compute-580-server", "580.178.04-0ubuntu0.24.04.1"),
        ("nvidia-utils-580-server", "580.178.04-0ubuntu0.24.04.1"),
        ("linux-modules-nvidia-580-server-open-generic", "6.8.0-40.40"),
        ("nvidia-settings", "510.47.03-0ubuntu4"),
    ):
        archive.add_package(name, version)
    archive.publish_suites("noble", ("restricted",))
    box = DriverLockFixture(tmp_path / "box", FlatDriverArchive(files, drivers_key))
    box.write_inventory(apt=[f"{files.url}/archive/debian"])
    catalog = CATALOG.replace(NAME, '"driver-ubuntu-24.04"').replace(DRIVER, "580.178.04")
    box.write("catalog/mine.toml", catalog.replace(f"nvidia:{FOLDER}", "apt:restricted"))
    assert box.lock_lines() == ["+ driver driver-ubuntu-24.04 580.178.04, 2 packages"]
    rows = box.read_lock.groups["driver-ubuntu-24.04"]
    assert [row.name for row in rows] == ["libnvidia-compute-580-server", "nvidia-utils-580-server"]
    assert rows[0].sources == (f"apt:pool/{rows[0].file}",)
    assert (box.check_lines(0), list(box.lock_files)) == (["nothing changed"], ["mine.lock.toml"])
    box.write("catalog/mine.toml", catalog.replace(f"nvidia:{FOLDER}", "apt:multiverse"))
    refused = box.run_lock("--refresh").stderr
    assert "apt:multiverse is refused: branch 580 for ubuntu-24.04 must come from apt:restricted" in refused


def test_a_key_is_read_as_gpg_reads_it() -> None:
    if shutil.which("gpg") is None:
        pytest.skip("no gpg here")
    with make_signer("20200102T000000", "--faked-system-time", "20200101T000000!") as old, make_signer("0") as stays:
        found = openpgp.parse_openpgp_key(old.armoured)
        assert (found.fingerprint, found.sha1) == (old.fingerprint, False)
        assert found.expires is not None
        assert 1577923200 - 86400 <= found.expires <= 1577923200 + 86400  # 2020-01-02
        assert openpgp.parse_openpgp_key(stays.armoured.replace("\n", "\r\n")).expires is None
        for cut in (stays.armoured[:-40], stays.armoured.replace("\n\nm", "\n\nA", 1), ""):
            with pytest.raises(ValueError, match="OpenPGP key"):
                openpgp.parse_openpgp_key(cut)
    with make_signer("0", "--cert-digest-algo", "SHA1", "--allow-weak-digest-algos") as weak:
        assert openpgp.parse_openpgp_key(weak.armoured).sha1
