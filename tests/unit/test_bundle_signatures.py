"""Packages of a bundle on a host: a real apt believes its own keyring, and nothing that is in the bundle.

Only dpkg is a stand-in: it writes down what it is given.
"""

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cli.lock_resolver import distribution_packages
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import Bundle, BundleRow
from tests import forged_bundles
from tests.unit import built_debs, short_programs
from tests.unit.bundle_world import BundleFixture, SignedAptArchive, archive_signing
from tests.unit.file_server import complete_file
from tests.unit.rendered_scripts import packages_script, write_stand_in
from tests.unit.samples import sample_rig

LISTS = "packages/debian-12/0/dists/bookworm"
UNSIGNED = (
    "refused: what the bundle says of its packages is not signed by a key of this host, in {}; nothing was installed"
)
APT = """
exec /usr/bin/apt-get -o Dir::State={0}/state -o Dir::State::status={0}/status -o Dir::Cache={0}/cache \\
  -o Dir::Bin::dpkg={0}/bin/dpkg -o Dir::Etc::Preferences=/dev/null -o Dir::Log={0}/log -o APT::Sandbox::User=root \\
  -o APT::Architecture=amd64 -o Debug::NoLocking=true -o DPkg::Pre-Install-Pkgs::= -o DPkg::Post-Invoke::= "$@"
"""
DPKG = 'echo "$*" >> {0}/dpkg'


class BundleAptHost:
    """A host on which nothing is installed."""

    def __init__(self, folder: Path, keyring: Path) -> None:
        self.folder, self.keyring = folder, keyring
        for name in ("state", "cache/archives/partial", "log"):
            (folder / name).mkdir(parents=True)
        for name in ("status", "dpkg"):
            (folder / name).touch()
        write_stand_in(folder / "bin", "apt-get", APT.format(folder))
        write_stand_in(folder / "bin", "dpkg", DPKG.format(folder))
        write_stand_in(folder / "bin", "dpkg-query", "exit 1")

    def run(self, made: Bundle, *names: str) -> subprocess.CompletedProcess[str]:
        """Install packages from a bundle."""
        sent = self.folder / "sent"
        sent.mkdir()
        for file in made.packages("debian-12").files:
            shutil.copyfile(file.path, sent / file.name)
        ledger = str(self.folder / "owned")
        script = packages_script(
            sample_rig(bundle=made), names or ("curl", "g++"), ledger, sent=str(sent), keyring=str(self.keyring)
        )
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "TMPDIR": str(self.folder), "LC_ALL": "C"}
        return short_programs.run_program(["sh", "-c", script], env=environment)

    def job_error(self, made: Bundle) -> str:
        """The last line of a job that installs nothing, and leaves nothing lying about."""
        done = self.run(made)
        assert done.returncode == 1, done.stdout + done.stderr
        assert self.installed_files == set()
        assert not (self.folder / "owned").exists()
        assert {path.name for path in self.folder.iterdir()} <= {"state", "cache", "log", "status", "dpkg", "bin"}
        return done.stdout.splitlines()[-1]

    @property
    def installed_files(self) -> set[str]:
        """The files that dpkg was given."""
        words = (self.folder / "dpkg").read_text().split()
        return {word.rpartition("/")[2] for word in words if word.endswith(".deb")}


@pytest.fixture
def host(tmp_path: Path, archive_key: tuple[Path, Path]) -> BundleAptHost:
    """A host with the distribution's keyring."""
    return BundleAptHost(tmp_path / "host", archive_key[0])


