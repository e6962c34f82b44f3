"""What several unit tests are given."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# It puts gevent's sockets and threads in the place of Python's. Before any module that is tested is imported: one that
# has made a thread of the other kind by then waits for ever, and whether it has would depend on the files' order.
import pyinfra_cli  # noqa: F401
import pytest
from gevent import get_hub

from cli.resolving import packages, web
from rigwright.engines.llama_cpp import LlamaCpp
from rigwright.plan import facts
from roles.weights.host import reach, rehash
from roles.weights.host.load import Load
from tests.unit import starting
from tests.unit.bundle_world import AptArchive, BundleWorld, signing
from tests.unit.driver_world import DRIVER, DriverArchive, DriverWorld, Signer, signer
from tests.unit.file_server import FileServer, file_server
from tests.unit.lock_world import World
from tests.unit.samples import Box
from tests.unit.shelf import Shelf

# pip is not asked for its index, which takes longer than most tests
NO_INDEX = "http://127.0.0.1:9/simple"
SIGNING = ("apt-get", "dpkg-deb", "gpg", "gpgconf")


# Its loop takes this signal up with the first process that it watches, which may have ended before: it would be waited
# for without end.
get_hub().loop.install_sigchld()
starting.quickly()


@pytest.fixture(autouse=True)
def loopback_is_public(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests of what `lock` and `bundle` make, servers of this machine stand for those of the Internet."""
    if request.module.__name__.rpartition(".")[2].startswith(("test_cli_lock", "test_cli_bundle")):
        monkeypatch.setattr(reach, "public", lambda address: True)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """An operator's folder with a valid catalogue and lock beside the inventory."""
    return Box(tmp_path)


# what an index's form does not touch is locked from one of them each time
@pytest.fixture(params=["json", pytest.param("html", marks=pytest.mark.all_only)])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A box to lock, with an index of either form."""
    with file_server() as files:
        yield locking(tmp_path, files, request.param, monkeypatch)


def locking(
    folder: Path, files: FileServer, form: str, monkeypatch: pytest.MonkeyPatch, kind: type[World] = World
) -> World:
    """A box to lock beside a server, which is its index, too."""
    (folder / "box").mkdir()
    made = kind(folder / "box", files, form)
    monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv"))
    monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
    return made


@pytest.fixture(scope="session")
def archive_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A keyring and the folder of its secret key."""
    if missing := [program for program in SIGNING if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here")
    keyring = tmp_path_factory.mktemp("keyring") / "archive.gpg"
    with signing(keyring) as home:
        yield keyring, home


@pytest.fixture
def files() -> Iterator[FileServer]:
    """A file server on the loopback interface."""
    with file_server() as served:
        yield served


@pytest.fixture
def archive(files: FileServer, archive_key: tuple[Path, Path], tmp_path: Path) -> AptArchive:
    """An archive with what the product's own list of packages is cut down to here."""
    made = AptArchive(files, archive_key[1])
    made.package("curl", "2:8.1", "libcurl")
    made.package("libcurl")
    made.package("g++")
    made.package("other")
    made.publish()
    return made


@pytest.fixture
def maker(
    files: FileServer,
    archive_key: tuple[Path, Path],
    archive: AptArchive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BundleWorld:
    """A box to bundle for."""
    made = BundleWorld(tmp_path / "box", files)
    monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
    monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(facts, "PACKAGES", ("curl",))
    monkeypatch.setattr(LlamaCpp, "packages", ("g++",))
    monkeypatch.setattr(packages, "KEYRING", str(archive_key[0]))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture(scope="session")
def drivers_key() -> Iterator[Signer]:
    """The key of an archive of drivers."""
    if missing := [program for program in SIGNING if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here")
    with signer() as made:
        yield made


@pytest.fixture
def drivers(files: FileServer, drivers_key: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DriverWorld:
    """A box, and an archive with two drivers of a branch and one of another."""
    monkeypatch.setenv("PIP_INDEX_URL", NO_INDEX)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
    archive = DriverArchive(files, drivers_key)
    archive.driver(DRIVER)
    archive.driver("610.57.04")
    archive.package("nvidia-driver-pinning-595", "595-1", "all")
    archive.package("nvidia-driver-pinning-610", "610-1", "all")
    archive.package("cuda-toolkit-13-4", "13.4.0-1")
    archive.package("libcuda1", f"{DRIVER}-2", "i386")
    archive.publish()
    return DriverWorld(tmp_path / "box", archive)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """Weights on a box that has nothing to do."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(rehash, "Load", lambda most: Load(most, tmp_path / "no-pressure", 0.0))
    return Shelf(tmp_path)
