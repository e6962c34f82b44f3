"""A file that is fetched to be kept: whatever happens on the way, what is written is what was hashed."""

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

from cli.lock_resolver import downloads, minimum_throughput, model_hub
from cli.lock_resolver.downloads import CHUNK_BYTES, DownloadUnavailable, FileContent
from tests.unit.file_server import (
    AnswerHandler,
    FileServerHandler,
    LoopbackFileServer,
    complete_file,
    error_status,
    rangeless_file,
    redirect_to,
    run_file_server,
    truncated_file,
)

CONTENT = b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(150_000))  # more than four parts
OTHER = CONTENT[::-1] + b"longer"
TAG, NEWER = ("ETag", '"one"'), ("ETag", '"two"')
DATE = ("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
AFTER = 3 * CHUNK_BYTES + 5


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackFileServer]:
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))
    with run_file_server() as served:
        yield served


def fetch(files: LoopbackFileServer, path: Path, *answers: AnswerHandler) -> FileContent:
    url = files.serve("file", *answers)
    with path.open("wb") as into:
        return downloads.fetch_file(downloads.open_session(), url, lambda done, total: None, into)


def content(expected: bytes) -> FileContent:
    return FileContent(hashlib.sha256(expected).hexdigest(), len(expected))


def ranges(files: LoopbackFileServer) -> list[str | None]:
    return [one.range for one in files.asked if one.path == "file"]


HALF = f"bytes={3 * CHUNK_BYTES}-"