def test_signed_packages_are_installed_from_every_archive(maker, archive, host):
    archive.add_package("libcurl", "1.1", secure=True)
    archive.publish_suites()
    made = maker.make_bundle()
    assert [(suite.archive, suite.suite) for suite in made.suites] == [(0, "bookworm"), (1, "bookworm-security")]
    done = host.run(made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.installed_files == {"curl_8.1_amd64.deb", "g++_1.0_amd64.deb", "libcurl_1.1_amd64.deb"}


@pytest.mark.parametrize("package", ["curl", "g++"])
def test_a_package_that_was_forged_is_refused_by_name(maker: BundleFixture, host: BundleAptHost, package: str) -> None:
    maker.make_bundle()
    deb = forged_bundles.forge_package(maker.bundle_folder, package)
    said = host.job_error(maker.read_bundle())
    assert said.startswith(f"refused: {deb.name} of the bundle is not what its archive has signed: ")
    assert said.endswith("; nothing was installed")


def test_a_package_that_was_forged_goes_by_its_own_name(maker, archive, host):
    archive.add_package("curl", "8.2~rc1+b1")
    del archive.debs["pool/curl_8.1_amd64.deb"]
    archive.publish_suites()
    maker.make_bundle()
    assert forged_bundles.forge_package(maker.bundle_folder, "curl").name == "curl_8.2~rc1+b1_amd64.deb"
    assert host.job_error(maker.read_bundle()).startswith(
        "refused: curl_8.2~rc1+b1_amd64.deb of the bundle is not what "
    )


def test_a_list_that_was_forged_is_refused_before_any_host_is_reached(maker: BundleFixture) -> None:
    maker.make_bundle()
    forged_bundles.forge_package(maker.bundle_folder, "curl", lists=True)
    (line,) = maker.bundle_problems()
    assert f"{LISTS}/main/binary-amd64/Packages: does not match the hash signed by its archive" in line


def signed_anew(maker: BundleFixture, home: Path | None) -> Bundle:
    """A bundle with a forged package, whose list and Release file have its hash; with a foreign signature, or as it was
    before."""
    forged_bundles.forge_package(maker.bundle_folder, "curl", lists=True)
    forged_bundles.sign_release(maker.bundle_folder / LISTS, home)
    forged_bundles.rewrite_index(maker.bundle_folder)
    return maker.read_bundle()


def test_a_release_that_was_changed_or_signed_by_another_key_is_refused(maker, host):
    maker.make_bundle()
    assert host.job_error(signed_anew(maker, None)) == UNSIGNED.format(host.keyring)


def test_a_key_that_is_not_the_hosts_own_is_refused(maker: BundleFixture, host: BundleAptHost, tmp_path: Path) -> None:
    maker.make_bundle()
    with archive_signing(tmp_path / "other.gpg") as other:
        assert host.job_error(signed_anew(maker, other)) == UNSIGNED.format(host.keyring)


def test_a_host_without_the_key_refuses_what_is_right(maker, host, tmp_path):
    made = maker.make_bundle()
    with archive_signing(tmp_path / "other.gpg"):
        host.keyring = tmp_path / "other.gpg"
        assert host.job_error(made) == UNSIGNED.format(host.keyring)


def test_a_host_that_believes_unsigned_archives_does_not_believe_a_bundle(maker, host):
    maker.make_bundle()
    lax = " ".join(
        f"-o {name}=true"
        for name in (
            "Acquire::AllowInsecureRepositories",
            "Acquire::AllowWeakRepositories",
            "Acquire::AllowDowngradeToInsecureRepositories",
            "APT::Get::AllowUnauthenticated",
        )
    )
    write_stand_in(host.folder / "bin", "apt-get", APT.format(host.folder).replace('"$@"', f'{lax} "$@"'))
    assert host.job_error(signed_anew(maker, None)) == UNSIGNED.format(host.keyring)


def test_until_when_an_archive_calls_itself_recent_is_reported_and_recorded(maker, archive):
    archive.add_package("libcurl", "1.1", secure=True)
    archive.publish_suites(until="Fri, 01 Jan 2100 00:00:00 UTC")
    done = maker.run_bundle()
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.splitlines() if "bookworm-security" in line]
    said = ("debian-12 bookworm-security", "2025-11-01 00:00:00 UTC", "2100-01-01 00:00:00 UTC")
    assert line.split() == " ".join(said).split()
    assert [suite.valid_until for suite in maker.read_bundle().suites] == [None, "2100-01-01 00:00:00 UTC"]


