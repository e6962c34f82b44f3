"""`rigwright lock --check` and drivers."""

from tests.unit.driver_world import DRIVER, FOLDER, NAME, NEWER, ArchiveSigner, DriverLockFixture
from tests.unit.file_server import error_status


def test_check_says_that_nothing_moved(drivers: DriverLockFixture) -> None:
    drivers.lock_lines()
    assert drivers.check_lines(0) == ["nothing changed"]


def test_check_says_what_moved(drivers: DriverLockFixture, drivers_key: ArchiveSigner) -> None:
    drivers.lock_lines()
    said = f"{NAME} {DRIVER}: {drivers.archive.files.url}/mirror/{FOLDER}"
    drivers.archive.add_driver(NEWER)
    drivers.archive.publish()
    assert drivers.check_lines(1) == [f"{said} has {NEWER}"]
    del drivers.archive.debs[f"libcuda1_{DRIVER}-1_amd64.deb"]
    drivers.archive.publish()
    lines = drivers.check_lines(1)
    assert f"{said} no longer has 1 of its packages as locked, libcuda1 {DRIVER}-1 first" in lines
    for file in [file for file in drivers.archive.debs if DRIVER in file]:
        del drivers.archive.debs[file]
    drivers.archive.publish()
    assert drivers.check_lines(1) == [f"{said} has {NEWER}", f"{said} no longer has it"]
    drivers.archive.add_driver(DRIVER)
    drivers.archive.publish()
    drivers.archive.serve("8793F200.pub", f"{drivers_key.armoured}\n".encode())
    assert f"{said} has another file of its key" in drivers.check_lines(1)
    drivers.request_driver(NEWER)
    assert f"{NAME} is locked with version {DRIVER}, not {NEWER}" in drivers.check_lines(1)


def test_check_that_could_not_look_says_so(drivers: DriverLockFixture) -> None:
    drivers.lock_lines()
    drivers.archive.publish(signed=False)
    assert any(line.startswith(f"could not check: {NAME}: ") for line in drivers.check_lines(3))
    drivers.archive.publish()
    drivers.archive.files.serve(f"mirror/{FOLDER}/8793F200.pub", error_status(403))
    assert any(line.startswith(f"could not check: {NAME}: ") for line in drivers.check_lines(3))
