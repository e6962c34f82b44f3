"""`bench speed`: the protocol, what of it counts, and the verb over a stand-in of an engine."""

import json
import math
import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench import speed_protocol
from bench.load_generator import LoadRequest
from bench.load_ladder_results import LadderStep
from bench.load_statistics import RequestTimes
from bench.speed_protocol import (
    ANSWER,
    SENTENCE,
    InvalidConditions,
    MeasuredPart,
    MeasurementConditions,
    ProtocolUnanswered,
    SpeedEffort,
    measure_protocol,
    protocol_parts,
)
from checks.connections import ConnectedHost
from cli import bench_speed, main
from cli.instance_access import InterruptHandler
from rigwright import speed_baselines
from rigwright.operate.client_target import ClientTarget
from rigwright.speed_baselines import Series
from roles.root_shell import ConnectionGone
from tests.unit.chat_engine import KEY, StandInChatEngine
from tests.unit.client_host import make_client_host
from tests.unit.fixed_speed_server import fixed_speed_server
from tests.unit.test_baseline import FINGERPRINT, run
from tests.unit.test_cli_load import StandInDeployLock
from tests.unit.vllm_samples import vllm_instance, vllm_rig


def test_the_protocol_is_the_published_one() -> None:
    ask, seen = fixed_speed_server()
    made = {part.name: part for part, _ in measure_protocol(ask, SpeedEffort(), None, lambda text: None)}
    streams = [f"{number} stream{'s' * (number > 1)} 100/500" for number in (1, 2, 4)]
    assert list(made) == ["narrative", "code", "prefill 10k", "prefill 90k", *streams]
    prompts = [(one.prompts[0][1], one.streams) for one in seen[2:]]
    # three to warm up and five that are measured
    assert prompts == [(1000, 1)] * 8 + [(800, 1)] * 8 + [(ANSWER, 1)] * 6 + [
        (500, streams) for streams in (1, 2, 4) for _ in range(4)
    ]
    assert [len(made[name].rates[f"{name} decode"]) for name in ("narrative", "code")] == [5, 5]
    for one in seen:
        assert one.more["chat_template_kwargs"] == {"enable_thinking": False}
        sampling = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0}
        assert sampling.items() <= one.more.items()
    # nothing is answered from a cache
    assert len({one.seed for one in seen}) == len(seen) - 1
    assert all(one.salted for one in seen)


def test_rates_are_of_the_whole_and_of_what_comes_after_the_first_token() -> None:
    ask, _ = fixed_speed_server(tokens_a_second=50, first_s=5)
    made = {part.name: part for part, _ in measure_protocol(ask, SpeedEffort(), None, lambda text: None)}
    assert made["narrative"].rates == {"narrative wall": [1000 / 25] * 5, "narrative decode": [50] * 5}
    assert made["prefill 10k"].rates == {"prefill 10k": [pytest.approx(2000, rel=0.01)] * 3}
    assert made["4 streams 100/500"].rates == {"4 streams 100/500": [pytest.approx(4 * 500 / 15)] * 3}
    assert made["narrative"].first_s == [5] * 5


def test_prompts_have_their_lengths_by_what_the_engine_counts() -> None:
    sentence = len(SENTENCE.split())
    for tokens in (1.0, 1.3, 5.0):
        long = {one.name: one.asked.prompts[0][0] for one in protocol_parts(SpeedEffort(), sentence * tokens)}
        assert len(long["prefill 90k"].split()) * tokens == pytest.approx(90_000, rel=0.01)


@pytest.mark.parametrize(
    ("one", "rates", "said"),
    [
        (RequestTimes(1, (), 21, 1000), {"narrative wall": [1000 / 21], "narrative decode": [50]}, []),
        (RequestTimes(1, (), 3, 249), {}, ["an answer ended after 249 tokens"]),
        (RequestTimes(9.8, (), 10, 500), {"narrative wall": [50]}, ["an answer came nearly all at once"]),
        (RequestTimes(0, (), 0, 500), {}, ["an answer ended after 500 tokens"]),
        (RequestTimes(0.02, (), 0.08, 500), {}, ["too short to tell a rate: 500 tokens in 0.08 s"]),
    ],
)
def test_an_invalid_rate_does_not_count(one: RequestTimes, rates: dict[str, list[float]], said: list[str]) -> None:
    made = MeasuredPart("narrative", 1000)
    made.add_rung(LadderStep(1, 1.0, (one,), {}, 0.0))
    assert (made.rates, made.left_out) == (rates, said)


def test_a_prompt_that_has_no_room_is_reported_and_not_asked() -> None:
    ask, seen = fixed_speed_server()
    made = {part.name: part for part, _ in measure_protocol(ask, SpeedEffort(), 32768, lambda text: None)}
    assert made["prefill 90k"].absent == "a request has room for 32768 tokens"
    assert made["prefill 10k"].rates
    assert max(len(one.prompts[0][0]) for one in seen) < 32768 * 10


