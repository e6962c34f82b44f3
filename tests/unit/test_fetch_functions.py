"""The shell functions that bring one file of the lock, with real curl; only the locked bytes get the locked name."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.render import render
from tests.unit import tls
from tests.unit.file_server import FileServer, Handler, cut, file_server, redirect, status, whole, without_ranges

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(6000))
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
HALF = len(CONTENT) // 2
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Fetch:
    """A file of a job in a folder of the test."""

    folder: Path
    server: FileServer

    @property
    def path(self) -> Path:
        return self.folder / "small-q4.gguf"

    @property
    def part(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    def run(self, *urls: str, size: int = len(CONTENT)) -> subprocess.CompletedProcess[str]:
        """Obtain the file from the first address that has it, as the job of an engine does."""
        # no waiting between two tries; otherwise a job's environment, with no proxy and no ~/.curlrc
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        (programs / "sleep").unlink(missing_ok=True)
        (programs / "sleep").symlink_to("/bin/true")
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.folder), "LC_ALL": "C.UTF-8"}
        environment |= tls.trusting()
        tries = [f"obtain {url} {self.path} {DIGEST} {size} && exit 0" for url in urls]
        script = "\n".join([render("jobs/fetch.sh.j2"), "set -u", *tries, "exit 1"])
        return subprocess.run(
            ["sh", "-c", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture
def fetch(tmp_path: Path) -> Iterator[Fetch]:
    with file_server() as server:
        yield Fetch(tmp_path, server)


def test_a_good_file_gets_its_name_read_only(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.path.stat().st_mode & 0o777 == 0o444
    assert not fetch.part.exists()


def test_a_server_that_breaks_off_and_cannot_go_on_is_given_up(fetch: Fetch) -> None:
    def half(handler: Handler, start: int) -> None:
        cut(CONTENT, HALF)(handler, 0)

    done = fetch.run(fetch.server.serve("bad", *[half] * 60, whole(CONTENT)), fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert "m" in [one.path for one in fetch.server.asked]


@pytest.mark.parametrize(
    "content", [WRONG, CONTENT[:-1], CONTENT + b"x", CONTENT[:HALF], b"", b"<html>moved</html>"], ids=len
)
def test_any_other_bytes_are_not_installed(fetch: Fetch, content: bytes) -> None:
    done = fetch.run(fetch.server.serve("m", whole(content)))
    assert done.returncode != 0
    assert "small-q4.gguf is not the locked file" in done.stdout
    assert f"{len(content)} bytes" in done.stdout
    assert DIGEST in done.stdout
    assert not fetch.part.exists()
    assert not fetch.path.exists()


def test_a_size_that_is_not_the_locked_one_is_refused_although_the_hash_is_right(fetch: Fetch) -> None:
    assert fetch.run(fetch.server.serve("m", whole(CONTENT)), size=len(CONTENT) - 1).returncode != 0
    assert not fetch.path.exists()


def test_a_download_that_was_cut_goes_on_where_it_ended(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF), whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked] == [None, f"bytes={HALF}-"]


def test_a_part_of_an_earlier_run_is_gone_on_with(fetch: Fetch) -> None:
    fetch.part.write_bytes(CONTENT[:1000])
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked] == ["bytes=1000-"]


def test_a_part_that_was_whole_already_is_not_fetched_again(fetch: Fetch) -> None:
    fetch.part.write_bytes(CONTENT)
    assert fetch.run(fetch.server.serve("m", whole(CONTENT))).returncode == 0
    assert fetch.server.asked == []


def test_a_server_without_ranges_is_asked_for_everything_again(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF), without_ranges(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert fetch.server.asked[-1].range is None


def test_a_download_that_is_cut_again_and_again_still_ends(fetch: Fetch) -> None:
    steps = [cut(CONTENT, len(CONTENT) * n // 8) for n in range(1, 8)]
    assert fetch.run(fetch.server.serve("m", *steps, whole(CONTENT))).returncode == 0
    assert fetch.path.read_bytes() == CONTENT
    assert len(fetch.server.asked) == 8


def test_a_server_that_sends_nothing_more_is_given_up_and_what_came_is_kept(fetch: Fetch) -> None:
    done = fetch.run(fetch.server.serve("m", cut(CONTENT, HALF)))
    assert done.returncode != 0
    assert len(fetch.server.asked) < 10
    assert fetch.part.read_bytes() == CONTENT[:HALF]
    assert not fetch.path.exists()


@pytest.mark.parametrize("code", [404, 403, 410])
def test_a_mirror_without_the_file_gives_way_to_the_next(fetch: Fetch, code: int) -> None:
    gone, there = fetch.server.serve("gone", status(code)), fetch.server.serve("m", whole(CONTENT))
    assert fetch.run(gone, there).returncode == 0
    assert [one.path for one in fetch.server.asked] == ["gone", "m"]
    assert fetch.path.read_bytes() == CONTENT


def test_a_mirror_with_other_bytes_gives_way_to_the_next(fetch: Fetch) -> None:
    wrong, right = fetch.server.serve("wrong", whole(WRONG)), fetch.server.serve("m", whole(CONTENT))
    done = fetch.run(wrong, right)
    assert done.returncode == 0
    assert "is not the locked file" in done.stdout
    assert fetch.path.read_bytes() == CONTENT


LYING = bytes([CONTENT[0] ^ 1]) + CONTENT[1:]


def test_a_part_from_a_mirror_that_lied_does_not_spoil_the_next_ones(fetch: Fetch) -> None:
    lying, good = fetch.server.serve("lying", cut(LYING, HALF)), fetch.server.serve("good", whole(CONTENT))
    done = fetch.run(lying, good)
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT
    assert [one.range for one in fetch.server.asked if one.path == "good"] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("part", [WRONG, WRONG + b"more", LYING[:HALF], CONTENT + b"more"], ids=len)
def test_a_wrong_part_of_an_earlier_run_is_replaced_by_the_right_file(fetch: Fetch, part: bytes) -> None:
    fetch.part.write_bytes(part)
    done = fetch.run(fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert fetch.path.read_bytes() == CONTENT


def test_a_mirror_whose_own_bytes_are_wrong_has_one_chance_only(fetch: Fetch) -> None:
    assert fetch.run(fetch.server.serve("m", whole(WRONG))).returncode != 0
    assert [one.range for one in fetch.server.asked] == [None]


def test_a_wrong_part_and_a_wrong_mirror_end(fetch: Fetch) -> None:
    fetch.part.write_bytes(WRONG[:HALF])
    assert fetch.run(fetch.server.serve("m", whole(WRONG))).returncode != 0
    assert [one.range for one in fetch.server.asked] == [f"bytes={HALF}-", None]
    assert not fetch.path.exists()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_that_sends_without_end_is_cut_off_at_the_locked_size(fetch: Fetch, chunked: bool) -> None:
    sent = 0

    def endless(handler: Handler, start: int) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
        handler.end_headers()
        handler.close_connection = True
        block = b"x" * 0x10000
        with suppress(OSError):  # the other end has had enough
            while sent < 64 << 20:
                handler.wfile.write(b"10000\r\n" + block + b"\r\n" if chunked else block)
                sent += len(block)

    done = fetch.run(fetch.server.serve("endless", endless), fetch.server.serve("m", whole(CONTENT)))
    assert done.returncode == 0, done.stdout
    assert f"{len(CONTENT) + 1} bytes with SHA-256" in done.stdout
    assert fetch.path.read_bytes() == CONTENT
    # what was on its way is in buffers of the kernel's
    assert sent < 16 << 20


@pytest.mark.parametrize("plain", [False, True], ids=["https", "http"])
def test_a_redirect_leads_nobody_from_https_to_plain_http(fetch: Fetch, plain: bool) -> None:
    target = fetch.server.serve("m", whole(CONTENT))
    with file_server(certificate=tls.server()) as private:
        target = target if plain else private.serve("m", whole(CONTENT))
        done = fetch.run(private.serve("there", redirect(target)))
    assert fetch.path.exists() is not plain, done.stdout
    assert fetch.server.asked == []
