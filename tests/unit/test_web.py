"""A file that is fetched to be kept: whatever happens on the way, what is written is what was hashed."""

from __future__ import annotations

import errno
import hashlib
import io
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
import requests
from urllib3 import Retry

from cli.resolving import hub, throughput, web
from cli.resolving.web import PART, Content, Unavailable
from tests.unit.file_server import (
    Answer,
    FileServer,
    Handler,
    cut,
    file_server,
    redirect,
    status,
    whole,
    without_ranges,
)

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(150_000))  # more than four parts
OTHER = CONTENT[::-1] + b"longer"
TAG, NEWER = ("ETag", '"one"'), ("ETag", '"two"')
DATE = ("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
AFTER = 3 * PART + 5


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
    with file_server() as served:
        yield served


def fetch(files: FileServer, path: Path, *answers: Answer) -> Content:
    url = files.serve("file", *answers)
    with path.open("wb") as into:
        return web.fetch(web.session(), url, lambda done, total: None, into)


def content(expected: bytes) -> Content:
    return Content(hashlib.sha256(expected).hexdigest(), len(expected))


def ranges(files: FileServer) -> list[str | None]:
    return [one.range for one in files.asked if one.path == "file"]


HALF = f"bytes={3 * PART}-"


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, part: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


CASES: list[tuple[str, tuple[Answer, ...], bytes, list[str | None]]] = [
    ("at once", (whole(CONTENT),), CONTENT, [None]),
    ("resumed by its tag", (cut(CONTENT, AFTER, TAG), whole(CONTENT, TAG)), CONTENT, [None, HALF]),
    ("resumed by its date", (cut(CONTENT, AFTER, DATE), whole(CONTENT, DATE)), CONTENT, [None, HALF]),
    (
        "cut twice",
        (cut(CONTENT, PART + 5, TAG), cut(CONTENT, AFTER, TAG), whole(CONTENT, TAG)),
        CONTENT,
        [None, f"bytes={PART}-", HALF],
    ),
    ("nothing says that it is the same", (cut(CONTENT, AFTER), whole(CONTENT)), CONTENT, [None, None]),
    ("no ranges here", (cut(CONTENT, AFTER, TAG), without_ranges(CONTENT)), CONTENT, [None, HALF]),
    ("another file by now, longer", (cut(CONTENT, AFTER, TAG), without_ranges(OTHER)), OTHER, [None, HALF]),
    ("another file by now, shorter", (cut(CONTENT, AFTER, TAG), without_ranges(b"new")), b"new", [None, HALF]),
    (
        "gone below what was there",
        (cut(CONTENT, AFTER, TAG), whole(CONTENT[:PART], NEWER), whole(CONTENT[:PART], NEWER)),
        CONTENT[:PART],
        [None, HALF, None],
    ),
    ("busy in between", (cut(CONTENT, AFTER, TAG), status(503), whole(CONTENT, TAG)), CONTENT, [None, HALF, HALF]),
]


@pytest.mark.parametrize(("answers", "expected", "asked"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_what_is_written_is_what_was_hashed(
    files: FileServer, tmp_path: Path, answers: tuple[Answer, ...], expected: bytes, asked: list[str | None]
) -> None:
    assert fetch(files, tmp_path / "file", *answers) == content(expected)
    assert (tmp_path / "file").read_bytes() == expected
    assert ranges(files) == asked


def test_a_file_from_elsewhere_is_written_too(files: FileServer, tmp_path: Path) -> None:
    files.serve("storage", whole(CONTENT))
    assert fetch(files, tmp_path / "file", redirect("storage")) == content(CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(404), "answers 404"),
        (whole(b"<html>", ("Content-Type", "text/html; charset=utf-8")), "returns a web page instead of a file"),
        (whole(b""), "returns an empty file"),
        (cut(CONTENT, 0), "breaks off|cannot be reached"),
    ],
    ids=["gone", "page", "empty", "cut"],
)
def test_what_is_no_file_is_refused(files: FileServer, tmp_path: Path, answer: Answer, said: str) -> None:
    with pytest.raises(Unavailable, match=said):
        fetch(files, tmp_path / "file", answer)


def trickle(headers: bool) -> Answer:
    """Sends a byte now and then, from the first header on or from the body's first byte on, without end."""

    def answer(handler: Handler, start: int) -> None:
        if headers:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        else:
            handler.begin(200, 1 << 30)
        with suppress(OSError):  # the other end has given up
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.02)

    return answer


@pytest.mark.parametrize(("ask", "headers"), [("fetch", True), ("fetch", False), ("beginning", False), ("look", True)])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    files: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: str, headers: bool
) -> None:
    monkeypatch.setattr(throughput, "SECONDS", 0.1)
    monkeypatch.setattr(web, "Retry", lambda **options: Retry(**{**options, "backoff_factor": 0}))
    monkeypatch.setattr(web, "TIMEOUT", (10.0, 5.0))
    url = files.serve("file", trickle(headers))
    asked = {
        "fetch": lambda: fetch(files, tmp_path / "file", trickle(headers)),
        "beginning": lambda: web.beginning(web.session(), url, 4096),
        "look": lambda: web.look(web.session(), url),
    }
    with pytest.raises(Unavailable, match="timed out"):
        asked[ask]()


def test_a_hub_that_sends_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "SECONDS", 0.05)

    class Stream(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.sleep(0.02)
                yield b"x"

    with pytest.raises(httpx2.ReadTimeout, match="slower than 1 KiB/s"):
        list(hub._Bounded(Stream()))


def test_waiting_for_a_server_counts_and_nothing_else() -> None:
    now = [0.0]
    rate = throughput.Throughput(lambda: now[0])
    least = int(throughput.LEAST * throughput.SECONDS)
    for _ in range(3):
        # the rate is kept, and what this side takes counts for nothing
        for _ in range(2):
            rate.start_waiting()
            now[0] += throughput.SECONDS * 0.45
            rate.add(least // 2)
            now[0] += 3600
    rate.start_waiting()
    now[0] += throughput.SECONDS
    rate.add(0)
    with pytest.raises(throughput.TooSlow):
        rate.start_waiting()
        rate.add(1)


def test_a_disk_that_is_full_is_not_taken_for_the_servers_fault(files: FileServer) -> None:
    url = files.serve("file", whole(CONTENT))
    with pytest.raises(OSError, match="No space left on device"):
        web.fetch(web.session(), url, lambda done, total: None, Full())
    assert len(ranges(files)) == 1


def test_without_a_place_nothing_is_kept(files: FileServer) -> None:
    url = files.serve("file", cut(CONTENT, AFTER, TAG), whole(CONTENT, TAG))
    assert web.fetch(web.session(), url, lambda done, total: None) == content(CONTENT)


@pytest.mark.parametrize(
    ("place", "followed"),
    [("/b", True), ("https://b.example/", True), ("http://a.example/b", False), ("ftp://a/", False)],
)
def test_no_redirect_leads_from_https_to_another_protocol(place: str, followed: bool) -> None:
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://a.example/a"
    answer.headers["Location"] = place
    try:
        target = web.session().get_redirect_target(answer)
    except requests.RequestException as error:
        target = None
        assert str(web.unavailable(error)).startswith("leads from https to another protocol")
    assert (target == place) is followed