@pytest.mark.parametrize("fails", ["train", "essay", "quicksort"])
def test_an_unanswered_required_question_ends_it(fails: str) -> None:
    ask, _ = fixed_speed_server(fails=fails)
    with pytest.raises(ProtocolUnanswered, match="HTTP status 400"):
        list(measure_protocol(ask, SpeedEffort(), None, lambda text: None))


Timing = Callable[..., Result]


@pytest.fixture
def timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timing:
    """Run the verb over one host, whose instance is a stand-in that answers at once, any number of streams."""
    monkeypatch.setattr(speed_protocol, "SHORTEST_S", 0.0)
    monkeypatch.setattr(speed_protocol, "SUPERLINEAR", math.inf)
    monkeypatch.setattr(speed_baselines, "MOST_VARIATION", math.inf)
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "rig.py").write_text("")
    host = make_client_host(tmp_path / "host", monkeypatch)

    def run(engine: StandInChatEngine, *words: str, boot: str = "a", unfit: str = "", **changes: object) -> Result:
        def look(*_: object) -> MeasurementConditions:
            if unfit:
                raise InvalidConditions(unfit)
            return MeasurementConditions(FINGERPRINT.model_copy(update=changes), boot * 12, (61.0,))

        rig = vllm_rig(vllm_instance(max_model_len=8192, max_num_seqs=4))
        for name, value in (
            ("connect_boxes", lambda *_: ([ConnectedHost("box1", rig, host)], {})),
            ("hold_deploy_lock", lambda *_: nullcontext(StandInDeployLock())),
            ("metrics_path", lambda *_: "/metrics"),
            ("read_conditions", look),
            ("SpeedEffort", lambda: SpeedEffort(1, 2, 1)),
        ):
            monkeypatch.setattr(bench_speed, name, value)
        with engine.running_at(tmp_path / f"socket{boot}") as at:
            place = ClientTarget("chat", at, "m", credential=str(tmp_path / "key"))
            monkeypatch.setattr(bench_speed, "instance_target", lambda *_: place)
            return CliRunner().invoke(main, ["bench", "speed", str(tmp_path / "rig.py"), *words])

    return run


FAST = 1e6  # tokens a second, which no stand-in has


def quick() -> StandInChatEngine:
    return StandInChatEngine(first_s=0.005, gap_s=0)


def accept(folder: Path, rate: float = FAST, boots: str = "ab") -> Path:
    """A book with runs of some starts of the engine that were accepted."""
    file = speed_baselines.history_path(str(folder / "rig.py"), "box1")
    page = speed_baselines.InstanceHistory()
    for boot in boots:
        made = run(1, boot=boot)
        rates = {"narrative decode": Series(values=(rate,)), "code wall": Series(values=(rate,))}
        page = page.with_run(made.model_copy(update={"rates": rates}))
    speed_baselines.save_history(
        file, speed_baselines.BaselineHistory().with_instance("chat", page.with_last_accepted())
    )
    return file


def test_a_run_is_reported_with_its_conditions_and_kept(timing: Timing, tmp_path: Path) -> None:
    done = timing(quick(), f"--json={tmp_path / 'f.json'}")
    assert done.exit_code == 0, done.output
    assert "no baseline yet" in done.output
    assert "on NVIDIA GeForce RTX 3090, driver 580.95.05, power limit 280 W, 16 lanes, up to 61" in done.output
    assert "prefill 10k, prefill 90k: a request has room for 8192 tokens" in done.output
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    (kept,) = page.runs
    assert kept.is_comparable
    assert not page.accepted
    counts = [len(kept.rates[name].values) for name in ("narrative decode", "code wall", "4 streams 100/500")]
    assert counts == [2, 2, 1]
    told = json.loads((tmp_path / "f.json").read_text())["runs"][0]
    assert told["run"]["rates"]["code decode"]
    assert told["complete"]


def test_runs_of_two_starts_are_accepted_together(timing: Timing, tmp_path: Path) -> None:
    assert "accepted: 1 run of 1 start of the engine" in timing(quick(), "--accept", boot="a").output
    done = timing(quick(), "--accept", boot="b")
    assert "accepted: 2 runs of 2 starts of the engine" in done.output
    assert "not judged: the baseline has one start" in done.output


def test_each_run_but_the_first_is_after_another_start(timing: Timing, tmp_path: Path) -> None:
    done = timing(quick(), "--boots=2", "--accept")
    assert done.exit_code == 0, done.output
    # one run before the restart, and one after it; the client's own end is there, too
    told = (tmp_path / "host/systemctl").read_text().splitlines()
    assert [line for line in told if "rigwright-chat" in line] == [
        "reset-failed rigwright-chat.service",
        "restart rigwright-chat.service",
    ]
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    assert len(page.accepted[-1].runs) == 2


