"""Stress tests of instances: each probe on a scripted model, and red on one that misbehaves."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigwright.model.instance import Instance
from rigwright.operate import long_context_probes
from rigwright.operate.chat_reply import ChatMessage, Reply
from rigwright.operate.client_target import ClientTarget
from rigwright.operate.long_context_probes import (
    ProbeResult,
    SoakTurn,
    StressProbe,
    assess_probe,
    find_soak_problems,
    haystack_sizes,
    make_haystack,
)
from roles.client import HostClient, instance_probes
from roles.client.instance_probes import StressTarget
from tests.unit.client_host import make_client_host
from tests.unit.model_server import KEY, MODEL, NEEDLE, Fault, ScriptedModel, run_model_server
from tests.unit.serving_samples import SERVICE, capable_instance

Stressing = Callable[..., tuple[dict[str, ProbeResult], StressTarget]]


@pytest.mark.parametrize(
    ("context", "found"),
    [
        (600, ()),
        (4096, (3068,)),
        (16384, (10000, 14373)),
        (32768, (10000, 29446)),
        (65536, (10000, 30000, 59593)),
        (131072, (10000, 30000, 60000, 90000, 95000, 119886)),
        (262144, (10000, 30000, 60000, 90000, 95000, 125000, 155000, 178000, 185000, 215000, 240472)),
    ],
)
def test_a_ladder_goes_up_to_what_a_context_has_room_for(context: int, found: tuple[int, ...]) -> None:
    assert haystack_sizes(context) == found
    assert all(size + long_context_probes.ROOM <= context for size in found)


def test_a_haystack_is_another_one_each_time_and_has_its_needle_in_it() -> None:
    text, word, mark = make_haystack(7, 5000)
    assert make_haystack(7, 5000) == (text, word, mark)
    assert NEEDLE.findall(text) == [word]
    assert 5000 <= len(text) < 5200
    other, _, _ = make_haystack(8, 5000)
    # from its first words on, so that no cache has a prefix of it
    assert other[:12] != text[:12]
    places = [make_haystack(seed, 5000)[0].index("secret word") / 5000 for seed in range(30)]
    assert min(places) < 0.3
    assert max(places) > 0.7


def reply(**changes: Any) -> Reply:
    usage = ', "usage": {"prompt_tokens": 900, "completion_tokens": 30}'
    body = '{"choices": [{"message": {"content": "it is THEWORDIS"}, "finish_reason": "stop"}]' + usage + "}"
    return Reply(
        **{
            "status": 200,
            "error": "",
            "type": "",
            "body": body,
            "events": (),
            "first_s": 1.0,
            "total_s": 2.0,
            "refused": 0,
            "waited_s": 2.0,
            **changes,
        }
    )


@pytest.mark.parametrize(("last", "rate"), [(0.0, None), (0.04, None), (2.0, 10.0)])
def test_a_rate_needs_a_time_that_says_something(last: float, rate: float | None) -> None:
    said = ChatMessage("it", "", (), "stop", 9, 21, (0.0, last / 2, last))
    assert long_context_probes.token_rate(said) == rate


ANY = StressProbe("n", "t")


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        (assess_probe(ANY, reply(), "THEWORDIS", None, None), "ok", ""),
        (assess_probe(ANY, reply(), "OTHERWORD", None, None), "ok", "did not find the word"),
        (assess_probe(ANY, reply(), "THEWORDIS", 0.5, None), "ok", "50% came from the prefix cache"),
        (assess_probe(ANY, reply(), "THEWORDIS", 0.04, None), "ok", ""),
        (
            assess_probe(StressProbe("n", "t", least=50), reply(), "", None, None),
            "fail",
            "an answer of 30 tokens, not 50",
        ),
        (assess_probe(ANY, reply(status=400), "", None, None), "skip", "refused as too long"),
        (assess_probe(ANY, reply(status=500, body="out of memory"), "", None, None), "fail", "500: out of memory"),
        (assess_probe(ANY, reply(status=0, error="no answer in time"), "", None, None), "fail", "no answer in time"),
    ],
)
def test_a_probe_is_judged_by_whether_it_is_served(found: ProbeResult, verdict: str, words: str) -> None:
    assert found.verdict == verdict
    assert words in found.detail
    assert bool(words) == bool(found.detail)


@pytest.fixture
def stressing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stressing:
    (tmp_path / "key").write_text(f"{KEY}\n")
    place = ClientTarget("chat", str(tmp_path / "s"), MODEL, credential=str(tmp_path / "key"))

    def made(
        model: ScriptedModel,
        run: Callable[[StressTarget], Iterator[ProbeResult]] = StressTarget.run_probes,
        instance: Instance | None = None,
        memory: Callable[[], float | None] = lambda: None,
        context: int = 32768,
    ) -> tuple[dict[str, ProbeResult], StressTarget]:
        host = make_client_host(tmp_path / "host", monkeypatch)
        with run_model_server(model, tmp_path / "s"), HostClient(host, place) as client:
            one = StressTarget(client, instance or capable_instance(), SERVICE, context, memory, lambda what: None)
            assert one.check_idle() == ""
            found = list(run(one))
            assert one.foreign_tokens == (None if one.unsure else 0)
        return {probed.check: probed for probed in found}, one

    return made


def red(found: dict[str, ProbeResult]) -> set[str]:
    return {name for name, one in found.items() if one.verdict == "fail"}


def test_all_probes_are_borne_with_their_figures(stressing: Stressing) -> None:
    memory = iter([100.0, 140.0, *[150.0] * 20])
    found, _ = stressing(ScriptedModel(), memory=lambda: next(memory))
    assert [*found] == [
        "needle-10000",
        "needle-29446",
        "tool-return",
        "tools",
        "coding",
        "reasoning",
        "image",
        "conversation",
    ]
    assert {one.verdict for one in found.values()} == {"ok"}, found
    first = found["needle-10000"]
    assert first.detail == ""
    # the stand-in makes a token of four characters, and is asked for that before
    assert abs((first.prompt_tokens or 0) - 10_000) < 500
    assert (first.growth_mib, found["conversation"].growth_mib) == (40.0, 50.0)
    assert all(one.first_s is not None for one in found.values())


def test_a_word_in_a_tools_answer_is_asked_as_such(stressing: Stressing) -> None:
    model = ScriptedModel()
    stressing(model)
    returned = [asked for asked in model.asked if asked["messages"][-1]["role"] == "tool"]
    assert len(returned) == 1
    assert len(returned[0]["messages"][-1]["content"]) > 90_000
    assert max(len(asked.get("tools", ())) for asked in model.asked) == 10


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("empty", {"needle-3068", "tools", "coding", "conversation"}),
        ("lost stream", {"needle-3068", "tools", "coding", "reasoning", "conversation"}),
        ("error with 200", {"needle-3068", "tools", "coding", "reasoning", "conversation"}),
    ],
)
def test_misbehaviour_is_red(stressing: Stressing, fault: Fault, names: set[str]) -> None:
    found, _ = stressing(ScriptedModel(fault), context=4096)
    assert names <= red(found)
    assert found["tool-return"].verdict == "n/a"


def test_an_image_is_asked_of_those_that_are_declared_to_see(stressing: Stressing) -> None:
    model = ScriptedModel()
    found, _ = stressing(model, context=4096)
    (asked,) = [one for one in model.asked if "image_url" in str(one["messages"][-1]["content"])]
    assert len(str(asked["messages"][-1]["content"])) > 2_000
    assert (found["image"].verdict, found["image"].detail) == ("ok", "")


def test_an_image_is_not_asked_of_others(stressing: Stressing) -> None:
    found, _ = stressing(ScriptedModel(), instance=capable_instance(flags={"language-model-only": True}), context=4096)
    assert (found["image"].verdict, found["image"].detail) == ("n/a", "not declared")


def test_a_missed_word_still_counts_as_served(stressing: Stressing) -> None:
    found, _ = stressing(ScriptedModel("no needle"), context=4096)
    assert found["needle-3068"].verdict == "ok"
    assert "did not find the word" in found["needle-3068"].detail


def test_requests_of_others_keep_it_out_and_are_counted(stressing: Stressing, tmp_path: Path, monkeypatch: Any) -> None:
    model = ScriptedModel(running=2)
    place = ClientTarget("chat", str(tmp_path / "s"), MODEL, credential=str(tmp_path / "key"))
    host = make_client_host(tmp_path / "host", monkeypatch)
    with run_model_server(model, tmp_path / "s"), HostClient(host, place) as client:
        one = StressTarget(client, capable_instance(), SERVICE, 4096, lambda: None, lambda what: None)
        assert one.check_idle() == "2 requests of other clients run there, and 0 wait"
        one.calibrate()
        assert one.foreign_tokens == 0
        model.count_metric("generation_tokens_total", 500)
        assert one.foreign_tokens == 500
        one.allow_gateway_probes(1)
        assert one.probes
        assert one.foreign_tokens == 500 - one.probes.tokens


@pytest.mark.parametrize(("key", "fault", "unsure"), [("revoked", "", False), (KEY, "garbage", True)])
def test_only_what_was_refused_is_known_to_have_taken_no_tokens(
    stressing: Stressing, tmp_path: Path, key: str, fault: Fault, unsure: bool
) -> None:
    def run_probe(one: StressTarget) -> Iterator[ProbeResult]:
        one.calibrate()
        yield from ()

    (tmp_path / "key").write_text(f"{key}\n")
    model = ScriptedModel(fault)
    for name in ("prompt_tokens_total", "generation_tokens_total"):
        model.count_metric(name, 0)
    assert stressing(model, run_probe)[1].unsure == unsure


def test_a_short_context_has_room_for_what_is_asked_of_it(stressing: Stressing) -> None:
    model = ScriptedModel()
    found, _ = stressing(model, context=1024)
    left_out = {name for name, one in found.items() if one.verdict == "n/a"}
    assert left_out == {"needle", "tool-return", "image", "conversation"}
    # a model may make a token of each character
    assert len(model.asked[0]["messages"][0]["content"]) < 600


def test_turns_of_a_soak_have_room_in_a_short_context(stressing: Stressing, monkeypatch: pytest.MonkeyPatch) -> None:
    soaking(monkeypatch)
    model = ScriptedModel()
    stressing(model, lambda one: one.run_soak(False, lambda: 0), context=600)
    assert {asked["max_tokens"] for asked in model.asked[1:]} == {600 // (3 * 6)}


def soaking(monkeypatch: pytest.MonkeyPatch, sessions: tuple[int, int] = (2, 6)) -> None:
    monkeypatch.setattr(instance_probes, "SESSIONS", sessions)
    monkeypatch.setattr(instance_probes, "TURNS", (2, 2))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", ""),
        ("empty", "2 of 2 turns without an answer, the first: an empty answer"),
        ("lost stream", "the answer breaks off"),
        ("slower", "tokens a second at the end"),
    ],
)
def test_a_soak_is_red_for_what_goes_wrong_in_it(
    stressing: Stressing, monkeypatch: pytest.MonkeyPatch, fault: Fault, words: str
) -> None:
    # too few turns to be compared, where a busy machine would make the last ones slower
    soaking(monkeypatch, (2, 6) if fault else (2, 2))
    found, _ = stressing(ScriptedModel(fault, gap_s=0.001), lambda one: one.run_soak(False, lambda: 0))
    assert (found["soak"].verdict, words in found["soak"].detail) == ("fail" if words else "ok", True)


def test_a_growing_conversation_has_all_before_it(stressing: Stressing, monkeypatch: pytest.MonkeyPatch) -> None:
    soaking(monkeypatch)
    model = ScriptedModel()
    found, _ = stressing(model, lambda one: one.run_soak(True, lambda: 0), context=8192)
    lengths = [len(asked["messages"]) for asked in model.asked[1:]]
    assert lengths == [1, 3, 1, 3]
    assert found["soak"].title == "4 turns of growing conversations"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (find_soak_problems([SoakTurn("", 10.0)] * 20, 100, 0, False), ""),
        (find_soak_problems([SoakTurn("", 10.0)] * 20, 201, 0, False), "201 MiB more memory, not 200"),
        (find_soak_problems([SoakTurn("", 10.0)] * 20, None, 2, False), "it was started again 2 times"),
        (
            find_soak_problems([SoakTurn("", 10.0)] * 10 + [SoakTurn("", 9.7)] * 5, None, 0, False),
            "9.7 tokens a second at the end, 10.0 at",
        ),
        (find_soak_problems([SoakTurn("", 10.0)] * 10 + [SoakTurn("", 9.7)] * 5, None, 0, True), ""),
        # they differ by as much themselves
        (
            find_soak_problems([SoakTurn("", rate) for rate in (9, 11, 9, 11, 10, 9, 11, 9, 10, 9.9)], None, 0, False),
            "",
        ),
        (
            find_soak_problems([SoakTurn("", 10.0)] * 19 + [SoakTurn("empty", None)], None, 0, False),
            "1 of 20 turns without an answer",
        ),
    ],
)
def test_a_soak_is_judged_by_all_of_it(wrong: list[str], words: str) -> None:
    assert len(wrong) == bool(words)
    assert words in "".join(wrong)
