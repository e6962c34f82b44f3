"""A job that installs packages of a bundle is sent the lists of their archives and the files that apt takes.

apt is the real one; dpkg and the channel to the host are stand-ins: the channel writes down the bytes that it sends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.fetch_job_spec import job_network
from rigwright.supply.bundle import BundledPackages, LocalFile
from roles.operations import packages
from roles.operations.packages import PACKAGES_JOB, PackageRun, install_from_bundle
from tests.unit.bundle_world import BundleFixture, SignedAptArchive
from tests.unit.samples import sample_rig
from tests.unit.test_bundle_signatures import BundleAptHost

LISTS = {"InRelease", "Packages"}
LARGE = 200_000  # bytes of each package, so that lists count little
LOOK = f"{PACKAGES_JOB}-look"


class RecordedChannel:
    """Runs jobs on this machine, and writes down the files that each is sent."""

    def __init__(self, apt: BundleAptHost, jobs: Path) -> None:
        self.apt, self.jobs, self.log = apt, jobs, ""
        self.sent: list[tuple[str, LocalFile]] = []
        self.active = False
        rig: Any = SimpleNamespace(roots=SimpleNamespace(jobs=str(jobs)))
        self.run = PackageRun(None, SimpleNamespace(), rig)
        self.run.shell = SimpleNamespace(run=self._read)  # type: ignore[assignment]

    def _read(self, command: str) -> list[str]:
        if command.startswith("systemctl is-active"):
            return ["active" if self.active else "inactive"]
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout.splitlines()

    def run_job(
        self,
        state: object,
        host: object,
        unit: str,
        script: str,
        test: str,
        folder: str,
        files: Sequence[LocalFile] = (),
    ) -> bool:
        """Send files, and run a script."""
        place = self.jobs / unit / "files"
        place.mkdir(parents=True, exist_ok=True)
        there = {path.name: path.stat().st_size for path in place.iterdir()}
        for file in files:
            if there.get(file.name) != file.size:
                shutil.copyfile(file.path, place / file.name)
                self.sent.append((unit, file))
        path = f"{self.apt.folder}/bin:{os.environ['PATH']}"
        environment = {"PATH": path, "TMPDIR": str(self.apt.folder), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["sh", "-c", script], env=environment, check=False, capture_output=True, text=True)
        self.log = done.stdout + done.stderr
        return done.returncode == 0

    def install(self, bundled: BundledPackages, *names: str) -> bool:
        """Install packages as a deploy does; the host forgets them, as one that needs others."""
        rig = sample_rig()
        values = {
            **{"names": names, "network": job_network(rig.roots, rig.network), "masked": {}, "accounts": {}},
            **{"ledger": str(self.apt.folder / "owned"), "units": "/etc/systemd/system"},
        }
        return install_from_bundle(self.run, values, bundled, "true")

    def names(self, unit: str) -> list[str]:
        """The files that a job was sent, sorted."""
        return sorted(file.path.name for one, file in self.sent if one == unit)

    @property
    def sent_bytes(self) -> int:
        return sum(file.size for _, file in self.sent)


@pytest.fixture
def bundled(maker: BundleFixture, archive: SignedAptArchive, archive_key: tuple[Path, Path]) -> BundledPackages:
    """The packages of a bundle: curl needs libcurl, and g++ needs none."""
    for name, version, needs in (("curl", "8.1", "libcurl"), ("libcurl", "1.0", ""), ("g++", "1.0", "")):
        archive.add_package(name, version, needs)
        path = f"pool/{name}_{version}_amd64.deb"
        archive.debs[path] += b"\n" * LARGE
    archive.publish_suites()
    maker.make_bundle()
    return replace(maker.read_bundle().packages("debian-12"), keyring=str(archive_key[0]))


@pytest.fixture
def channel(tmp_path: Path, archive_key: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> RecordedChannel:
    made = RecordedChannel(BundleAptHost(tmp_path / "host", archive_key[0]), tmp_path / "jobs")
    monkeypatch.setattr(packages, "run_job", made.run_job)
    return made


def test_each_job_is_sent_the_packages_that_it_installs(bundled: BundledPackages, channel: RecordedChannel) -> None:
    assert channel.install(bundled, "curl"), channel.log
    assert set(channel.names(LOOK)) == LISTS
    assert channel.names(PACKAGES_JOB) == ["curl_8.1_amd64.deb", "libcurl_1.0_amd64.deb"]
    assert channel.apt.installed_files == {"curl_8.1_amd64.deb", "libcurl_1.0_amd64.deb"}
    assert channel.install(bundled, "g++"), channel.log
    whole, lists = (sum(file.size for file in one.files) for one in (bundled, bundled.with_files_of(())))
    # each package once, and the lists for each installation; all packages for each would be twice the whole
    assert channel.sent_bytes == whole + lists
    assert 3 * LARGE < channel.sent_bytes < 0.6 * 2 * whole
    assert list(channel.jobs.glob("*/files")) == []


def test_an_interrupted_send_continues_with_the_files_that_are_there(
    bundled: BundledPackages, channel: RecordedChannel
) -> None:
    """Files of the package job lie there before the next look."""
    place = channel.jobs / PACKAGES_JOB / "files"
    place.mkdir(parents=True)
    first, second = (file for file in bundled.files if file.path.name.startswith(("curl", "libcurl")))
    shutil.copyfile(first.path, place / first.name)
    assert channel.install(bundled, "curl"), channel.log
    assert channel.names(PACKAGES_JOB) == [second.path.name]
    assert channel.apt.installed_files == {"curl_8.1_amd64.deb", "libcurl_1.0_amd64.deb"}
    assert list(channel.jobs.glob("*/files")) == []


def test_a_changed_file_of_an_interrupted_send_is_refused_and_sent_again(
    bundled: BundledPackages, channel: RecordedChannel
) -> None:
    place = channel.jobs / PACKAGES_JOB / "files"
    place.mkdir(parents=True)
    first = next(file for file in bundled.files if file.path.name.startswith("curl"))
    (place / first.name).write_bytes(b"x" * first.size)
    assert not channel.install(bundled, "curl")
    assert "did NOT match" in channel.log
    assert channel.apt.installed_files == set()
    assert channel.install(bundled, "curl"), channel.log


def test_a_bundle_without_a_package_sends_lists_and_fails_with_apts_words(
    bundled: BundledPackages, channel: RecordedChannel
) -> None:
    assert not channel.install(bundled, "absent")
    assert "Unable to locate package absent" in channel.log
    assert "the packages of the bundle do not fit this host" in channel.log
    assert {file.path.name for _, file in channel.sent} == LISTS


def test_a_job_that_runs_already_is_watched(bundled: BundledPackages, channel: RecordedChannel) -> None:
    channel.active = True
    assert channel.install(bundled, "curl")
    assert channel.sent == []


def test_a_job_without_a_missing_package_is_sent_none(bundled: BundledPackages, channel: RecordedChannel) -> None:
    query = channel.apt.folder / "bin/dpkg-query"
    query.write_text("#!/bin/sh\nprintf installed\n")
    assert channel.install(bundled, "curl"), channel.log
    assert {file.path.name for _, file in channel.sent} == LISTS
    assert channel.apt.installed_files == set()
