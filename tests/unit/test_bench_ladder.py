"""Ladders of load: against a stand-in of fixed timing, whose truth can be worked out, and judged by tables."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bench.load_generator import CHAT, GIVE_UP, LoadRequest, SentRequest
from bench.load_ladder_results import LadderStep, LoadResult, describe_queues, find_saturation, percentile, render_csv
from bench.load_statistics import RequestTimes
from bench.load_with_metrics import lines
from bench.sandbox_overhead import PROGRAM
from rigwright.engines.metrics import EngineMetrics, parse_metrics
from rigwright.engines.vllm.runtime_log import METRIC_NAMES
from rigwright.operate.gateway_probes import ProbeAllowance
from tests.unit.chat_engine import KEY, StandInChatEngine

Load = Callable[..., LadderStep]
NAMES = frozenset(
    {
        METRIC_NAMES.running,
        METRIC_NAMES.waiting,
        METRIC_NAMES.kv_used,
        METRIC_NAMES.preemptions,
        METRIC_NAMES.tokens,
        *METRIC_NAMES.prompt_tokens,
    }
)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a stand-in by the load program itself, in a process of its own, as on a host."""
    (tmp_path / "key").write_text(KEY)

    def loaded(engine: StandInChatEngine, streams: int, seconds: float, tokens: int = 6, **more: Any) -> LadderStep:
        with engine.running_at(tmp_path / "socket") as at:
            asked = LoadRequest(at, str(tmp_path / "key"), 0, streams, 0, 0, 0, seed=1, path=CHAT, seconds=seconds)
            asked = replace(asked, **({"prompts": [("say it", tokens)], "model": "m"} | more))
            command = [sys.executable, "-I", "-", json.dumps(asdict(asked))]
            done = subprocess.run(command, input=PROGRAM.read_text(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return LadderStep.from_load(streams, LoadResult.model_validate_json(done.stdout), ())

    return loaded


def test_no_time_is_shorter_than_the_server_of_fixed_timing_took(load: Load) -> None:
    """How much later each came is the machine's affair: six tokens, the first after 0.1 s and each other one 0.04 s
    later, make an answer of 0.3 s, so that each of four streams makes two to four requests in 0.9 s.
    """
    found = load(StandInChatEngine(first_s=0.1, gap_s=0.04), streams=4, seconds=0.9)
    assert 8 <= len(found.requests) <= 16
    assert found.seconds >= 0.9
    for one in found.requests:
        assert (one.tokens, len(one.gaps_s)) == (6, 5)
        for number in range(6):
            assert one.first_s + sum(one.gaps_s[:number]) >= 0.1 + 0.04 * number
        assert one.total_s >= one.first_s + sum(one.gaps_s)


def event(**members: object) -> bytes:
    return f"data: {json.dumps(members)}\n\n".encode()


def chat(first_s: float, gap_s: float, tokens: int, began: float) -> SentRequest:
    """An answer that came at exactly these moments."""
    came = [(began + first_s, event(choices=[{"delta": {"role": "assistant", "content": ""}}]))]
    came += [(began + first_s + n * gap_s, event(choices=[{"delta": {"content": "x"}}])) for n in range(tokens)]
    ended = began + first_s + (tokens - 1) * gap_s
    usage = {"prompt_tokens": 7, "completion_tokens": tokens}
    last = event(choices=[{"delta": {}, "finish_reason": "length"}]) + event(choices=[], usage=usage)
    return SentRequest(began, ended, [*came, (ended, last + b"data: [DONE]\n\n")])


def test_figures_of_known_times_are_what_they_come_to() -> None:
    """Four streams, four requests each of six tokens: the first after 100 ms, the others 40 ms apart."""
    made = [chat(0.1, 0.04, 6, 0.3 * turn) for turn in range(4) for _ in range(4)]
    told = {"seconds": 1.2, "processor_s": 0.6, "requests": [one.as_times(tolerant=True) for one in made]}
    found = LadderStep.from_load(4, LoadResult.model_validate(told), ()).figures()
    truth: dict[str, float] = {"completed": 16, "failed": 0, "refused": 0, "total_output_tokens": 96, "duration": 1.2}
    truth |= {"request_throughput": 16 / 1.2, "output_throughput": 80, "max_concurrency": 4, "client": 0.5}
    for name, ms in (("ttft", 100), ("tpot", 40), ("itl", 40), ("e2el", 300)):
        truth |= {f"{share}_{name}_ms": ms for share in ("mean", "median", "p90", "p99")}
    assert {name: found[name] for name in truth} == pytest.approx(truth)
    assert {name for name, value in found.items() if value is None} == {
        *("running", "waiting", "kv", "preemptions", "foreign_tokens")
    }


def test_answers_after_the_planned_seconds_count_in_one_of_both_rates() -> None:
    """Two streams for one second, answers of 0.8 s: the second ones come 0.6 s after it."""
    made = [chat(0.4, 0.4, 2, 0.8 * turn) for turn in range(2) for _ in range(2)]
    told = {"seconds": 1.6, "processor_s": 0.1, "requests": [one.as_times(tolerant=True) for one in made]}
    rung = LadderStep.from_load(2, LoadResult.model_validate(told), ())
    assert (rung.request_throughput, rung.nominal_throughput(1.0)) == (pytest.approx(2.5), pytest.approx(4.0))


def test_streams_beyond_the_slots_wait_and_the_wait_is_in_ttft(load: Load) -> None:
    found = load(StandInChatEngine(first_s=0.3, gap_s=0.02, slots=2), streams=4, seconds=0.1)
    # two at once; the other two begin when those have ended, 0.4 s later, less what they themselves began later
    assert sum(one.first_s >= 0.5 for one in found.requests) == 2


def test_every_request_has_a_prompt_that_begins_like_no_other(load: Load) -> None:
    engine = StandInChatEngine(first_s=0.01, gap_s=0)
    load(engine, 2, 0.2, prompts=[("one", 2), ("two", 3)], more={"temperature": 0.6})
    said = [one["messages"][0]["content"].split() for one in engine.asked]
    assert len({salt for salt, _ in said}) == len(said) > 4
    assert {(text, one["max_tokens"]) for (_, text), one in zip(said, engine.asked, strict=True)} == {
        ("one", 2),
        ("two", 3),
    }
    assert all(one["temperature"] == 0.6 and one["model"] == "m" and one["stream"] for one in engine.asked)


def test_a_prompt_of_the_operators_is_reported_as_it_is(load: Load) -> None:
    engine = StandInChatEngine(first_s=0.01, gap_s=0)
    load(engine, 1, 0.05, salted=False)
    assert {one["messages"][0]["content"] for one in engine.asked} == {"say it"}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("revoked", "HTTP status 401"),
        ("error body", "the server sent"),
        ("empty", "an answer without a token"),
        ("cut", "the answer ends in the middle"),
    ],
)
def test_a_server_that_misbehaves_midway_is_counted_and_not_asked_for_ever(load, fault, words):
    engine = StandInChatEngine(first_s=0.01, gap_s=0, fault=fault, after=6)
    found = load(engine, 2, 30 if fault in ("revoked", "error body", "cut") else 0.5)
    assert len(found.requests) == 6
    assert found.failure_count == (2 * GIVE_UP if fault != "empty" else found.failure_count) > 0
    assert all(words in said for said in found.errors)
    assert found.figures()["failed"] == found.failure_count