def test_a_run_slower_than_the_accepted_one_ends_with_1(timing: Timing, tmp_path: Path) -> None:
    file = accept(tmp_path)
    done = timing(quick(), boot="c", driver="590.10")
    assert done.exit_code == 1, done.output
    assert "slower" in done.output
    assert "compared with the baseline from before these changes: driver: 580.95.05 → 590.10" in done.output
    # and nothing but --accept moves it
    assert [one.boot[0] for one in speed_baselines.load_history(file).for_instance("chat").accepted[-1].runs] == [
        "a",
        "b",
    ]


def test_a_quick_run_is_shown_and_neither_judged_nor_accepted(timing: Timing, tmp_path: Path) -> None:
    file = accept(tmp_path)
    done = timing(quick(), "--quick")
    assert done.exit_code == 0, done.output
    assert "slower" in done.output
    assert [one.quick for one in speed_baselines.load_history(file).for_instance("chat").runs] == [False, False, True]


def test_others_that_are_served_mark_a_run(timing: Timing, tmp_path: Path) -> None:
    done = timing(replace(quick(), foreign=9000), "--accept")
    assert done.exit_code == 1, done.output
    assert "contaminated: other clients were active" in done.output
    assert "baseline not saved" in done.output
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    assert page.runs[0].contaminated
    assert (page.last_run, page.accepted) == (None, ())


@pytest.mark.parametrize(
    ("after", "part"),
    [(8, "1 stream 100/500"), (9, "1 stream 100/500"), (12, "2 streams 100/500"), (17, "4 streams 100/500")],
)
def test_a_key_that_is_revoked_in_any_part_leaves_no_whole_run(timing, tmp_path, after, part):
    """Two to count, three each for essay and code; a request has no room for a long prompt; two each of streams."""
    done = timing(replace(quick(), fault="revoked", after=after), "--accept", f"--json={tmp_path / 'f.json'}")
    assert done.exit_code == 1, done.output
    assert f"not complete: failed: {part}: HTTP status 401" in done.output
    assert "baseline not saved" in done.output
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    assert [(one.ended, one.is_comparable) for one in page.runs] == [("failed", False)]
    assert page.runs[0].rates["code wall"]
    assert not json.loads((tmp_path / "f.json").read_text())["runs"][0]["complete"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error body", "the server sent b'{"),
        ("empty", "an answer without a token"),
        ("cut", "the answer ends in the middle"),
        ("busy", "the engine does not say how many tokens a prompt has"),
    ],
)
def test_an_engine_that_misbehaves_from_the_beginning_leaves_no_run_that_counts(timing, tmp_path, fault, said):
    done = timing(replace(quick(), fault=fault), "--accept")
    assert done.exit_code == 1, done.output
    assert f"not complete: failed: {said}" in done.output
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    assert ([(one.ended, one.rates) for one in page.runs], page.accepted) == ([("failed", {})], ())


