"""The bench of a gateway: its client and its stand-in for an engine, and what figures come to."""

import json
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from bench.load_statistics import LoadTimes, RequestTimes, parse_load_times
from benchmarks import comparison_environments, litellm
from benchmarks.gateway_host import LITELLM, PACED, PLAIN, PORT, REAL, SOCKET, TLS
from benchmarks.gateway_results import Crowd, Large, Report, Row
from benchmarks.http_streams import MESSAGE, ServerAddress, StreamRequest, render_body
from rigwright.project_root import ROOT
from tests.unit.polling import wait_until


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[StreamRequest]:
    """The stand-in, and a load of two streams for it."""
    path = tmp_path / "api.sock"
    process = subprocess.Popen([sys.executable, "-I", str(ROOT / "benchmarks/paced_engine.py"), str(path)])
    wait_until(path.is_socket)
    yield StreamRequest(ServerAddress(str(path)), PACED, streams=2, seconds=0, tokens=4, more='{"interval_ms": 30}')
    process.terminate()
    process.wait()


def put_on(asked: StreamRequest) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-I", str(ROOT / "benchmarks/http_streams.py")]
    return subprocess.run(program, input=json.dumps(asdict(asked)), capture_output=True, text=True)


def test_the_stand_in_keeps_its_pace_and_the_client_sees_it(engine: StreamRequest) -> None:
    for asked in (engine, replace(engine, kept=False), replace(engine, seconds=0.3)):
        load = parse_load_times(put_on(asked).stdout)
        assert len(load.requests) == 2 if not asked.seconds else len(load.requests) > 2
        for one in load.requests:
            assert one.tokens == 4
            assert one.first_s >= 0.019
            assert sum(one.gaps_s) == pytest.approx(0.09, abs=0.03)
            assert one.total_s >= one.first_s + sum(one.gaps_s)


class ClosingHandler(socketserver.StreamRequestHandler):
    """Says that it keeps a connection, and ends it after one answer, as llama.cpp does after a stream."""

    def handle(self) -> None:
        length = 0
        while line := self.rfile.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        event = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
        self.wfile.write(head + b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_kept_connection_that_a_server_ends_after_its_answer_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), ClosingHandler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        done = put_on(StreamRequest(ServerAddress(str(path)), REAL, streams=2, seconds=0.3, tokens=1))
        server.shutdown()
    assert len(parse_load_times(done.stdout).requests) > 2, done.stderr


def test_answers_without_a_stream_come_at_once_and_large_bodies_are_read(engine: StreamRequest) -> None:
    load = parse_load_times(put_on(replace(engine, stream=False, prompt=3_000_000)).stdout)
    assert [one.tokens for one in load.requests] == [4, 4]
    assert [one.gaps_s for one in load.requests] == [(), ()]


def test_an_answer_that_is_refused_or_short_is_no_figure(engine: StreamRequest) -> None:
    gone = put_on(replace(engine, place=ServerAddress("/nowhere/api.sock")))
    assert (gone.returncode, gone.stderr) == (1, "FileNotFoundError: [Errno 2] No such file or directory\n")
    # the first of two members of one name is what the stand-in goes by
    short = put_on(replace(engine, tokens=0))
    assert short.returncode == 1
    assert "ValueError: an answer of 0 tokens where 0 were asked for" in short.stderr


def test_a_large_body_is_a_conversation_that_no_other_one_begins_with() -> None:
    asked = StreamRequest(ServerAddress(""), PACED, 1, 0, 8, prompt=10 * MESSAGE, more='{"cache_prompt": false}')
    first, second = (json.loads(render_body(asked)) for _ in range(2))
    assert len(first["messages"]) == 10
    assert len(render_body(asked)) > 10 * MESSAGE
    assert first["messages"][0] != second["messages"][0]
    assert (first["cache_prompt"], first["max_tokens"], first["stream"]) == (False, 8, True)


@pytest.mark.parametrize("said", ["", "[]", '{"seconds": 1}', '{"seconds": 1, "requests": [{"first_s": 1}]}'])
def test_an_invalid_figure_is_not_taken_for_one(said: str) -> None:
    with pytest.raises(ValueError, match="the load program printed"):
        parse_load_times(said)


def load(first_s: float, total_s: float = 1.0) -> LoadTimes:
    return LoadTimes(2.0, (RequestTimes(first_s, (0.04,), total_s, 16),) * 4)


def report(**changes: object) -> Report:
    seconds = {SOCKET: 0.019, PORT: 0.020, PLAIN: 0.023, TLS: 0.027, LITELLM: 0.060}
    rows = [
        Row(PACED, 64, together, way, [load(first), load(first + 0.001, 2.0 if way == LITELLM else 1.0)])
        for together in (False, True)
        for way, first in seconds.items()
    ]
    large = Large(PLAIN, 3, 0.2, rows[2], rows[1])
    crowds = [Crowd(PLAIN, 400, 55_000_000, 42_000_000), Crowd(LITELLM, 400, 432_000_000, 311_000_000)]
    made = Report(
        "now", "debian-13", 2, (0.5, 1.0), 2, "1.2", "", rows, {PLAIN: [900.0, 1100.0]}, crowds, [large], [0.02, 0.01]
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_each_way_is_reported_in_terms_of_the_instances_own_port() -> None:
    lines = {(line[1], line[2]): line[3:] for line in report().table()}
    assert lines["64", PORT] == ("8", "1024.0", "20.00", "21.00", "40.00", "+0.00", "+0.00", "+0.00 to +0.00", "1.000")
    assert lines["64", TLS][5:7] == ("+7.00", "+7.00")
    assert lines["64 at once", LITELLM][-1] == "0.750"


def test_goals_stand_beside_what_was_seen() -> None:
    said = report().goals()
    assert said[0] == (
        "gateway: TTFT P99 with 64 streams +3.00 ms beside the port, +4.00 beside the socket; goal: at most 5 ms later"
    )
    assert "gateway: tokens/s ÷ the port's, at worst 1.000, connections kept; goal: 0.99" in said
    assert not any("a connection each answer" in line for line in said)
    more = [
        Row(REAL, 1, False, way, [load(0.02, total)] * 2, kept=False) for way, total in ((PORT, 1.0), (PLAIN, 1.25))
    ]
    rows = [*report().rows, *more, replace(more[1], way=TLS)]
    wanted = "gateway, TLS: tokens/s ÷ the port's, at worst 0.800, a connection each answer; goal: 0.99"
    assert wanted in report(rows=rows).goals()
    assert ("real", "1, new connections", PLAIN) in {line[:3] for line in report(rows=rows).table()}
    assert "gateway: 55.0 MB with 400 streams open, 42.0 before; goal: at most 100 MB" in said
    assert "LiteLLM: 432.0 MB with 400 streams open, 311.0 before" in said
    assert "gateway: 1000 short answers a second over 16 connections (900 to 1100)" in said
    assert said[-1] == "rendering the gateways of 8 boxes: 0.020 s, again 0.010; goal: at most 0.1 s"
    assert json.loads(report().as_json())["rows"][0]["way"] == SOCKET


def test_a_proxy_that_cannot_be_had_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: Path, folder: Path) -> None:
        raise RuntimeError("pip: looking\nERROR: No matching distribution found for litellm")

    monkeypatch.setattr(comparison_environments, "install", refuse)
    reason = litellm.prepare()
    assert reason == "ERROR: No matching distribution found for litellm"
    assert f"LiteLLM left out: {reason};" in report(litellm="", skipped=reason).about
