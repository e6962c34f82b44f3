"""The benchmark's clients of models at random, by a server that streams, refuses, and breaks off."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Event, Thread

from benchmarks.on_demand import OUR_START, THEIR_START
from benchmarks.on_demand_host import is_marked
from benchmarks.on_demand_load import RandomLoad, RandomRequest, run_load
from benchmarks.on_demand_results import LOAD_HEAD, MODEL_HEAD, LoadRow, OnDemandReport, WakePair
from tests.unit.text_handler import TextHandler

TOKENS = 3
USAGE = {"usage": {"completion_tokens": TOKENS}, "choices": []}
STREAM = f": waiting, position 1, about 2 s\n\ndata: {{}}\n\ndata: {json.dumps(USAGE)}\n\ndata: [DONE]\n\n"
FAILED = ': waiting\n\ndata: {"error": {"message": "it did not start"}}\n\ndata: [DONE]\n\n'
CUT = "data: {}\n\n"


class StandInServer(TextHandler):
    """Answers by the model's name."""

    def do_POST(self) -> None:
        """Answer."""
        asked = self.read_json()
        if asked["model"] == "busy":
            self.send_response(503)
            self.send_header("Retry-After", "1")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        text = {"failed": FAILED, "cut": CUT}.get(asked["model"], STREAM)
        self.wfile.write((text if asked["stream"] else json.dumps(USAGE)).encode())


@contextmanager
def serve() -> Iterator[str]:
    """Address of the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), StandInServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(at: str, model: str, plain: float, requests: int = 1) -> list[RandomRequest]:
    """The requests of one client."""
    return run_load(RandomLoad(at, (model,), 1, 60.0, TOKENS, requests=requests, plain=plain))


def test_each_end_of_a_request_is_told_from_the_others() -> None:
    with serve() as at:
        (stream,) = ask(at, "chat", 0.0)
        (plain,) = ask(at, "chat", 1.0)
        (busy,) = ask(at, "busy", 1.0)
        (failed,) = ask(at, "failed", 0.0)
        (cut,) = ask(at, "cut", 0.0)
    assert (stream.problem, stream.comments, stream.tokens) == ("", 1, TOKENS)
    assert (plain.problem, plain.comments, plain.tokens) == ("", 0, TOKENS)
    assert busy.is_refusal
    assert not busy.is_lost
    assert failed.is_lost
    assert "it did not start" in failed.problem
    assert cut.problem == "the stream ended early"


def test_a_seed_gives_every_server_the_same_requests() -> None:
    loads = []
    for _ in range(2):
        with serve() as at:
            rows = run_load(RandomLoad(at, ("one", "two", "three"), 3, 60.0, TOKENS, requests=5))
        loads.append(sorted((one.client, one.model, one.stream) for one in rows))
    assert loads[0] == loads[1]
    assert len(loads[0]) == 15


def test_a_load_that_is_stopped_ends_after_the_requests_under_way() -> None:
    stop = Event()
    stop.set()
    with serve() as at:
        assert run_load(RandomLoad(at, ("chat",), 2, 60.0, TOKENS), stop) == []
        (one,) = run_load(RandomLoad(at, ("chat",), 1, 60.0, TOKENS, requests=1, zero=time.monotonic() - 100.0))
    assert 100.0 <= one.began < 160.0


def test_a_report_has_the_median_of_the_pairs_and_counts_lost_requests() -> None:
    rows = [RandomRequest(0, "m1", True, 0.0, 200, wait, wait, 0, TOKENS) for wait in (1.0, 2.0, 9.0)]
    rows += [RandomRequest(1, "m2", True, 0.0, problem="cut"), RandomRequest(1, "m2", True, 0.0, 503, retry_s=5)]
    rows[-1].problem = "503"
    row = LoadRow("Rigwright", 2, 1, 60.0, 5, rows, {"m1": 2, "m2": 1}, load_s=3.0, kills=4)
    report = OnDemandReport("now", 2, 1.0, 8, 5, [WakePair(1.1, 1.0), WakePair(3.0, 1.0), WakePair(1.2, 1.0)], [row])
    figures = dict(zip(LOAD_HEAD, report.loads[0].table_row(), strict=True))
    assert figures == {
        **{"server": "Rigwright", "models": "2", "at a time": "1", "seconds": "60", "kills": "4", "requests": "5"},
        **{"lost": "1", "refused": "1", "by client": "2 to 3", "loads": "3", "P50 s": "2.0", "P95 s": "2.0"},
        # two turns of a load and the residence, and ten seconds
        **{"longest s": "9.0", "bound s": "26", "tokens": "9"},
    }
    assert [dict(zip(MODEL_HEAD, one, strict=True))["requests"] for one in row.model_rows()] == ["3", "2"]
    assert row.problems() == ["Rigwright, 2 models: 1 × cut", "Rigwright, 2 models: 1 × 503"]
    assert "median ratio 1.20 of 3 pairs (1.10 to 3.00); goal 1.2: reached" in report.goal()
    value = json.loads(report.as_json())
    assert value["wakes"][0] == {"wake_s": 1.1, "bare_s": 1.0}
    assert value["loads"][0]["bound_s"] == row.bound_s


def test_lines_of_a_journal_count_for_the_model_that_they_name() -> None:
    assert is_marked("m1 is starting", "m1", OUR_START)
    assert not is_marked("m11 is starting", "m1", OUR_START)
    assert not is_marked("m1 is stopping: m1 is starting", "m1", OUR_START)
    line = "0.16.604.492 I srv load: spawning server instance with name=m1 on port 47583"
    assert is_marked(line, "m1", THEIR_START)
    assert not is_marked(line.replace("m1", "m11"), "m1", THEIR_START)
