"""`rigwright lock`, the container toolkit and Docker, against small archives that the real apt reads and verifies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.lock_resolver import downloads
from rigwright.model.containers.archive_tables import load_container_tables
from tests.unit.conftest import NO_INDEX
from tests.unit.container_samples import FIVE, FOUR
from tests.unit.driver_world import ArchiveSigner
from tests.unit.file_server import LoopbackFileServer
from tests.unit.packages_world import CATALOG, DOCKER, ContainerLockFixture


@pytest.fixture
def box(
    files: LoopbackFileServer, drivers_key: ArchiveSigner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ContainerLockFixture]:
    monkeypatch.setenv("PIP_INDEX_URL", NO_INDEX)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))
    yield ContainerLockFixture(tmp_path / "box", files, drivers_key)
    load_container_tables.cache_clear()


def test_all_packages_of_an_archive_are_locked_with_its_key(box, drivers_key):
    assert box.lock_lines() == ["+ container-toolkit 1.20.0, 4 packages", f"+ {DOCKER} 28.5.2, 5 packages"]
    groups = box.read_lock.groups
    four = {row.name: row for row in groups["container-toolkit"]}
    assert {name: row.version for name, row in four.items()} == {
        **dict.fromkeys(FOUR, "1.20.0-1"),
        "container-toolkit": drivers_key.fingerprint,
    }
    file = "nvidia-container-toolkit-base_1.20.0-1_amd64.deb"
    assert four["nvidia-container-toolkit-base"].sources == (
        f"container-toolkit:stable/deb/amd64/{file}",
        f"https://nvidia.github.io/libnvidia-container/stable/deb/amd64/{file}",
    )
    five = {row.name: row for row in groups[DOCKER]}
    assert {name: five[name].version for name in FIVE} == {
        **dict.fromkeys(("docker-ce", "docker-ce-cli"), "5:28.5.2-1~debian.13~trixie"),
        # these have versions of their own, and the newest goes with each
        **dict.fromkeys(
            ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin"), "1.7.28-1~debian.13~trixie"
        ),
    }
    assert five["docker"].sources == ("docker:debian/gpg", "https://download.docker.com/linux/debian/gpg")
    assert box.read_lock.keys == dict.fromkeys(("container-toolkit", DOCKER), drivers_key.armoured)
    box.files.asked.clear()
    assert (box.lock_lines(), box.files.asked) == (["no change"], [])
    assert (
        box.run_lock("--check").output.splitlines()[-1] == f"{DOCKER} 28.5.2: {box.files.url}/docker/debian has 29.1.0"
    )


def test_a_version_that_the_archive_lacks_is_refused_with_those_that_it_has(box: ContainerLockFixture) -> None:
    box.write_catalog(CATALOG.replace("1.20.0", "1.18.0"))
    (line,) = box.lock_error_lines()
    assert (
        "has no nvidia-container-toolkit 1.18.0; of nvidia-container-toolkit it has 1.19.1, 1.20.0~rc.1, 1.20.0" in line
    )


def test_another_key_than_the_tables_know_is_refused(box: ContainerLockFixture, drivers_key: ArchiveSigner) -> None:
    box.write_tables("A" * 40)
    lines = box.lock_error_lines()
    assert len(lines) == 2
    for line in lines:
        assert f"is the key {drivers_key.fingerprint}, and the tables of containers know {'A' * 40}" in line


def test_another_folder_than_the_tables_know_is_refused(box: ContainerLockFixture) -> None:
    box.write_catalog(CATALOG.replace("docker:debian", "docker:ubuntu"))
    (line,) = box.lock_error_lines()
    assert line.endswith(f"inputs.{DOCKER}: cannot be locked: docker:ubuntu is refused: it must be docker:debian")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("container-toolkit]", "container-tolkit]", 'there is no input of packages "container-tolkit"; did you mean'),
        ("docker-debian-13]", "docker-debian-11]", 'there is no input of packages "docker-debian-11"'),
        ('"docker:debian"', '"nvidia:debian"', "inputs.docker-debian-13.sources: nvidia: is refused: must be docker:"),
    ],
)
def test_packages_are_called_after_what_is_brought_by_packages(box, before, after, said):
    box.write_catalog(CATALOG.replace(before, after).replace("28.5.2", "580.95.05"))
    (line,) = box.lock_error_lines()
    assert said in line
