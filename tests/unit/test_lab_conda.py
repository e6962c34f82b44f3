"""The stand-in for a conda channel: its Python is a real one that runs wherever it is put."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import conda
from lab.hub.faults import Damaged, Fault, flipped, truncated
from lab.index import Channel

INSTALL = """
import asyncio, os, sys
from rattler import install, solve
url, spec, prefix, cache = sys.argv[1:]
async def main():
    records = await solve([url], [spec], platforms=["linux-64", "noarch"])
    await install(records, target_prefix=prefix, cache_dir=cache, show_progress=False)
asyncio.run(main())
# its threads can crash the interpreter on its way out
os._exit(0)
"""


OTHER = "3.10.99"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> conda.Channel:
    """One with two packages of the same interpreter: the second says that it is another version."""
    folder, found = tmp_path_factory.mktemp("channel"), conda.find()
    made = conda.write(folder, found)
    assert conda.write(folder, found, OTHER).note == made.note
    return made


@pytest.fixture
def channel(made: conda.Channel) -> Iterator[Channel]:
    with Channel("127.0.0.1", made.folder) as served:
        yield served


def install(channel: Channel, folder: Path, spec: str = f"python !={OTHER}") -> subprocess.CompletedProcess[str]:
    """As conda does it, by py-rattler."""
    command = [sys.executable, "-c", INSTALL, channel.url, spec, folder / "prefix", folder / "cache"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_interpreter_runs_from_a_prefix_of_its_own(channel: Channel, made: conda.Channel, tmp_path: Path) -> None:
    done = install(channel, tmp_path)
    assert done.returncode == 0, done.stderr
    prefix = tmp_path / "prefix"
    code = (
        "import json, platform, ssl, sys, sysconfig; print(json.dumps([platform.python_version(), sys.prefix, "
        "sysconfig.get_path('purelib')]))"
    )
    said = subprocess.run([prefix / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=True)
    found = conda.find()
    packages = prefix / f"lib/python{found.series}/site-packages"
    assert json.loads(said.stdout) == [found.version, str(prefix), str(packages)]
    assert packages.is_dir()
    assert (prefix / conda.NOTE_FILE).read_text() == f"{prefix}\n"
    assert {path.name for path in (prefix / "conda-meta").glob("*.json")} == {
        f"{package.stem}.json" for package in (made.python, made.note)
    }
    assert sorted(channel.fetched) == sorted([made.python.name, made.note.name])
    assert channel.sent_bytes >= made.python.stat().st_size


def test_what_is_packed_is_not_packed_again(made: conda.Channel) -> None:
    packed = made.python.stat()
    assert conda.write(made.folder, conda.find()) == made
    assert made.python.stat() == packed


def test_a_channel_says_what_its_packages_are(made: conda.Channel) -> None:
    for package in (made.python, made.note):
        rows = json.loads((package.parent / "repodata.json").read_text())["packages.conda"]
        assert rows[package.name]["sha256"] == hashlib.sha256(package.read_bytes()).hexdigest()
        assert rows[package.name]["size"] == package.stat().st_size


def swapped(field: str, value: object) -> Damaged:
    """A channel's index that says something else of every package."""

    def damage(content: bytes) -> bytes:
        said = json.loads(content)
        for row in said["packages.conda"].values():
            row[field] = value
        return json.dumps(said).encode()

    return Damaged(damage)


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (flipped("middle"), "package"),
        (swapped("sha256", "0" * 64), "repodata.json"),
        (truncated(20), "repodata.json"),
    ],
    ids=["tampered package", "tampered index", "truncated index"],
)
def test_its_faults_are_those_that_a_client_refuses(
    channel: Channel, made: conda.Channel, tmp_path: Path, fault: Fault, name: str
) -> None:
    channel.fault(fault, "linux-64", made.python.name if name == "package" else name)
    assert install(channel, tmp_path).returncode != 0
    assert fault.met.is_set()


def test_a_package_may_say_that_it_is_another_version(channel: Channel, tmp_path: Path) -> None:
    assert install(channel, tmp_path, f"python =={OTHER}").returncode == 0
    said = subprocess.run([tmp_path / "prefix/bin/python", "-V"], capture_output=True, text=True, check=True)
    assert said.stdout == f"Python {conda.find().version}\n"


def test_the_distributions_own_is_taken_where_there_is_no_other() -> None:
    found = conda.find("2.0")
    assert (found.wanted, found.program) == (False, conda.DISTRIBUTION)
    assert str(found) == f"CPython {found.version}, the distribution's"


def test_an_interpreter_that_does_not_run_elsewhere_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = conda.find()

    def linked(_: conda.Interpreter, staged: Path) -> list[str]:
        (staged / "bin").mkdir()
        (staged / "bin/python").symlink_to(found.prefix / f"bin/python{found.series}")
        return []

    monkeypatch.setattr(conda, "_stage", linked)
    with pytest.raises(RuntimeError, match="does not run from"):
        conda.write(tmp_path, found)
