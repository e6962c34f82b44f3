"""A hub whose list of files has no end, or is packed, or has more files than any model: nothing is waited for."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.lock_resolver import model_hub
from tests.unit.hub_world import HubLockFixture, make_hub_fixture
from tests.unit.text_handler import TextHandler

MOST = 1 << 20
SENT = 64  # times as much is sent at most by one that ends


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    monkeypatch.setattr(model_hub, "MOST", MOST)
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        yield made


@contextmanager
def answering(status: int, headers: dict[str, str], parts: list[bytes]) -> Iterator[tuple[str, list[int]]]:
    """A server that answers whatever it is asked with these; its address, and the bytes that it got rid of."""
    sent = [0]

    class Handler(TextHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):
                for part in parts:
                    self.wfile.write(part)
                    sent[0] += len(part)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()
        thread.join()


def lock_error(world: HubLockFixture, url: str) -> str:
    world.write_rig(mirrors={"hub": [url]})
    return world.lock_error()


@pytest.mark.parametrize("status", [200, 404, 307])
def test_an_answer_without_end_is_not_read_to_it(world: HubLockFixture, status: int) -> None:
    headers = {"Content-Type": "application/json", "Location": "/other"}
    with answering(status, headers, [b" " * MOST] * SENT) as (url, sent):
        said = lock_error(world, url)
    assert said.startswith(
        f"cannot be locked: the hub at {url} answers with too much for org/name: at most 20000 files"
    )
    assert sent[0] < SENT * MOST / 2


def test_an_answer_that_is_packed_is_not_unpacked(world: HubLockFixture) -> None:
    packed = gzip.compress(b" " * (SENT * MOST))
    with answering(200, {"Content-Encoding": "gzip", "Content-Length": str(len(packed))}, [packed]) as (url, _):
        assert "answers with too much for org/name" in lock_error(world, url)


@pytest.mark.parametrize(("count", "much"), [(5, False), (6, True)])
def test_more_files_than_any_model_has_are_too_many(world, monkeypatch, count, much):
    monkeypatch.setattr(model_hub, "FILES", 5)
    files = [{"rfilename": f"{number}.x", "size": 0, "blobId": "0" * 40} for number in range(count)]
    told = json.dumps({"id": "org/name", "sha": "0" * 40, "siblings": files}).encode()
    with answering(200, {"Content-Length": str(len(told))}, [told]) as (url, _):
        assert ("too much" in lock_error(world, url)) == much
