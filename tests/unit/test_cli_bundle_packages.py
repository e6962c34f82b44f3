"""`rigwright bundle` and packages: which archives apt is pointed at, and that it believes none that is not signed."""

import pytest

from cli.lock_resolver import distribution_packages
from rigwright.supply.bundle import INDEX, BundledPackages
from tests.unit.bundle_world import DEBS, FILES, BundleFixture, SignedAptArchive, archive_signing


def test_archives_are_tried_in_order(maker: BundleFixture, archive: SignedAptArchive) -> None:
    maker.write_inventory("good", apt="gone archive")
    assert {row.path for row in maker.make_bundle().rows} == FILES | DEBS
    # one that lies about a package is found out by apt
    path = next(path for path in archive.debs if "g++" in path)
    content = archive.debs[path]
    archive.serve(path, content[:-1] + bytes([content[-1] ^ 1]))
    (line,) = maker.error_lines()
    assert "gone" in line
    assert "Hash Sum mismatch" in line


def test_an_archive_of_strangers_is_refused(maker, monkeypatch, tmp_path):
    with archive_signing(tmp_path / "other.gpg"):
        monkeypatch.setattr(distribution_packages, "KEYRING", str(tmp_path / "other.gpg"))
        (line,) = maker.error_lines()
    assert "packages of debian-12: apt-get failed: " in line
    assert "NO_PUBKEY" in line or "not signed" in line


def test_packages_with_missing_dependencies_are_refused(maker: BundleFixture, archive: SignedAptArchive) -> None:
    archive.add_package("g++", "1.2", "nothing-like-it")
    archive.publish_suites()
    (line,) = maker.error_lines()
    assert "packages of debian-12: apt-get failed: " in line


def test_another_distribution_needs_its_key_and_an_archive(maker, monkeypatch):
    maker.write_inventory("good", apt="")
    monkeypatch.setattr(
        distribution_packages, "_read_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    )
    (line,) = maker.error_lines(system="ubuntu-24.04")
    said = "this machine runs another distribution: set its archive in the rig's mirrors, as apt"
    assert line == f"{maker.box.inventory}: packages of ubuntu-24.04: {said}"
    monkeypatch.setattr(distribution_packages, "KEYRING", "/nowhere/{}-archive-keyring.gpg")
    (line,) = maker.error_lines(system="ubuntu-24.04")
    said = "/nowhere/ubuntu-archive-keyring.gpg is not on this machine: install ubuntu-keyring"
    assert line.endswith(said)


def test_an_ubuntu_archive_has_its_security_suite_beside_the_others(maker, archive):
    archive.publish_suites("noble", ("main", "universe"))
    done = maker.run_bundle(system="ubuntu-24.04")
    assert done.exit_code == 0, done.output
    assert maker.read_bundle().systems == ("ubuntu-24.04",)
    assert not [one.path for one in maker.files.asked if "debian-security" in one.path]


def test_several_systems_and_rigs_share_one_bundle(maker: BundleFixture, archive: SignedAptArchive) -> None:
    archive.publish_suites("trixie")
    maker.write_inventory("good", rigs=3)
    found = maker.make_bundle("--system", "debian-13")
    assert found.systems == ("debian-12", "debian-13")
    newer = {path.replace("-12", "-13").replace("bookworm", "trixie") for path in DEBS}
    assert {row.path for row in found.rows} == FILES | DEBS | newer
    # a system that is not named any more goes
    assert maker.make_bundle().packages("debian-13") == BundledPackages()
    assert maker.bundle_paths == {INDEX, *FILES, *DEBS}


def test_a_rig_that_shares_weights_has_nginx_in_the_bundle(maker: BundleFixture, archive: SignedAptArchive) -> None:
    archive.add_package("nginx", "1.22", "nginx-common")
    archive.add_package("nginx-common", "1.22")
    archive.publish_suites()
    maker.write_inventory("good", rigs=2)
    assert {row.path for row in maker.make_bundle().rows} == FILES | DEBS
    maker.write_inventory("good", share={"address": "192.0.2.7", "allow": ["192.0.2.0/24"]})
    more = {row.path.rpartition("/")[2].partition("_")[0] for row in maker.make_bundle().rows if row.path not in DEBS}
    assert {"nginx", "nginx-common"} <= more


def test_a_system_that_is_not_to_be_had_leaves_the_earlier_bundle_whole(maker, archive):
    before = maker.make_bundle()
    archive.add_package("g++", "1.1")
    archive.publish_suites()
    (line,) = maker.error_lines("--system", "debian-13")
    assert "packages of debian-13: apt-get failed: " in line
    assert maker.read_bundle() == before


@pytest.mark.parametrize(
    ("distribution", "own", "wanted", "listed", "found"),
    [
        (
            "debian",
            "bookworm",
            "trixie",
            [
                "http://a/debian bookworm bookworm Debian",
                "http://a/debian bookworm-updates bookworm-updates Debian",
                "http://a/security bookworm-security bookworm-security Debian-Security",
            ],
            [
                ("http://a/debian", "trixie"),
                ("http://a/debian", "trixie-updates"),
                ("http://a/security", "trixie-security"),
            ],
        ),
        (
            "debian",
            "bookworm",
            "bookworm",
            ["http://a/debian stable bookworm Debian"],
            [("http://a/debian", "bookworm")],
        ),
        (
            "ubuntu",
            "noble",
            "jammy",
            [
                "http://u noble noble Ubuntu",
                "http://u noble-updates noble Ubuntu",
                "http://u noble-security noble Ubuntu",
            ],
            [("http://u", "jammy"), ("http://u", "jammy-updates"), ("http://u", "jammy-security")],
        ),
        ("debian", "bookworm", "bookworm", ["http://a/debian sid sid Debian"], []),
        (
            "debian",
            "bookworm",
            "bookworm",
            ["http://b bookworm bookworm Somebody", "http://b x bookworm Debian Backports"],
            [],
        ),
        ("debian", "?", "bookworm", ["http://a/debian bookworm bookworm Debian"], []),
    ],
    ids=["another release", "stable", "ubuntu's pockets", "sid beside it", "of others", "no codename"],
)
def test_a_machines_own_archive_is_asked_for_the_release_that_is_wanted(distribution, own, wanted, listed, found):
    assert distribution_packages.source_suites("\n".join([*listed, *listed]), distribution, own, wanted) == found