def test_a_bundle_outlives_what_its_archives_promise(maker, archive, host, monkeypatch):
    archive.add_package("libcurl", "1.1", secure=True)
    archive.publish_suites(until="Sat, 08 Nov 2025 00:00:00 UTC")
    monkeypatch.setattr(
        distribution_packages, "APT_TIMEOUTS", {"Acquire::Check-Valid-Until": "false"}
    )  # as on a day before that
    done = host.run(maker.make_bundle())
    assert done.returncode == 0, done.stdout + done.stderr


def test_one_that_has_expired_is_not_bundled(maker: BundleFixture, archive: SignedAptArchive) -> None:
    archive.add_package("libcurl", "1.1", secure=True)
    archive.publish_suites(until="Sat, 08 Nov 2025 00:00:00 UTC")
    (line,) = maker.error_lines()
    assert "packages of debian-12: apt-get failed: " in line
    assert "is expired" in line or "is not valid anymore" in line


def test_a_package_that_a_list_has_and_the_bundle_has_not_is_not_asked_for(maker, archive, host):
    archive.add_package("curl", "2:8.0")
    archive.add_package("mail-server")
    archive.publish_suites()
    done = host.run(maker.make_bundle(), "curl", "mail-server")
    assert done.returncode == 1
    assert "mail-server" in done.stdout
    assert "Failed to fetch" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("the packages of the bundle do not fit this host: ")


def test_a_suite_of_the_same_key_is_not_taken_for_another(maker: BundleFixture, archive: SignedAptArchive) -> None:
    archive.publish_suites("trixie")
    maker.make_bundle("--system", "debian-13")
    newer = maker.bundle_folder / "packages/debian-13/0/dists/trixie"
    shutil.rmtree(maker.bundle_folder / LISTS)
    shutil.copytree(newer, maker.bundle_folder / LISTS)
    forged_bundles.rewrite_index(maker.bundle_folder)
    (line,) = maker.bundle_problems()
    assert f"{LISTS}/InRelease: is for trixie, not bookworm" in line


def test_suites_are_as_their_releases_say(maker: BundleFixture) -> None:
    made = maker.make_bundle()
    known = {"system": "debian-12", "archive": 0, "suite": "bookworm", "components": ("main",), "valid_until": None}
    assert made.suites == (ArchiveSuite(signed="2025-11-01 00:00:00 UTC", **known),)


def test_a_source_of_the_bundles_own_is_not_read(maker: BundleFixture, host: BundleAptHost) -> None:
    made = maker.make_bundle()
    deb = built_debs.build_deb(
        "Package: curl\nVersion: 9:9\nArchitecture: amd64\nMaintainer: nobody\nDescription: one\n"
    )
    row = f"Filename: ./mine.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
    maker.files.serve("mine/./mine.deb", complete_file(deb))
    maker.files.serve("mine/mine.deb", complete_file(deb))
    maker.files.serve("mine/./Packages", complete_file(f"{built_debs.read_control(deb)}{row}".encode()))
    maker.files.serve("mine/Packages", complete_file(f"{built_debs.read_control(deb)}{row}".encode()))
    source = maker.bundle_folder / "packages/debian-12/parts/mine.sources"
    source.parent.mkdir()
    source.write_text(f"Types: deb\nURIs: {maker.files.url}/mine\nSuites: ./\nTrusted: yes\nAllow-Insecure: yes\n")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    path = str(source.relative_to(maker.bundle_folder))
    maker.files.asked.clear()
    host.run(replace(made, rows=(*made.rows, BundleRow(path=path, sha256=digest, size=source.stat().st_size))))
    assert host.installed_files <= {"curl_8.1_amd64.deb", "g++_1.0_amd64.deb", "libcurl_1.0_amd64.deb"}
    assert maker.files.asked == []
