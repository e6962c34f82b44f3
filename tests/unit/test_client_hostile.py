"""A client of an engine that was taken over, and of a host that lies: it ends, and what it keeps is bounded."""

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench import load_generator
from rigwright.engines.instance_request import ONE_TOKEN
from rigwright.operate.client_target import ClientTarget
from roles import client
from roles.client import ClientJobFailed, ClientJobLost, HostClient
from roles.client.host import http_exchange
from tests.unit.client_host import ClientHost, make_client_host
from tests.unit.polling import wait_until

Act = Callable[[socket.socket], None]
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
READY = json.dumps({"id": 0, "told": {}})


@contextmanager
def engine(path: Path, act: Act) -> Iterator[http_exchange.RequestTarget]:
    """A socket behind which one request after the other is answered like this, until its client has enough."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with suppress(OSError):
            while True:
                taken, _ = server.accept()
                with suppress(OSError), taken:
                    taken.recv(1 << 16)
                    act(taken)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield http_exchange.RequestTarget(str(path))
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def dripping(first: bytes, drop: bytes) -> Act:
    def act(taken: socket.socket) -> None:
        taken.sendall(first)
        while True:
            time.sleep(0.02)
            taken.sendall(drop)

    return act


def ask_client(limit: float, most: int = 1 << 20) -> dict[str, object]:
    return {"path": "/", "body": None, "limit": limit, "most": most, "again": []}


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nA: ", b"a"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", b"a"),
        (EVENTS, b": nothing yet\n\n"),
    ],
)
def test_a_server_that_sends_a_byte_now_and_then_is_not_read_for_ever(
    tmp_path: Path, first: bytes, drop: bytes
) -> None:
    with engine(tmp_path / "s", dripping(first, drop)) as place:
        began = time.monotonic()
        found = http_exchange.request_with_retries(place, ask_client(0.3))
        took = time.monotonic() - began
    assert "time" in str(found["error"])
    assert took < 2


def test_a_load_reads_no_stream_longer_than_the_longest_answer(tmp_path: Path) -> None:
    with engine(tmp_path / "s", dripping(b"HTTP/1.1 200 OK\r\nA: ", b"a")) as place:
        server = load_generator.LoadTarget(lambda limit: http_exchange.TargetConnection(place, limit, whole=0.3), "")
        began = time.monotonic()
        made = load_generator.make_request(load_generator.LoadRequest("", "", 1, 1, 1, 1, 1, 1), server, 0)
    assert "TimeoutError" in made.error
    assert time.monotonic() - began < 2


def test_events_and_pieces_without_number_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "PIECES", 100)
    with engine(tmp_path / "s", lambda taken: taken.sendall(EVENTS + b"data:\n" * 1000)) as place:
        found = http_exchange.request_with_retries(place, ask_client(5.0))
    assert len(found["events"]) == 100  # type: ignore[arg-type]
    assert found["error"] == "an answer of more than 100 events"

    monkeypatch.setattr(http_exchange, "PIECE", 1)
    with engine(tmp_path / "t", lambda taken: taken.sendall(EVENTS + b"a" * 1000)) as place:
        assert (
            http_exchange.request_with_retries(place, ask_client(5.0))["error"] == "an answer in more than 100 pieces"
        )


@pytest.mark.parametrize("read", [http_exchange.parse_events, load_generator._timed_lines])
def test_a_line_in_a_piece_a_byte_takes_no_longer_than_its_bytes(read: Callable[..., Iterator[object]]) -> None:
    # joined anew with each piece this is 20 GB
    pieces = [(0.0, b"a")] * 200_000
    began = time.process_time()
    list(read(pieces))
    assert time.process_time() - began < 2


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHost:
    return make_client_host(tmp_path / "host", monkeypatch)


@pytest.fixture
def lying(tmp_path: Path, host: ClientHost) -> Callable[[str], HostClient]:
    """A client whose host runs another program; it has read the program, the place and order."""

    def made(script: str) -> HostClient:
        (tmp_path / "host" / "bin" / "systemd-run").write_text(f"#!/bin/sh\n{script}\n")
        return HostClient(host, ClientTarget("chat", str(tmp_path / "s"), "model"))

    return made


ORDERED = f"echo '{READY}'; read -r a; read -r b; read -r c; "


def test_a_host_that_says_nothing_is_not_waited_for(lying, monkeypatch):
    monkeypatch.setattr(client, "BEGIN", 0.3)
    with pytest.raises(ClientJobLost, match="has been silent for"), lying("cat >/dev/null"):
        pass
    with lying(f"{ORDERED} cat") as one, pytest.raises(ClientJobLost, match="has been silent for"):
        one.send_request(ONE_TOKEN, 0.1)


def test_unread_data_is_not_kept(lying: Callable[[str], HostClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KEPT", 1000)
    line = json.dumps({"id": 1, "told": "a" * 100})
    with lying(f"{ORDERED} while echo '{line}'; do :; done") as one:
        words = one.run_module("asking", {}, str, 5.0)
        next(words)
        wait_until(lambda: one._lost)
        with pytest.raises(ClientJobLost, match="unread output exceeded the limit"):
            list(words)


def test_results_of_an_abandoned_order_are_left_out(lying: Callable[[str], HostClient]) -> None:
    late = "".join(f"echo '{json.dumps({'id': number, 'told': 'a'})}'; " for number in (0, 1, 1, 2))
    with lying(f"{ORDERED} echo '{json.dumps({'id': 1, 'told': 'first'})}'; read -r d; {late} cat") as one:
        given_up = one.run_module("asking", {}, str, 5.0)
        assert next(given_up) == "first"
        given_up.close()
        assert next(one.run_module("asking", {}, str, 5.0)) == "a"
        assert not one._orders


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_an_invalid_number_is_refused(lying: Callable[[str], HostClient], number: str) -> None:
    with lying(f'{ORDERED} echo \'{{"id": 1, "told": {number}}}\'; cat') as one, pytest.raises(ClientJobFailed):
        assert math.isfinite(next(one.run_module("asking", {}, float, 5.0)))


def test_an_order_that_fails_in_any_way_says_so(host: ClientHost, tmp_path: Path) -> None:
    worker = tmp_path / "failing.py"
    worker.write_text("def work(place, asked, say):\n    raise ArithmeticError('of no kind that is known')\n")
    place = ClientTarget("chat", str(tmp_path / "s"), "model")
    with HostClient(host, place, worker) as one, pytest.raises(ClientJobFailed, match="ArithmeticError"):
        next(one.run_module("failing", {}, str, 5.0))