def test_wild_rates_are_no_baseline(timing: Timing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = speed_baselines.InstanceHistory().with_run(run(1, boot="a"))
    wild = run(1, boot="b").model_copy(update={"rates": {"code wall": Series(values=(1.0, 100.0))}})
    # the fixture has no limit
    monkeypatch.setattr(speed_baselines, "MOST_VARIATION", 0.25)
    assert [one.boot for one in steady.with_run(wild).with_last_accepted().accepted[-1].runs] == ["a" * 12]
    monkeypatch.setattr(speed_baselines, "MOST_VARIATION", -1.0)
    done = timing(quick(), "--accept", boot="c")
    assert done.exit_code == 1, done.output
    assert "baseline not saved: rates vary by more than" in done.output
    assert not speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat").accepted


def test_a_rate_that_was_accepted_and_is_not_there_any_more_is_reported(timing: Timing, tmp_path: Path) -> None:
    file = speed_baselines.history_path(str(tmp_path / "rig.py"), "box1")
    made = run(1).model_copy(update={"rates": {"prefill 10k": Series(values=(1.0,))}})
    speed_baselines.save_history(
        file,
        speed_baselines.BaselineHistory().with_instance(
            "chat", speed_baselines.InstanceHistory().with_run(made).with_last_accepted()
        ),
    )
    done = timing(quick(), f"--json={tmp_path / 'f.json'}", boot="c")
    assert done.exit_code == 1, done.output
    assert "prefill 10k: in the baseline, but not measured now" in done.output
    (told,) = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert (told["complete"], told["gone"]) == (True, ["prefill 10k"])
    # of another box, or with another limit, it is not missed
    assert "not measured now" not in timing(quick(), boot="d", power_w=(230.0,)).output


@pytest.mark.parametrize(("why", "whole"), [("HTTP status 400: too long", True), ("HTTP status 401: no", False)])
def test_a_long_prompt_may_be_too_long_and_nothing_else(why: str, whole: bool) -> None:
    ask, _ = fixed_speed_server()

    def refusing(one: LoadRequest) -> LadderStep:
        if one.prompts[0][0].count(SENTENCE) > 300:
            return LadderStep(one.streams, 0.1, (), {why: 1}, 0.0)
        made: LadderStep = ask(one)
        return made

    if whole:
        made = {part.name: part for part, _ in measure_protocol(refusing, SpeedEffort(), None, lambda text: None)}
        assert (made["prefill 10k"].absent, bool(made["4 streams 100/500"].rates)) == (why, True)
    else:
        with pytest.raises(ProtocolUnanswered, match="prefill 10k: HTTP status 401"):
            list(measure_protocol(refusing, SpeedEffort(), None, lambda text: None))


@pytest.mark.parametrize(("how", "status", "ended"), [("interrupt", 130, "interrupted"), ("loss", 3, "host lost")])
def test_an_end_midway_leaves_the_earlier_results(timing, tmp_path, monkeypatch, how, status, ended):
    made: list[InterruptHandler] = []
    begin = InterruptHandler.__init__
    monkeypatch.setattr(InterruptHandler, "__init__", lambda self: (begin(self), made.append(self))[0])
    engine = StandInChatEngine(first_s=0.005, gap_s=0)

    def end() -> None:
        # essay and code are there, and a stream is under way
        while len(engine.asked) < 9:
            if engine.over.wait(0.002):
                return
        if how == "interrupt":
            made[0]._handle_interrupt()
        else:
            os.kill(int((tmp_path / "host/pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=end)
    thread.start()
    done = timing(engine, "--boots=2", "--accept", f"--json={tmp_path / 'f.json'}")
    thread.join()
    assert done.exit_code == status, done.output
    assert f"not complete: {ended}" in done.output
    page = speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat")
    assert (page.runs[0].ended, page.runs[0].is_comparable, page.accepted) == (ended, False, ())
    assert len(page.runs[0].rates["code decode"].values) == 2
    told = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert (told[0]["complete"], told[0]["run"]["ended"], len(told)) == (False, ended, 1)
    assert "restart" not in (tmp_path / "host/systemctl").read_text()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (InvalidConditions("does not run: start or deploy it first"), 2, "box1: does not run"),
        (ConnectionGone("the connection was lost"), 3, "box1: the connection was lost"),
    ],
)
def test_a_second_start_that_is_not_measured_leaves_the_first_one_in_the_file(
    timing: Timing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, said: str
) -> None:
    def restart(*_: object) -> None:
        raise error

    monkeypatch.setattr(bench_speed, "_restart_instance", restart)
    done = timing(quick(), "--boots=2", f"--json={tmp_path / 'f.json'}")
    assert done.exit_code == status, done.output
    assert said in done.output
    (first,) = json.loads((tmp_path / "f.json").read_text())["runs"]
    assert first["complete"]
    assert len(speed_baselines.load_history(tmp_path / "baselines/box1.json").for_instance("chat").runs) == 1


def test_an_instance_that_does_not_come_up_again_is_not_as_declared(timing: Timing, tmp_path: Path) -> None:
    systemctl = tmp_path / "host/bin/systemctl"
    failing = "printf 'it \\033[2J fails' >&2; exit 1"
    systemctl.write_text(f'{systemctl.read_text()}[ "$1" != restart ] || {{ {failing}; }}\n')
    done = timing(quick(), "--boots=2", f"--json={tmp_path / 'f.json'}")
    assert done.exit_code == 1, done.output
    assert "box1: rigwright-chat.service does not start again: it \\x1b[2J fails" in done.output
    assert len(json.loads((tmp_path / "f.json").read_text())["runs"]) == 1


@pytest.mark.parametrize(
    ("words", "unfit", "history_text", "said"),
    [
        (("--quick", "--accept"), "", "", "--accept conflicts with --quick"),
        ((), "rigwright-chat.service does not run: start or deploy it first", "", "box1: rigwright-chat.service"),
        ((), "", "{", "box1.json"),
    ],
)
def test_a_run_that_cannot_count_is_refused_before_the_engine_is_asked(
    timing, tmp_path, words, unfit, history_text, said
):
    if history_text:
        (tmp_path / "baselines").mkdir()
        (tmp_path / "baselines/box1.json").write_text(history_text)
    engine = quick()
    done = timing(engine, *words, unfit=unfit)
    assert (done.exit_code, engine.asked) == (2, [])
    assert said in done.output
