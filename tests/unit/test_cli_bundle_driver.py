"""`rigwright bundle` of a rig with a managed driver: its locked packages, what they need, and headers of kernels."""

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.model.deb_package_groups import parse_relations
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.driver_bundle import GROUP, KERNEL, NEEDS, OTHER_KERNEL, SYSTEM, DriverBundle
from tests.unit.test_cli_bundle_debs import faults, packages


@pytest.fixture
def made(maker: BundleFixture, archive: SignedAptArchive) -> DriverBundle:
    return DriverBundle(maker, archive)


def test_a_bundle_has_the_driver_and_all_that_it_is_built_with(made: DriverBundle) -> None:
    bundle = made.maker.make_bundle("--kernel", KERNEL)
    rows = {row.path for row in bundle.rows if row.path.startswith("debs/")}
    assert rows == {f"debs/{GROUP}/{row.file}" for row in made.rows} | {f"debs/{GROUP}/Packages"}
    headers = {"linux-headers-amd64", f"linux-headers-{KERNEL}", f"linux-headers-{OTHER_KERNEL}", "linux-kbuild"}
    assert {"dkms", "make", "glx-diversions", *headers} <= packages(bundle)
    assert [one.components for one in bundle.suites if one.suite == "bookworm"] == [("main", "contrib")]
    relations = parse_relations(bundle.read_relations(GROUP))
    assert set(relations) == set(NEEDS)
    assert relations["nvidia-kernel-dkms"]["Conflicts"] == "nvidia-kernel-open-dkms"
    assert faults(made.maker.box.inventory) == []
    made.maker.fetched_paths.clear()
    assert made.maker.make_bundle("--kernel", KERNEL).digest == bundle.digest
    assert not [path for path in made.maker.fetched_paths if "nvidia" in path]


def test_headers_are_those_of_the_newest_kernel_and_of_named_ones(made: DriverBundle) -> None:
    assert f"linux-headers-{KERNEL}" not in packages(made.maker.make_bundle())
    (line,) = made.maker.error_lines("--kernel", "6.1.0-7-amd64")
    said = "no archive has its headers: name kernels as `uname -r` prints them on the boxes, and mirrors with them"
    assert line.endswith(f"--kernel 6.1.0-7-amd64: {said}")
    done = made.maker.run_bundle("--kernel", "-o=Dir=/")
    assert (done.exit_code, "is no kernel release, such as 6.1.0-40-amd64" in done.output) == (2, True)


def test_a_kernel_without_a_managed_driver_is_refused(made: DriverBundle) -> None:
    made.write_inventory(managed=False)
    done = made.maker.run_bundle("--kernel", KERNEL)
    assert f"no rig has a managed driver, so --kernel {KERNEL} has no use" in done.output
    assert done.exit_code == 2


def test_a_driver_whose_needs_no_archive_has_is_refused(made: DriverBundle) -> None:
    del made.archive.debs["pool/dkms_3.0.10-8+deb12u1_amd64.deb"]
    made.archive.publish_suites("bookworm", ("main", "contrib"))
    (line,) = made.maker.error_lines()
    assert line.endswith("E: Unable to correct problems, you have held broken packages.")


def test_validate_lists_all_missing_files_at_once(made: DriverBundle) -> None:
    made.maker.make_bundle()
    gone = [f"debs/{GROUP}/{row.file}" for row in made.rows[:2]]
    gone += [f"debs/{GROUP}/Packages", "packages/debian-12/0/pool/make_1.0_amd64.deb"]
    for path in gone:
        (made.folder / path).unlink()
    done = CliRunner().invoke(main, ["validate", str(made.maker.box.inventory)])
    assert done.exit_code == 2
    assert all(path in done.output for path in gone)


def test_a_bundle_from_before_the_driver_is_refused_with_every_missing_package(made: DriverBundle) -> None:
    made.write_inventory(managed=False)
    made.maker.make_bundle()
    made.write_inventory()
    assert [line.partition(" lacks ")[2].partition(" ")[0] for line in faults(made.maker.box.inventory)] == sorted(
        NEEDS
    )


def test_a_system_without_a_lock_gets_none(made: DriverBundle) -> None:
    made.archive.publish_suites("trixie", ("main", "contrib"))
    bundle = made.maker.make_bundle("--system", "debian-13")
    assert SYSTEM in bundle.systems
    assert "dkms" not in packages(bundle, "debian-13")
    assert {one.components for one in bundle.suites if one.system == "debian-13"} == {("main",)}
