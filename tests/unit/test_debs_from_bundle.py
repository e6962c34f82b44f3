"""Locked packages of a bundle on a host: the lock's hashes and the host's own keyring are believed, and nothing else.

apt is the real one; only dpkg is a stand-in: it writes down what it is given.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.apt_transactions import AptSimulation, read_simulation
from rigwright.fetch_job_spec import job_network
from rigwright.render import render
from rigwright.supply.bundle import BundledPackages, LocalFile
from tests import forged_bundles
from tests.unit import built_debs, short_programs
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig
from tests.unit.test_bundle_signatures import APT

CONTROL = "Package: {}\nVersion: 5:1.0-1\nArchitecture: amd64\nMaintainer: nobody\nDepends: {}\nDescription: one\n"
FILES = {"tool-base_1.0-1_amd64.deb": CONTROL.format("tool-base", "g++")}
FILES |= {"tool_1.0-1_amd64.deb": CONTROL.format("tool", "tool-base (= 5:1.0-1), curl")}
INSTALLED = 'case "$*" in *--configure*) exit ;; esac; echo "$*" >> {0}/dpkg'


class BundledDebsHost:
    """A host on which nothing is installed, and what its jobs are sent."""

    def __init__(self, folder: Path, distribution: BundledPackages) -> None:
        self.folder, self.distribution = folder, distribution
        for name in ("state", "cache/archives/partial", "log", "tmp", "given"):
            (folder / name).mkdir(parents=True)
        for name in ("status", "dpkg"):
            (folder / name).touch()
        write_stand_in(folder / "bin", "apt-get", APT.format(folder))
        write_stand_in(folder / "bin", "apt-cache", APT.format(folder).replace("apt-get", "apt-cache"))
        write_stand_in(folder / "bin", "dpkg", INSTALLED.format(folder))
        self.files = list[LocalFile]()
        for file, control in FILES.items():
            content = built_debs.build_deb(control)
            (folder / "given" / file).write_bytes(content)
            digest = hashlib.sha256(content).hexdigest()
            self.files.append(LocalFile(folder / "given" / file, file, digest, len(content)))

    def run(self, name: str, packages: BundledPackages, *files: LocalFile) -> subprocess.CompletedProcess[str]:
        """Run a job that is sent these."""
        sent = self.folder / "sent"
        sent.mkdir()
        for file in (*packages.files, *files):
            shutil.copyfile(file.path, sent / file.name)
        box_rig = sample_rig(mirrors={"apt": ("http://127.0.0.1:1/debian",)})
        values = {
            "network": job_network(box_rig.roots, box_rig.network),
            "ledger": self.folder / "owned",
            "component": "",
            "source_files": (),
            "sent": str(sent),
            "done": self.folder / "done",
            "targets": [],
            "names": ["tool", "tool-base"],
            "kept": f"{self.folder}/store/1.0-abc",
            "removed": [],
            "what": "tool 1.0",
            "folder": self.folder / "store",
            "hashes": [(file.name.partition("_")[0], file.sha256) for file in self.files],
            "whole": True,
            "version": "1.0-abc",
            "fresh": ["tool"],
            "packages": packages,
            "files": files,
        }
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "TMPDIR": f"{self.folder}/tmp"}
        return short_programs.run_program(["sh", "-c", render(f"debs/{name}.sh.j2", **values)], env=environment)

    def simulate_apt(self) -> AptSimulation:
        """apt's plan, by the lists only."""
        done = self.run("look", self.distribution.with_files_of(()), *self.files)
        assert done.returncode == 0, done.stdout + done.stderr
        how, seen = read_simulation((self.folder / "done").read_text().splitlines(), AptSimulation)
        assert how == "kept"
        return seen

    def install(self, seen: AptSimulation) -> subprocess.CompletedProcess[str]:
        """Install that, with the files that it takes."""
        return self.run("install", self.distribution.with_files_of({name for name, _, _ in seen.installed}))

    @property
    def installed_files(self) -> set[str]:
        """The files that dpkg was given."""
        words = (self.folder / "dpkg").read_text().split()
        return {word.rpartition("/")[2] for word in words if word.endswith(".deb")}

    @property
    def left(self) -> list[str]:
        """The remains of a job, and of its sent files."""
        return [str(path) for path in (*self.folder.glob("sent"), *self.folder.glob("tmp/*"))]


@pytest.fixture
def host(
    maker: BundleFixture, archive: SignedAptArchive, archive_key: tuple[Path, Path], tmp_path: Path
) -> BundledDebsHost:
    """A host, and a bundle with what two packages need, and more."""
    archive.add_package("idle")
    archive.publish_suites()
    maker.make_bundle()
    return BundledDebsHost(tmp_path / "host", packages_of(maker, archive_key[0]))


def packages_of(maker: BundleFixture, keyring: Path) -> BundledPackages:
    """Its bundle's packages of the distribution's, for a host that has another keyring."""
    return replace(maker.read_bundle().packages("debian-12"), keyring=str(keyring))


def test_they_come_with_what_they_need_of_the_bundle_and_are_kept(host: BundledDebsHost) -> None:
    assert {file.path.name for file in host.distribution.with_files_of(()).files} == {"InRelease", "Packages"}
    seen = host.simulate_apt()
    assert {name for name, _, _ in seen.installed} == {"tool", "tool-base", "g++", "curl", "libcurl"}
    assert seen.complaints == ()
    done = host.install(seen)
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.installed_files == {*FILES, "g++_1.0_amd64.deb", "curl_8.1_amd64.deb", "libcurl_1.0_amd64.deb"}
    assert {path.name for path in (host.folder / "store/1.0-abc").iterdir()} == {*FILES, "SHA256SUMS"}
    assert ((host.folder / "owned").read_text(), host.left) == ("package tool\n", [])


def test_a_file_that_is_not_the_locked_one_is_refused_before_apt_sees_it(host: BundledDebsHost) -> None:
    file = host.files[1]
    content = file.path.read_bytes()
    file.path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = host.run("look", host.distribution.with_files_of(()), *host.files)
    assert done.returncode == 1
    said = done.stdout.splitlines()[-1]
    assert said.startswith(f"refused: {file.name} of the bundle is not the locked file: ")
    assert not (host.folder / "store/1.0-abc").exists()
    assert not (host.folder / "done").exists()
    assert host.left == []


def test_forged_dependencies_are_refused(host, maker, archive_key):
    forged = forged_bundles.forge_package(maker.bundle_folder, "g++")
    host.distribution = packages_of(maker, archive_key[0])
    done = host.install(host.simulate_apt())
    assert done.returncode == 1
    assert f"refused: {forged.name} of the bundle is not what its archive has signed: " in done.stdout
    assert host.installed_files == set()
    assert host.left == []


def test_a_host_without_the_archives_key_takes_nothing(host, maker, tmp_path):
    (tmp_path / "other.gpg").touch()
    host.distribution = packages_of(maker, tmp_path / "other.gpg")
    done = host.run("look", host.distribution.with_files_of(()), *host.files)
    assert done.returncode == 1
    assert "refused: what the bundle says of its packages is not signed by a key of this host" in done.stdout
    assert not (host.folder / "store").exists()


def test_apt_reports_missing_packages_of_the_bundle(host: BundledDebsHost) -> None:
    (host.folder / "given" / host.files[0].name).unlink()
    host.files.pop(0)
    assert host.simulate_apt().complaints
