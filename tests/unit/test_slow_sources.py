"""Slow sources: one is given up for the next, and the last one is given more patience."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.render import render
from tests.unit.file_server import FileServer, file_server, slow, whole

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(5000))
SLOW, SLOWER = 40_000, 600  # bytes a second: too slow for one of several, and too slow for the last one


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as made:
        yield made


def fetch(path: Path, *urls: str) -> subprocess.CompletedProcess[str]:
    """Obtain CONTENT as a job does, with a second's patience in place of half a minute's."""
    functions = render("jobs/fetch.sh.j2").replace("seconds=30", "seconds=1").replace("seconds=60", "seconds=2")
    assert functions.count("seconds=1\n") == functions.count("seconds=2\n") == 1
    digest = hashlib.sha256(CONTENT).hexdigest()
    tries = [f"obtain {url} {path} {digest} {len(CONTENT)} && exit 0" for url in urls]
    tries[-1] = f"patient\n{tries[-1]}"
    script = "\n".join([functions, "set -u", *tries, "exit 1"])
    environment = {"PATH": os.environ["PATH"], "HOME": str(path.parent)}
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_a_slow_source_is_given_up_and_the_next_goes_on_where_it_ended(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = fetch(path, server.serve("slow", slow(CONTENT, SLOW)), server.serve("fast", whole(CONTENT)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == CONTENT
    assert [one.path for one in server.asked] == ["slow", "fast"]
    (began,) = [one.range for one in server.asked if one.path == "fast"]
    assert began is not None
    assert 0 < int(began.removeprefix("bytes=").rstrip("-")) < len(CONTENT)


def test_the_last_source_may_be_slow(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert fetch(path, server.serve("slow", slow(CONTENT, SLOW))).returncode == 0
    assert path.read_bytes() == CONTENT
    assert [one.path for one in server.asked] == ["slow"]


def test_the_last_source_is_tried_again_when_it_all_but_stops(server: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = fetch(path, server.serve("slow", slow(CONTENT, SLOWER), whole(CONTENT)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert path.read_bytes() == CONTENT
    assert [one.path for one in server.asked] == ["slow", "slow"]