def test_a_full_queue_is_no_failure_of_the_servers(load: Load) -> None:
    found = load(StandInChatEngine(first_s=0.01, gap_s=0, fault="busy", after=4), 1, 1.3)
    assert (len(found.requests), found.failure_count) == (4, 0)
    assert found.refused > GIVE_UP


def test_an_answer_in_one_piece_has_its_first_token_at_its_end(load: Load) -> None:
    found = load(StandInChatEngine(first_s=0.05, gap_s=0.01, fault="one piece"), 1, 0.05)
    assert found.figures()["median_itl_ms"] == 0
    assert found.figures()["median_ttft_ms"] >= 100


@pytest.mark.parametrize(
    "said",
    [
        "{}",
        '{"seconds": -1, "processor_s": 0, "requests": [{"error": "x"}]}',
        '{"seconds": NaN, "processor_s": 0, "requests": [{"error": "x"}]}',
        '{"seconds": 1, "processor_s": 0, "requests": []}',
        '{"seconds": 1, "processor_s": 0, "requests": [{"error": "x"}], "more": 1}',
        '{"seconds": 1, "processor_s": 0, "requests": [{"first_s": "1", "gaps_s": [], "total_s": 1, "tokens": 1}]}',
    ],
)
def test_output_of_a_host_must_have_its_shape(said: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(LoadResult).validate_json(said)


def test_of_a_servers_metrics_some_lines_are_reported() -> None:
    text = b'a{x="1 }"} 1\na{x="2"} 2.5\nb 7\n# a 1\na_more 5\nnothing\n\xff\n'
    assert lines(text, frozenset({"a", "b"})) == 'a{x="1 }"} 1\na{x="2"} 2.5\nb 7'
    told = lines(StandInChatEngine(kv_a_slot=0.25, running=2, waiting=1).render_metrics.encode(), NAMES)
    assert parse_metrics(told, METRIC_NAMES) == EngineMetrics(
        running=2, waiting=1, kv_used=0.5, preemptions=0, tokens=0, prompt_tokens=0
    )


def loaded(tokens: int = 10, requests: int = 10, seconds: float = 10.0) -> LoadResult:
    one = {"first_s": 0.1, "gaps_s": [0.1] * (tokens - 1), "total_s": 1.0, "tokens": tokens, "prompt_tokens": 3}
    return LoadResult.model_validate({"seconds": seconds, "processor_s": 1.0, "requests": [one] * requests})


def test_gauges_are_reported_at_their_highest_and_counters_by_their_growth() -> None:
    rows = ((1, 0, 0.1, 5), (8, 2, 0.7, 5), (4, 0, 0.2, 7))
    samples = [EngineMetrics(running=r, waiting=w, kv_used=kv, preemptions=p) for r, w, kv, p in rows]
    rung = LadderStep.from_load(8, loaded(), samples)
    assert (rung.running, rung.waiting, rung.kv, rung.preemptions, rung.foreign) == (8, 2, 0.7, 2, None)
    assert LadderStep.from_load(8, loaded(), ()).running is None


@pytest.mark.parametrize(
    ("made", "running", "foreign", "contaminated"),
    [
        (100, 8, 0, False),
        (120, 8, 0, False),  # the end of an answer is counted by some
        (160, 8, 60, True),
        (100, 9, 0, True),
    ],
)
def test_tokens_of_others_mark_a_load(made: float, running: float, foreign: int, contaminated: bool) -> None:
    samples = [
        EngineMetrics(running=running, tokens=made_, prompt_tokens=read_) for made_, read_ in ((7, 5), (7 + made, 35))
    ]
    rung = LadderStep.from_load(8, loaded(), samples)
    assert (rung.foreign, rung.is_contaminated) == (foreign, contaminated)


@pytest.mark.parametrize(
    ("made", "running", "seconds", "foreign", "contaminated"),
    [
        (130, 9, 0, 0, False),
        (160, 9, 0, 31, True),
        (160, 9, 10, 0, False),
        (160, 9, 9.9, 31, True),
        (400, 9, 20, 213, True),
        (130, 10, 0, 0, True),
    ],
)
def test_one_probe_of_the_gateway_in_ten_seconds_is_no_client(
    made: float, running: float, seconds: float, foreign: int, contaminated: bool
) -> None:
    now = [1000.0]
    probes = ProbeAllowance(29, lambda: now[0])
    now[0] += seconds
    samples = [
        EngineMetrics(running=running, tokens=made_, prompt_tokens=read_) for made_, read_ in ((7, 5), (7 + made, 35))
    ]
    rung = LadderStep.from_load(8, loaded(), samples, probes)
    assert (rung.foreign, rung.is_contaminated) == (foreign, contaminated)


def test_each_of_two_gateways_probes_in_ten_seconds() -> None:
    now = [1000.0]
    probes = ProbeAllowance(29, lambda: now[0], gateways=2)
    assert (probes.deduct(58), probes.deduct(29)) == (0, 29)
    now[0] += 10
    assert probes.deduct(58) == 0
    for running, contaminated in ((10, False), (11, True)):
        probes = ProbeAllowance(29, lambda: now[0], gateways=2)
        samples = [EngineMetrics(running=running, tokens=made, prompt_tokens=5) for made in (7, 137)]
        assert LadderStep.from_load(8, loaded(), samples, probes).is_contaminated is contaminated


def test_many_short_loads_have_no_more_probes_than_their_time_allows() -> None:
    now = [1000.0]
    probes = ProbeAllowance(29, lambda: now[0])
    found = []
    for _ in range(6):
        found.append(probes.deduct(29))
        now[0] += 5
    assert found == [0, 29, 0, 29, 0, 29]


def test_what_was_done_for_requests_that_failed_is_nobodys() -> None:
    told = loaded().model_dump()
    told["requests"].append({"error": "cut"})
    samples = [EngineMetrics(tokens=0, prompt_tokens=0), EngineMetrics(tokens=1000, prompt_tokens=1000)]
    rung = LadderStep.from_load(8, LoadResult.model_validate(told), samples)
    assert (rung.foreign, rung.is_contaminated) == (None, False)


def test_percentiles_are_those_of_numpy() -> None:
    import numpy

    values = [3.0, 1.0, 2.0, 10.0, 7.5]
    for percent in (0, 1, 50, 90, 99, 100):
        assert percentile(values, percent) == pytest.approx(numpy.percentile(values, percent))
    assert percentile([], 99) == 0


def rung(streams: int, rate: float, **more: Any) -> LadderStep:
    """A load of ten seconds with so many answers a second."""
    return LadderStep(
        streams, 10.0, (RequestTimes(0.1, (), 1.0, 2),) * round(rate * 10), {}, more.pop("client", 0.1), **more
    )


# eight RTX 5090 by a public write-up, short answers: 96 % of the KV cache at 241 running
PUBLISHED = [
    rung(n, rate, running=min(n, 241), waiting=max(0, n - 241), kv=min(n / 250, 0.96))
    for n, rate in ((10, 13.4), (30, 28.1), (64, 45.2), (128, 60.2), (200, 64.9), (256, 64.7))
]
# the same box with 64 at once, at 25 % of the KV cache
FEW = [rung(n, min(n, 64) * 0.136, running=min(n, 64), waiting=max(0, n - 64), kv=0.25) for n in (10, 30, 64, 128)]


@pytest.mark.parametrize(
    ("rungs", "capacity", "streams", "limit"),
    [
        (PUBLISHED, 256, 200, "KV cache"),
        (FEW, 64, 64, "max-num-seqs"),
        ([rung(n, min(n, 16) * 2, running=n, waiting=0, kv=0.3) for n in (4, 16, 32)], 64, 16, "compute"),
        ([rung(n, min(n, 16) * 2, running=n, waiting=0, client=0.95) for n in (4, 16, 32)], 64, 16, "client"),
        ([rung(n, min(n, 4) * 2) for n in (1, 4, 8)], 4, 4, "max-num-seqs"),
        ([rung(n, min(n, 4) * 2) for n in (1, 4, 8)], None, 4, "unknown"),
        ([rung(n, n * 2, running=n) for n in (1, 4, 8)], 16, None, ""),
        ([rung(n, min(n, 4) * 2, running=n, waiting=0, preemptions=n / 2) for n in (1, 4, 8)], 16, 4, "KV cache"),
        ([rung(4, 0)], 4, None, "errors"),
        ([], 4, None, "errors"),
    ],
)
def test_where_a_ladder_saturates_and_what_limits_it(rungs, capacity, streams, limit):
    found = find_saturation(rungs, capacity)
    assert (found.streams, found.limit) == (streams, limit)


def test_queued_requests_are_reported() -> None:
    rungs = [rung(4, 1), rung(8, 1, waiting=3.0), rung(16, 1)]
    assert describe_queues(rungs, 4) == [
        "8 streams on 4 slots: up to 3 requests wait, and that is in TTFT",
        "16 streams on 4 slots: 12 wait, and that is in TTFT",
    ]
    assert describe_queues(rungs, None) == []


def test_rows_for_programs() -> None:
    assert render_csv([{"a": 1, "b": None}, {"a": 2.5, "b": "x,y"}]) == 'a,b\n1,\n2.5,"x,y"\n'
    assert render_csv([]) == ""
