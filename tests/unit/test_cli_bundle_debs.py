"""`rigwright bundle` of a rig with containers: locked packages of other archives, and what those need."""

import hashlib
import json
import runpy
from pathlib import Path

import pytest

from rigwright.inventory import load_rig
from rigwright.supply.bundle import Bundle, BundleRow
from tests import forged_bundles
from tests.lock_files import render_sealed_lock
from tests.unit import built_debs
from tests.unit.bundle_world import DEBS, FILES, ROW, BundleFixture, SignedAptArchive
from tests.unit.file_server import complete_file, error_status

SYSTEM = "debian-12"
OWN = f"docker-{SYSTEM}"
DOCKER = {"engines": ["docker", "podman"]}
NEEDS = {"containerd.io": "libcurl", "docker-ce": "containerd.io, iptables | nftables", "docker-ce-cli": ""}


def deb(name: str) -> bytes:
    """One of Docker's own packages."""
    needs = f"Depends: {NEEDS[name]}\n" if NEEDS[name] else ""
    conflicts = "Conflicts: runc\nProvides: runc\n" if name == "containerd.io" else ""
    return built_debs.build_deb(
        f"Package: {name}\nVersion: 5:28.5.2-1~debian.12~bookworm\nArchitecture: amd64\nMaintainer: nobody\n"
        f"{needs}{conflicts}Description: one\n"
    )


def file_of(name: str) -> str:
    return f"{name}_28.5.2-1~debian.12~bookworm_amd64.deb"


@pytest.fixture
def container_maker(maker: BundleFixture, archive: SignedAptArchive) -> BundleFixture:
    """A rig with containers, for whose system Docker's own packages are locked."""
    for name, needs in (("podman", "runc"), ("runc", ""), ("iptables", "libiptc"), ("libiptc", "")):
        archive.add_package(name, depends=needs)
    archive.add_package("docker.io", "26.1.5+dfsg1-9", "runc")
    archive.add_package("docker-cli", "26.1.5+dfsg1-9")
    for codename in ("bookworm", "trixie"):
        archive.publish_suites(codename)
    rows = []
    for name in NEEDS:
        content, file = deb(name), file_of(name)
        maker.files.serve(f"good/{file}", complete_file(content))
        known = {"kind": "deb", "group": f'group = "{OWN}"\n', "name": name, "file": file, "source": f"store:{file}"}
        digest = hashlib.sha256(content).hexdigest()
        rows.append(ROW.format(**known, version="5:28.5.2-1~debian.12~bookworm", sha256=digest, size=len(content)))
    maker.box.write("locks/debs.lock.toml", render_sealed_lock(*rows))
    maker.write_inventory("good", containers=DOCKER)
    return maker


def packages(made: Bundle, system: str = SYSTEM) -> set[str]:
    """The packages of a system that a bundle has."""
    return set(made.packages(system).versions)


def test_locked_packages_come_with_all_that_they_need(container_maker: BundleFixture) -> None:
    made = container_maker.make_bundle()
    locked = {f"debs/{OWN}/{file_of(name)}" for name in NEEDS}
    assert {row.path for row in made.rows} >= FILES | DEBS | locked
    # the distribution's Docker does not go with its own, which is locked; podman needs what conflicts with that
    assert packages(made) == {"curl", "g++", "libcurl", "podman", "runc", "iptables", "libiptc"}
    container_maker.fetched_paths.clear()
    assert container_maker.make_bundle().digest == made.digest
    assert not [path for path in container_maker.fetched_paths if "docker" in path]


def test_a_system_for_which_none_are_locked_gets_the_distributions(container_maker: BundleFixture) -> None:
    made = container_maker.make_bundle("--system", "debian-13")
    assert {"docker.io", "docker-cli", "podman", "runc"} <= packages(made, "debian-13")
    assert "docker.io" not in packages(made)
    container_maker.write_inventory("good", containers={**DOCKER, "docker": "distribution"})
    made = container_maker.make_bundle()
    assert "docker.io" in packages(made)
    assert not [row for row in made.rows if row.path.startswith("debs/")]


def test_a_release_whose_daemon_has_the_command_is_no_trouble(container_maker, archive):
    del archive.debs["pool/docker-cli_26.1.5+dfsg1-9_amd64.deb"]
    archive.publish_suites("trixie")
    made = container_maker.make_bundle("--system", "debian-13")
    assert "docker.io" in packages(made, "debian-13")
    assert "docker-cli" not in packages(made, "debian-13")


def test_without_containers_none_of_it_is_brought(container_maker: BundleFixture) -> None:
    container_maker.write_inventory("good")
    assert {row.path for row in container_maker.make_bundle().rows} == FILES | DEBS


@pytest.mark.parametrize("answer", [error_status(404), complete_file(deb("docker-ce")[:-1] + b"x")])
def test_a_package_that_is_not_to_be_had_is_named_once(container_maker: BundleFixture, answer: object) -> None:
    container_maker.files.serve(f"good/{file_of('docker-ce')}", answer)  # type: ignore[arg-type]
    (line,) = container_maker.error_lines()
    assert "docker-ce 5:28.5.2-1~debian.12~bookworm: is not available: " in line


def test_a_bundle_that_lacks_one_is_refused_when_the_inventory_loads(container_maker: BundleFixture) -> None:
    container_maker.make_bundle()
    assert faults(container_maker.box.inventory) == []
    index = container_maker.bundle_folder / "bundle.json"
    whole_index = index.read_text()
    row = next(one for one in container_maker.read_bundle().rows if one.path.endswith(file_of("docker-ce")))
    without(container_maker.bundle_folder, row)
    (line,) = faults(container_maker.box.inventory)
    assert f"lacks docker-ce 5:28.5.2-1~debian.12~bookworm ({file_of('docker-ce')})" in line
    # a byte less is seen before any host is reached, too
    index.write_text(whole_index)
    (container_maker.bundle_folder / row.path).write_bytes(b"x")
    (line,) = faults(container_maker.box.inventory)
    assert f"{row.path}: has 1 bytes" in line


def faults(inventory: Path) -> list[str]:
    """The problems of the bundle of the inventory's rig."""
    ((_, data),) = runpy.run_path(str(inventory))["rigs"]
    return [str(one) for one in load_rig(data["rig"]).bundle_faults]


def without(folder: Path, row: BundleRow) -> None:
    """Take a row out of a bundle's index."""
    index = json.loads((folder / "bundle.json").read_text())
    index["files"] = [one for one in index["files"] if one["path"] != row.path]
    forged_bundles.write_index(folder, index)