class FullDiskFile(io.BytesIO):
    """A file on a full disk."""

    def write(self, part: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


CASES: list[tuple[str, tuple[AnswerHandler, ...], bytes, list[str | None]]] = [
    ("at once", (complete_file(CONTENT),), CONTENT, [None]),
    ("resumed by its tag", (truncated_file(CONTENT, AFTER, TAG), complete_file(CONTENT, TAG)), CONTENT, [None, HALF]),
    (
        "resumed by its date",
        (truncated_file(CONTENT, AFTER, DATE), complete_file(CONTENT, DATE)),
        CONTENT,
        [None, HALF],
    ),
    (
        "cut twice",
        (
            truncated_file(CONTENT, CHUNK_BYTES + 5, TAG),
            truncated_file(CONTENT, AFTER, TAG),
            complete_file(CONTENT, TAG),
        ),
        CONTENT,
        [None, f"bytes={CHUNK_BYTES}-", HALF],
    ),
    (
        "nothing says that it is the same",
        (truncated_file(CONTENT, AFTER), complete_file(CONTENT)),
        CONTENT,
        [None, None],
    ),
    ("no ranges here", (truncated_file(CONTENT, AFTER, TAG), rangeless_file(CONTENT)), CONTENT, [None, HALF]),
    ("another file by now, longer", (truncated_file(CONTENT, AFTER, TAG), rangeless_file(OTHER)), OTHER, [None, HALF]),
    (
        "another file by now, shorter",
        (truncated_file(CONTENT, AFTER, TAG), rangeless_file(b"new")),
        b"new",
        [None, HALF],
    ),
    (
        "gone below what was there",
        (
            truncated_file(CONTENT, AFTER, TAG),
            complete_file(CONTENT[:CHUNK_BYTES], NEWER),
            complete_file(CONTENT[:CHUNK_BYTES], NEWER),
        ),
        CONTENT[:CHUNK_BYTES],
        [None, HALF, None],
    ),
    (
        "busy in between",
        (truncated_file(CONTENT, AFTER, TAG), error_status(503), complete_file(CONTENT, TAG)),
        CONTENT,
        [None, HALF, HALF],
    ),
]


@pytest.mark.parametrize(("answers", "expected", "asked"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_hashed_bytes_are_written(files, tmp_path, answers, expected, asked):
    assert fetch(files, tmp_path / "file", *answers) == content(expected)
    assert ((tmp_path / "file").read_bytes(), ranges(files)) == (expected, asked)


def test_a_file_from_elsewhere_is_written_too(files: LoopbackFileServer, tmp_path: Path) -> None:
    files.serve("storage", complete_file(CONTENT))
    assert fetch(files, tmp_path / "file", redirect_to("storage")) == content(CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error_status(404), "answers 404"),
        (
            complete_file(b"<html>", ("Content-Type", "text/html; charset=utf-8")),
            "returns a web page instead of a file",
        ),
        (complete_file(b""), "returns an empty file"),
        (truncated_file(CONTENT, 0), "breaks off|cannot be reached"),
    ],
    ids=["gone", "page", "empty", "cut"],
)
def test_other_objects_than_files_are_refused(files, tmp_path, answer, said):
    with pytest.raises(DownloadUnavailable, match=said):
        fetch(files, tmp_path / "file", answer)


def trickle(headers: bool) -> AnswerHandler:
    """Sends a byte now and then, from the first header on or from the body's first byte on, without end."""

    def answer(handler: FileServerHandler, start: int) -> None:
        if headers:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        else:
            handler.send_head(200, 1 << 30)
        with suppress(OSError):  # the other end has given up
            while True:
                handler.wfile.write(b"x")
                time.sleep(0.02)

    return answer


@pytest.mark.parametrize(("ask", "headers"), [("fetch", True), ("fetch", False), ("beginning", False), ("look", True)])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(files, tmp_path, monkeypatch, ask, headers):
    monkeypatch.setattr(minimum_throughput, "STRETCH_SECONDS", 0.1)
    monkeypatch.setattr(downloads, "Retry", lambda **options: Retry(**{**options, "backoff_factor": 0}))
    monkeypatch.setattr(downloads, "TIMEOUT", (10.0, 5.0))
    url = files.serve("file", trickle(headers))
    asked = {
        "fetch": lambda: fetch(files, tmp_path / "file", trickle(headers)),
        "beginning": lambda: downloads.fetch_beginning(downloads.open_session(), url, 4096),
        "look": lambda: downloads.read_file_facts(downloads.open_session(), url),
    }
    with pytest.raises(DownloadUnavailable, match="timed out"):
        asked[ask]()


def test_a_hub_that_sends_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minimum_throughput, "STRETCH_SECONDS", 0.05)

    class Stream(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                time.sleep(0.02)
                yield b"x"

    with pytest.raises(httpx2.ReadTimeout, match="slower than 1 KiB/s"):
        list(model_hub._BoundedStream(Stream()))


def test_waiting_for_a_server_counts_and_nothing_else() -> None:
    now = [0.0]
    rate = minimum_throughput.AnswerThroughput(lambda: now[0])
    least = int(minimum_throughput.MIN_BYTES_PER_SECOND * minimum_throughput.STRETCH_SECONDS)
    for _ in range(3):
        # the rate is kept, and what this side takes counts for nothing
        for _ in range(2):
            rate.start_waiting()
            now[0] += minimum_throughput.STRETCH_SECONDS * 0.45
            rate.add_bytes(least // 2)
            now[0] += 3600
    rate.start_waiting()
    now[0] += minimum_throughput.STRETCH_SECONDS
    rate.add_bytes(0)
    with pytest.raises(minimum_throughput.TooSlow):
        rate.start_waiting()
        rate.add_bytes(1)


def test_a_disk_that_is_full_is_not_taken_for_the_servers_fault(files: LoopbackFileServer) -> None:
    url = files.serve("file", complete_file(CONTENT))
    with pytest.raises(OSError, match="No space left on device"):
        downloads.fetch_file(downloads.open_session(), url, lambda done, total: None, FullDiskFile())
    assert len(ranges(files)) == 1


def test_without_a_place_nothing_is_kept(files: LoopbackFileServer) -> None:
    url = files.serve("file", truncated_file(CONTENT, AFTER, TAG), complete_file(CONTENT, TAG))
    assert downloads.fetch_file(downloads.open_session(), url, lambda done, total: None) == content(CONTENT)


@pytest.mark.parametrize(
    ("place", "followed"),
    [("/b", True), ("https://b.example/", True), ("http://a.example/b", False), ("ftp://a/", False)],
)
def test_no_redirect_leads_from_https_to_another_protocol(place: str, followed: bool) -> None:
    answer = requests.Response()
    answer.status_code, answer.url = 302, "https://a.example/a"
    answer.headers["Location"] = place
    try:
        target = downloads.open_session().get_redirect_target(answer)
    except requests.RequestException as error:
        target = None
        assert str(downloads.describe_failure(error)).startswith("leads from https to another protocol")
    assert (target == place) is followed
