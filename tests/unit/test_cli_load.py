"""`rigwright bench load`: ladders over a host's job, against a stand-in of an engine; output, files and refusals."""

import csv
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.load_ladder import QUESTIONS, WARM_UP, load_prompts
from checks.connections import ConnectedHost
from cli import bench_load, instance_access, main
from cli.bench_load import render_bars
from cli.instance_access import ClientAccess, InterruptHandler
from rigwright.operate.client_target import ClientTarget
from tests.unit.chat_engine import KEY, StandInChatEngine
from tests.unit.client_host import make_client_host
from tests.unit.vllm_samples import vllm_instance, vllm_rig

Loading = Callable[..., Result]


@dataclass
class StandInDeployLock:
    """A deploy lock."""

    lost: str = ""


@pytest.fixture
def loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loading:
    """Run the verb over one host, whose instances are stand-ins."""
    (tmp_path / "key").write_text(KEY)
    host = make_client_host(tmp_path / "host", monkeypatch)

    def run(
        engine: StandInChatEngine,
        *words: str,
        names: tuple[str, ...] = ("chat",),
        lock: StandInDeployLock | None = None,
    ) -> Result:
        made = vllm_rig(*(vllm_instance(name) for name in names))
        found = [ConnectedHost("box1", made, host)]
        monkeypatch.setattr(
            instance_access, "connect_inventory", lambda _, __, judge: judge({"box1": made}) or (found, {})
        )
        monkeypatch.setattr(bench_load, "hold_deploy_lock", lambda *_: nullcontext(lock or StandInDeployLock()))
        monkeypatch.setattr(bench_load, "metrics_path", lambda *_: "/metrics")
        with engine.running_at(tmp_path / "socket") as at:
            place = ClientTarget("chat", at, "m", credential=str(tmp_path / "key"))
            monkeypatch.setattr(ClientAccess, "resolve_endpoint", lambda *_: place)
            return CliRunner().invoke(main, ["bench", "load", __file__, "--seconds=1", *words])

    return run


def test_a_ladder_is_reported_in_80_columns_and_written_for_programs(loading: Loading, tmp_path: Path) -> None:
    files = (f"--json={tmp_path / 'l.json'}", f"--csv={tmp_path / 'l.csv'}")
    engine = StandInChatEngine(first_s=0.02, gap_s=0, slots=2, kv_a_slot=0.3)
    done = loading(engine, "--streams=4,1", *files)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert max(map(len, (line for line in lines if not line.startswith("Warning")))) <= 120
    table = lines[next(n for n, line in enumerate(lines) if line.split()[:2] == ["streams", "req/s"]) :]
    assert [line.split()[0] for line in table[1:3]] == ["1", "4"]
    assert max(map(len, table[:12])) <= 80
    told = json.loads((tmp_path / "l.json").read_text())["ladders"][0]
    assert (told["host"], told["complete"], told["output_tokens"]) == ("box1", True, 150)
    (one,) = told["instances"]
    assert [step["max_concurrency"] for step in one["steps"]] == [1, 4]
    assert one["steps"][1]["running"] == 2
    for step, row in zip(one["steps"], table[1:3], strict=True):
        assert step["nominal_request_throughput"] == step["completed"]  # in one second
        assert step["nominal_request_throughput"] > step["request_throughput"]
        assert row.split()[1:3] == [f"{step[f'{rate}request_throughput']:.1f}" for rate in ("", "nominal_")]
    assert one["steps"][1]["kv"] == pytest.approx(0.6)
    assert not any(step["contaminated"] or step["failed"] for step in one["steps"])
    rows = list(csv.DictReader((tmp_path / "l.csv").open()))
    assert [(row["instance"], row["max_concurrency"], row["workload"]) for row in rows] == [
        ("chat", "1", "chat"),
        ("chat", "4", "chat"),
    ]
    # before the first step, and with thinking off
    assert {one["messages"][0]["content"].partition(" ")[2] for one in engine.asked[:WARM_UP]} <= set(QUESTIONS)
    assert all(one["chat_template_kwargs"] == {"enable_thinking": False} for one in engine.asked)


def test_others_that_ask_need_consent_and_are_reported(loading: Loading, tmp_path: Path) -> None:
    engine = StandInChatEngine(first_s=0.01, gap_s=0, running=3)
    done = loading(engine, "--streams=1")
    assert done.exit_code == 2
    assert "chat works on 3 requests of others" in done.output
    assert engine.asked == []
    done = loading(StandInChatEngine(first_s=0.01, gap_s=0, running=3, foreign=5000), "--streams=1", "--beside-others")
    assert done.exit_code == 0, done.output
    assert "other clients were active" in done.output


def test_a_key_that_is_revoked_midway_ends_it_with_what_came_until_then(loading: Loading, tmp_path: Path) -> None:
    engine = StandInChatEngine(first_s=0.01, gap_s=0, fault="revoked", after=WARM_UP + 20)
    done = loading(engine, "--streams=1,2,4", f"--json={tmp_path / 'l.json'}")
    assert done.exit_code == 1
    assert "x HTTP status 401" in done.output or "HTTP status 401" in done.output
    assert "not complete: the instance no longer answers, after 2 of 3 steps" in done.output
    told = json.loads((tmp_path / "l.json").read_text())["ladders"][0]
    assert (told["complete"], len(told["instances"][0]["steps"])) == (False, 2)
    assert told["instances"][0]["steps"][0]["completed"] == 20


