"""The stand-in for a package index, asked by the clients that hosts have: pip and uv."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import wheels
from lab.hub.faults import Cut, Endless, Fault, Status, extended, flipped, truncated
from lab.index import Index
from lab.wheels import Wheel

CONTENT = "answer = 42\n" * 1000


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A kept one."""
    monkeypatch.setattr(wheels, "CACHE", tmp_path / "kept")
    info, file = "lab_pure-1.0.dist-info", "lab_pure-1.0-py3-none-any.whl"
    parts = {
        "lab_pure.py": CONTENT,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: lab-pure\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*parts, f"{info}/RECORD"])
    made = tmp_path / file
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**parts, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    found = Wheel("lab-pure", "1.0", file, hashlib.sha256(made.read_bytes()).hexdigest(), made.stat().st_size)
    found.place.parent.mkdir(parents=True)
    made.rename(found.place)
    return found


@pytest.fixture
def index(wheel: Wheel) -> Iterator[Index]:
    with Index("127.0.0.1", [wheel]) as made:
        yield made


def by_pip(index: Index, wheel: Wheel, folder: Path) -> subprocess.CompletedProcess[str]:
    names = folder / "names.txt"
    names.write_text(f"lab-pure==1.0 --hash=sha256:{wheel.sha256}\n")
    pip = [sys.executable, "-m", "pip", "--isolated", "download", "--no-cache-dir", "--retries=0", "--no-deps"]
    command = [*pip, "--index-url", index.url, "--require-hashes", "-r", names, "-d", folder / "got"]
    return subprocess.run(command, capture_output=True, text=True)


def by_uv(index: Index, wheel: Wheel, folder: Path) -> subprocess.CompletedProcess[str]:
    names = folder / "names.txt"
    names.write_text(f"lab-pure==1.0 --hash=sha256:{wheel.sha256}\n")
    uv = [str(Path(sys.executable).with_name("uv")), "--no-config", "pip", "install", "--no-deps", "--require-hashes"]
    command = [*uv, "--default-index", index.url, "-r", names, "--target", folder / "got", "--cache-dir", folder / "c"]
    return subprocess.run(command, capture_output=True, text=True, env={"UV_HTTP_RETRIES": "0"})


def test_pip_and_uv_have_a_wheel_of_it_and_its_bytes_are_counted(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    done = by_pip(index, wheel, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / wheel.file).read_bytes() == wheel.place.read_bytes()
    assert (index.sent_bytes, index.fetched) == (wheel.size, [wheel.file])
    done = by_uv(index, wheel, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / "lab_pure.py").read_text() == CONTENT
    assert index.sent_bytes == 2 * wheel.size


FAULTS = {
    "changed": flipped("last"),
    "truncated": truncated(),
    "longer": extended(),
    "cut": Cut(100),
    "refused": Status(503),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_wheel_that_is_not_the_named_one_is_refused(index: Index, wheel: Wheel, tmp_path: Path, fault: Fault) -> None:
    index.fault(fault, "lab-pure", wheel.file)
    assert by_uv(index, wheel, tmp_path).returncode != 0
    assert fault.met.is_set()
    index.heal()
    assert by_uv(index, wheel, tmp_path).returncode == 0


def test_a_page_can_be_damaged_or_refused(index: Index, wheel: Wheel, tmp_path: Path) -> None:
    index.fault(Status(404, where="api"), "lab-pure")
    assert by_uv(index, wheel, tmp_path).returncode != 0
    index.heal()
    assert by_uv(index, wheel, tmp_path).returncode == 0


def test_an_answer_without_an_end_goes_on_until_who_asked_hangs_up(index: Index, wheel: Wheel) -> None:
    index.fault(Endless(), "lab-pure", wheel.file)
    with socket.create_connection(("127.0.0.1", int(index.url.rpartition(":")[2]))) as asking:
        asking.sendall(f"GET /files/{wheel.sha256}/{wheel.file} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        head, got = b"", 0
        while got < 10 * wheel.size + (4 << 20):
            part = asking.recv(1 << 20)
            assert part, "it has an end"
            head, got = head + part[: 4096 - len(head)], got + len(part)
    assert b"Content-Length" not in head


def test_what_is_kept_is_not_fetched_again(wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    wheels.keep([wheel], "3.10")


def test_a_file_of_that_name_with_other_bytes_is_not_kept(wheel: Wheel, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Wheel(wheel.project, wheel.version, wheel.file, "0" * 64, wheel.size)

    def fetched(command: list[object], **_: object) -> None:
        (Path(str(command[-1])) / wheel.file).write_bytes(wheel.place.read_bytes())

    monkeypatch.setattr(subprocess, "run", fetched)
    with pytest.raises(ValueError, match="not the one that the lock names"):
        wheels.keep([other], "3.10")
    assert not other.kept
