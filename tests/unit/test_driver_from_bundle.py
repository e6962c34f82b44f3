"""A driver from a bundle on a host: the lock's hashes and the distribution's keyring are believed, and nothing else.

apt is the real one; only dpkg is a stand-in: it writes down what it is given.
"""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.nvidia.packages.bundled_driver import bundled_driver_packages
from rigwright.nvidia.packages.driver_target import DriverSimulation, bundled_hashes, read_driver_simulation
from rigwright.supply.bundle import BundledPackages
from tests import forged_bundles
from tests.unit import short_programs
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.driver_bundle import GROUP, KERNEL, SYSTEM, VERSION, DriverBundle, driver_rows
from tests.unit.rendered_scripts import driver_script
from tests.unit.samples import KEY_TEXT, changed_rig, sample_rig
from tests.unit.test_debs_from_bundle import BundledDebsHost

RIG = changed_rig(sample_rig(), driver_packages={SYSTEM: tuple(driver_rows())}, driver_keys={SYSTEM: KEY_TEXT})
TARGETS = tuple(f"{name}={VERSION}" for name in ("nvidia-kernel-open-dkms", "nvidia-driver-cuda"))


class BundledDriverHost(BundledDebsHost):
    """The same, and the jobs of the driver."""

    def run_driver_job(
        self, name: str, packages: BundledPackages, **values: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a job that is sent these."""
        sent = self.folder / "sent"
        sent.mkdir()
        for file in packages.files:
            shutil.copyfile(file.path, sent / file.name)
        script = driver_script(
            name,
            ledger=self.folder / "owned",
            done=self.folder / "done",
            component="contrib",
            component_file=self.folder / "component",
            source_file=self.folder / "source",
            removed=(),
            packages=packages,
            sent=str(sent),
            targets=(f"linux-headers-{KERNEL}", *TARGETS),
            **{"kept": "", "names": ["libcuda1", "nvidia-driver-cuda"], **values},
        )
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "TMPDIR": f"{self.folder}/tmp"}
        return short_programs.run_program(["sh", "-c", script], env=environment)

    def simulate_driver(self) -> DriverSimulation:
        """apt's plan, by the lists only."""
        done = self.run_driver_job("look", self.distribution.with_files_of(()), first=(), kernel="")
        assert done.returncode == 0, done.stdout + done.stderr
        how, seen = read_driver_simulation((self.folder / "done").read_text().splitlines())
        assert how == "archive"
        return seen

    def install_driver(self, seen: DriverSimulation) -> subprocess.CompletedProcess[str]:
        """Install that, with the files that it takes."""
        files = self.distribution.with_files_of({name for name, _, _ in seen.installed})
        values = {
            "folder": self.folder / "store",
            "dkms": True,
            "kernels": (),
            "version": "580.178.04",
            "fresh": ["dkms"],
        }
        return self.run_driver_job(
            "install", files, hashes=bundled_hashes(RIG.driver_supply, SYSTEM, seen), **values, whole=True
        )


@pytest.fixture
def host(
    maker: BundleFixture, archive: SignedAptArchive, archive_key: tuple[Path, Path], tmp_path: Path
) -> BundledDriverHost:
    """A host, and the bundle of its driver."""
    DriverBundle(maker, archive)
    maker.make_bundle("--kernel", KERNEL)
    return BundledDriverHost(tmp_path / "host", packages_of(maker, archive_key[0]))


def packages_of(maker: BundleFixture, keyring: Path) -> BundledPackages:
    """Its bundle's packages, for a host that has another keyring."""
    return replace(bundled_driver_packages(maker.read_bundle(), RIG.driver_supply, SYSTEM), keyring=str(keyring))


def test_it_comes_with_all_that_it_needs_in_one_transaction(host: BundledDriverHost) -> None:
    assert {file.path.name for file in host.distribution.with_files_of(()).files} == {"InRelease", "Packages"}
    seen = host.simulate_driver()
    theirs = {"dkms", "make", "glx-diversions", "linux-kbuild", f"linux-headers-{KERNEL}"}
    ours = {"libcuda1", "nvidia-driver-cuda", "nvidia-persistenced", "nvidia-kernel-open-dkms"}
    assert ({name for name, _, _ in seen.installed}, seen.complaints) == (theirs | ours, ())
    done = host.install_driver(seen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name.partition("_")[0] for name in host.installed_files} == theirs | ours
    assert (host.folder / "store/580.178.04/SHA256SUMS").exists()
    assert ((host.folder / "owned").read_text(), host.left) == ("package dkms\n", [])


def test_forged_relations_bring_no_file_that_is_not_signed_or_locked(
    host: BundledDriverHost, maker: BundleFixture, archive_key: tuple[Path, Path]
) -> None:
    listed = maker.bundle_folder / f"debs/{GROUP}/Packages"
    listed.write_text(
        listed.read_text().replace("Depends: dkms (>= 2.1.1.1)", "Depends: dkms (>= 2.1.1.1), other, evil")
    )
    forged_bundles.forge_package(maker.bundle_folder, "make")
    forged_bundles.rewrite_index(maker.bundle_folder)
    host.distribution = packages_of(maker, archive_key[0])
    assert host.simulate_driver().complaints
    # without what no archive has, the forged package is next
    listed.write_text(listed.read_text().replace(", other, evil", ""))
    forged_bundles.rewrite_index(maker.bundle_folder)
    host.distribution = packages_of(maker, archive_key[0])
    done = host.install_driver(host.simulate_driver())
    assert (done.returncode, host.installed_files, host.left) == (1, set(), [])
    assert "of the bundle is not what its archive has signed: " in done.stdout


def test_a_file_that_is_not_the_locked_one_is_refused(host: BundledDriverHost, maker: BundleFixture) -> None:
    seen = host.simulate_driver()
    (deb,) = maker.bundle_folder.glob(f"debs/{GROUP}/libcuda1_*")
    deb.write_bytes(deb.read_bytes()[:-1] + b"x")
    done = host.install_driver(seen)
    assert (done.returncode, host.installed_files, host.left) == (1, set(), [])
    assert "FAILED" in done.stdout + done.stderr
