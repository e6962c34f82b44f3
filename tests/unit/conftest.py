"""Fixtures of several unit tests."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

# It puts gevent's sockets and threads in the place of Python's. Before any module that is tested is imported: one that
# has made a thread of the other kind by then waits for ever, and whether it has would depend on the files' order.
import pyinfra_cli  # noqa: F401
import pytest
from gevent import get_hub

from cli.lock_resolver import distribution_packages, downloads
from rigwright.engines.llama_cpp import LlamaCpp
from rigwright.plan import host_probe
from roles.progress import progress
from roles.weights.host import reach, rehash
from roles.weights.host.load import SystemLoad
from tests.unit import process_start
from tests.unit.bundle_world import BundleFixture, SignedAptArchive, archive_signing
from tests.unit.driver_world import DRIVER, ArchiveSigner, DriverLockFixture, FlatDriverArchive, make_signer
from tests.unit.file_server import LoopbackFileServer, run_file_server
from tests.unit.lock_world import LockFixture
from tests.unit.samples import OperatorFolder
from tests.unit.weight_shelf import WeightShelf

# pip is not asked for its index, which takes longer than most tests
NO_INDEX = "http://127.0.0.1:9/simple"
SIGNING = ("apt-get", "dpkg-deb", "gpg", "gpgconf")


# Its loop takes this signal up with the first process that it watches, which may have ended before: it would be waited
# for without end.
get_hub().loop.install_sigchld()
process_start.install_fast_start()


@pytest.fixture(autouse=True)
def no_run_outlives_its_test() -> Iterator[None]:
    """End the rows of a run that a test began: their thread would write lines into the output of another test."""
    yield
    if progress.is_running:
        progress.end_run()


@pytest.fixture(autouse=True)
def loopback_is_public(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests of what `lock` and `bundle` make, servers of this machine stand for those of the Internet."""
    if request.module.__name__.rpartition(".")[2].startswith(("test_cli_lock", "test_cli_bundle")):
        monkeypatch.setattr(reach, "is_public_address", lambda address: True)


@pytest.fixture
def box(tmp_path: Path) -> OperatorFolder:
    """An operator's folder with a valid catalogue and lock beside the inventory."""
    return OperatorFolder(tmp_path)


# packages that an index's form does not touch are locked from one of them each time
@pytest.fixture(params=["json", pytest.param("html", marks=pytest.mark.all_only)])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockFixture]:
    """A box to lock, with an index of either form."""
    with run_file_server() as files:
        yield lock_fixture_box(tmp_path, files, request.param, monkeypatch)


def lock_fixture_box(
    folder: Path,
    files: LoopbackFileServer,
    form: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[LockFixture] = LockFixture,
) -> LockFixture:
    """A box to lock beside a server, which is its index, too."""
    (folder / "box").mkdir()
    made = kind(folder / "box", files, form)
    monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "uv"))
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))
    return made


@pytest.fixture(scope="session")
def archive_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A keyring and the folder of its secret key."""
    if missing := [program for program in SIGNING if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here")
    keyring = tmp_path_factory.mktemp("keyring") / "archive.gpg"
    with archive_signing(keyring) as home:
        yield keyring, home


@pytest.fixture
def files() -> Iterator[LoopbackFileServer]:
    """A file server on the loopback interface."""
    with run_file_server() as served:
        yield served


@pytest.fixture
def archive(files: LoopbackFileServer, archive_key: tuple[Path, Path], tmp_path: Path) -> SignedAptArchive:
    """An archive with what the product's own list of packages is cut down to here."""
    made = SignedAptArchive(files, archive_key[1])
    made.add_package("curl", "2:8.1", "libcurl")
    made.add_package("libcurl")
    made.add_package("g++")
    made.add_package("other")
    made.publish_suites()
    return made


@pytest.fixture
def maker(
    files: LoopbackFileServer,
    archive_key: tuple[Path, Path],
    archive: SignedAptArchive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BundleFixture:
    """A box to bundle for."""
    made = BundleFixture(tmp_path / "box", files)
    monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(host_probe, "PACKAGES", ("curl",))
    monkeypatch.setattr(LlamaCpp, "packages", ("g++",))
    monkeypatch.setattr(distribution_packages, "KEYRING", str(archive_key[0]))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture(scope="session")
def drivers_key() -> Iterator[ArchiveSigner]:
    """The key of an archive of drivers."""
    if missing := [program for program in SIGNING if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here")
    with make_signer() as made:
        yield made


@pytest.fixture
def drivers(
    files: LoopbackFileServer, drivers_key: ArchiveSigner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DriverLockFixture:
    """A box, and an archive with two drivers of a branch and one of another."""
    monkeypatch.setenv("PIP_INDEX_URL", NO_INDEX)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))
    archive = FlatDriverArchive(files, drivers_key)
    archive.add_driver(DRIVER)
    archive.add_driver("610.57.04")
    archive.build_package("nvidia-driver-pinning-595", "595-1", "all")
    archive.build_package("nvidia-driver-pinning-610", "610-1", "all")
    archive.build_package("cuda-toolkit-13-4", "13.4.0-1")
    archive.build_package("libcuda1", f"{DRIVER}-2", "i386")
    archive.publish()
    return DriverLockFixture(tmp_path / "box", archive)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WeightShelf:
    """Weights on a box that has nothing to do."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(rehash, "SystemLoad", lambda most: SystemLoad(most, tmp_path / "no-pressure", 0.0))
    return WeightShelf(tmp_path)