def test_an_engine_that_answers_nothing_at_all_fails_while_it_warms_up(loading: Loading) -> None:
    done = loading(StandInChatEngine(fault="error body"), "--streams=1")
    assert done.exit_code == 1
    assert "no room" in done.output
    assert "not complete: failed, after 0 of 1 steps" in done.output


def test_an_interrupt_keeps_the_steps_that_were_made(loading, tmp_path, monkeypatch):
    made: list[InterruptHandler] = []
    begin = InterruptHandler.__init__
    monkeypatch.setattr(InterruptHandler, "__init__", lambda self: (begin(self), made.append(self))[0])
    engine = StandInChatEngine(first_s=0.01, gap_s=0)

    def interrupt() -> None:
        while engine.most < WARM_UP or engine.running < 3 or len(engine.asked) < WARM_UP + 10:
            if engine.over.wait(0.01):
                return
        made[0]._handle_interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    done = loading(engine, "--streams=1,4", "--seconds=2", f"--json={tmp_path / 'l.json'}")
    thread.join()
    assert done.exit_code == 130, done.output
    assert "not complete: interrupted, after 1 of 2 steps" in done.output
    told = json.loads((tmp_path / "l.json").read_text())["ladders"][0]
    assert (told["ended"], len(told["instances"][0]["steps"])) == ("interrupted", 1)


def test_a_host_that_is_lost_midway_is_not_reached(loading: Loading, tmp_path: Path) -> None:
    engine = StandInChatEngine(first_s=0.01, gap_s=0)

    def kill() -> None:
        while len(engine.asked) < WARM_UP + 5:
            if engine.over.wait(0.01):
                return
        os.kill(int((tmp_path / "host/pid").read_text()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    done = loading(engine, "--streams=1,2")
    thread.join()
    assert done.exit_code == 3, done.output
    assert "not complete: host lost, after 0 of 2 steps" in done.output


def test_another_server_on_the_socket_is_refused(loading: Loading) -> None:
    engine = StandInChatEngine(model="somebody\x1b[2J-else")
    done = loading(engine, "--streams=1")
    assert (done.exit_code, engine.asked) == (2, [])
    assert "box1: what answers for chat serves somebody\\x1b[2J-else, and not m" in done.output


def test_a_server_that_names_no_model_is_not_asked_for_more(loading: Loading) -> None:
    engine = StandInChatEngine(model="")
    done = loading(engine, "--streams=1")
    assert (done.exit_code, engine.asked) == (1, [])
    assert "chat does not name its model: 200: <html>" in done.output


def test_a_deploy_lock_that_is_lost_ends_it(loading: Loading) -> None:
    done = loading(
        StandInChatEngine(first_s=0.01, gap_s=0), "--streams=1,2", lock=StandInDeployLock("the host has let go of it")
    )
    assert done.exit_code == 3
    assert "lost the deploy lock: the host has let go of it" in done.output
    assert "not complete: host lost, after 1 of 2 steps" in done.output


def test_two_instances_are_loaded_at_once(loading: Loading, tmp_path: Path) -> None:
    engine = StandInChatEngine(first_s=0.2, gap_s=0)
    done = loading(engine, "--together", "--streams=2", f"--json={tmp_path / 'l.json'}", names=("a", "b"))
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "l.json").read_text())["ladders"]
    assert [[one["instance"] for one in each["instances"]] for each in told] == [["a", "b"]]
    # each of the two has two streams of its own
    assert engine.most == 2 * WARM_UP
    assert max(step["running"] for one in told[0]["instances"] for step in one["steps"]) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tokens=5",), "--tokens needs --prompts"),
        (("--key-file=x",), "--key-file needs --gateway"),
        (("--streams=0",), "distinct numbers from 1 to 256"),
        (("--instance=other",), "--instance: "),
        (("--prompts=/nowhere",), "--prompts: /nowhere: No such file"),
    ],
)
def test_an_impossible_request_is_refused_before_any_other(loading, words, said):
    engine = StandInChatEngine()
    done = loading(engine, *words)
    assert done.exit_code == 2
    assert said in done.output
    assert engine.asked == []


def test_prompts_of_the_operators_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("one\n\n  two \n")
    assert load_prompts(file, 7).prompts == (("one", 7), ("two", 7))
    assert not load_prompts(file, 7).salted
    for text, words in (("\n \n", "has no prompt"), ("x\n" + "y" * 100_001, "prompt 2 has more than")):
        file.write_text(text)
        with pytest.raises(ValueError, match=words):
            load_prompts(file, 7)
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is not text"):
        load_prompts(file, 7)


def test_bars_are_as_long_as_their_values_are() -> None:
    drawn = render_bars(("streams", "req/s", "ms"), [("10", (5.0, 100.0)), ("200", (10.0, 0.0))], width=47)
    assert drawn == [
        "streams  req/s               ms",
        "     10  ######         5.0  ############## 100",
        "    200  ############# 10.0                   0",
    ]
    assert render_bars(("a", "b"), [("1", (0.0,))], width=20) == ["a  b", "1               0.00"]
