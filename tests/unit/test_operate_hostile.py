"""Verbs that judge engines and hosts, told anything by an engine, a log or a host: an answer, and no more than that."""

import json
import math
import random
import time
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift
from checks.survey.answers import SurveyAnswers
from checks.survey.health import HEALTH
from checks.survey.host.common import masked
from cli import host_evidence, verdict_report
from rigwright.engines import kinds
from rigwright.engines.metrics import EngineMetrics, MetricNames, parse_metrics
from rigwright.operate.capability_probes import CHECKS, AnswerContext, ProbeFinding, assess_answer
from rigwright.operate.chat_reply import DONE, NoChatMessage, Reply, parse_message
from rigwright.operate.instance_health import InstanceHealth
from rigwright.operate.instance_state import InstanceState
from rigwright.operate.long_context_probes import StressProbe, assess_probe
from rigwright.operate.root_cause_analysis import HostEvidence, diagnose_host
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_instance
from tests.unit.ssh_host import ShellHost
from tests.unit.test_diagnose import LLAMA_LINES, VLLM_LINES

ODD: tuple[object, ...] = (
    *(None, True, 0, -1, 1 << 70, 0.5, float("inf"), float("nan"), "", "a", "\ud800", "\x9b2J", "9" * 5000),
    *([], {}, [[]], {"a": {}}, ["a"], [None]),
)
ANSWER = {
    "choices": [
        {
            "message": {"content": "Paris", "tool_calls": [{"index": 0, "function": {"name": "a", "arguments": "{}"}}]},
            "delta": {"content": "Paris", "tool_calls": [{"index": 0, "function": {"name": "a", "arguments": "{}"}}]},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    "timings": {"predicted_n": 1, "draft_n": 1, "draft_n_accepted": 1},
    "data": [{"id": "model"}],
}


def changed(pick: random.Random, value: object, odds: float = 0.15) -> object:
    """The same with some of its parts in another shape."""
    if pick.random() < odds:
        return pick.choice(ODD)
    if isinstance(value, dict):
        return {key: changed(pick, one, odds) for key, one in value.items()}
    return [changed(pick, one, odds) for one in value] if isinstance(value, list) else value


def replies(rounds: int) -> list[Reply]:
    found = []
    for number in range(rounds):
        pick = random.Random(number)
        texts = [json.dumps(changed(pick, ANSWER)) for _ in range(3)]
        streamed = pick.random() < 0.5
        events = tuple((0.1 * at, text) for at, text in enumerate([*texts, DONE])) if streamed else ()
        found.append(Reply(200, "", "text/plain", "" if streamed else texts[0], events, 0.1, 0.5, 0, 0.5))
    return found


def test_an_answer_of_any_shape_is_judged() -> None:
    counted = {"ok": 0, "fail": 0, "skip": 0}
    seen = AnswerContext(sample_instance("chat"), "model")
    for reply in replies(2000):
        for check in CHECKS:
            counted[assess_answer(check, reply, seen).verdict] += 1
        assert assess_probe(StressProbe("a", "a"), reply, "word", None, None).verdict in ("ok", "fail")
    assert all(counted.values())


def test_a_number_without_end_is_no_index() -> None:
    call = {"index": float("inf"), "function": {"name": "a"}}
    body = json.dumps({"choices": [{"message": {"tool_calls": [call]}}]})
    with pytest.raises(NoChatMessage, match="another shape"):
        parse_message(Reply(200, "", "", body, (), 0.1, 0.5, 0, 0.5))


def test_a_call_in_very_many_pieces_is_put_together_at_once() -> None:
    call = {"index": 0, "function": {"name": "", "arguments": "a" * 20}}
    event = json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]})
    events = (*((0.1, event) for _ in range(60_000)), (0.2, DONE))
    began = time.process_time()
    ((_, arguments),) = parse_message(Reply(200, "", "", "", events, 0.1, 0.5, 0, 0.5)).calls
    assert len(arguments) == 1_200_000
    assert time.process_time() - began < 5


def health(metrics: EngineMetrics, state: InstanceState = "ready") -> InstanceHealth:
    return InstanceHealth("chat", state, "", 1.0, 0, 1, metrics, None, ())


def test_counts_of_an_engine_are_bounded() -> None:
    names = MetricNames(**{one.name: ("a", "b") if "tuple" in str(one.type) else "a" for one in fields(MetricNames)})  # type: ignore[arg-type]
    for value in ("1e308", "-1e308", "1e16", "Inf", "NaN", "9" * 32):
        found = parse_metrics(f"a {value}\nb {value}\n" * 9000, names)
        assert not [one for one in asdict(found).values() if one is not None and not math.isfinite(one)]
        found.foreign_tokens(EngineMetrics(prompt_tokens=1, tokens=1), 1, 1)
        list(diagnose_host(HostEvidence("a", "b", healths=[health(found, "failing")]), {}))


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_look_with_what_is_no_number_is_refused(number: float) -> None:
    unit = {"load": "loaded", "active": "active", "sub": "running", "result": "success", "restarts": 0}
    unit |= {"running": True, "since_s": number, "memory": None}
    cards = {"status": 0, "out": "", "err": ""}
    told = {"units": {"a.service": unit}, "engines": {}, "said": {}, "out": {}, "cards": cards, "partial": []}
    answer = {"told": {**told, "jobs": [], "holder": "", "reboot": False}}
    with pytest.raises(Drift):
        SurveyAnswers({"health": answer}).read(HEALTH)


def test_a_report_as_json_has_nothing_for_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    finding = ProbeFinding("a", "a", "fail", "\ud800 \x9b2J \u202e \x1b[2J")
    host = verdict_report.HostVerdict(
        "box", "not as declared", [verdict_report.InstanceVerdict("chat", "a/b", checks=[finding])]
    )
    with pytest.raises(SystemExit):
        verdict_report.finish_report("rig.py", [host], interrupted=False, as_json=True, junit=None, words=("a", "b"))
    said = capsys.readouterr().out
    assert said.isascii()
    assert json.loads(said)["hosts"][0]["instances"][0]["checks"][0]["detail"] == finding.detail


CANARY = "canary;id"


def test_no_cure_has_a_word_of_a_log() -> None:
    causes = {name: kind.causes for name, kind in kinds().items()}
    lines = [line for line, _ in (*VLLM_LINES, *LLAMA_LINES)]
    kernel = [
        f"NVRM: Xid (PCI:0000:01:00): 79, pid=1, name={CANARY}, {CANARY}",
        f"NVRM: Xid (PCI:0000:01:00): 99999, {CANARY}",
        f"NVRM: Xid (PCI:{CANARY}): 79, a",
        f"Out of memory: Killed process 1 ({CANARY}) a",
    ]
    logs = {name: [f"{CANARY} {one} {CANARY}" for one in lines] for name in causes}
    found = diagnose_host(HostEvidence("rig.py", "box", logs=logs, kernel=kernel, driver=CANARY), causes)
    assert len(found) > 40
    assert any(CANARY in one.evidence for one in found)
    assert not [one.cure for one in found if "canary" in one.cure or "canary" in one.id or "canary" in one.where]


def test_a_cure_names_the_inventory_as_a_shell_takes_it() -> None:
    for inventory in ("a b.py", "{}.py", "{a}.py", "$(id).py"):
        (one,) = diagnose_host(HostEvidence(inventory, "box", healths=[health(EngineMetrics(), "stopped")]), {})
        assert inventory in one.cure
        assert f"'{inventory}'" in one.cure


@pytest.mark.parametrize(
    "line",
    [
        *("token " * 200_000, "token" + " " * 1_000_000 + "/", "authorization: bearer " * 50_000, "a" * 1_000_000),
        *("NVRM: Xid (PCI:" * 60_000, "Out of memory: Killed process " * 30_000, "pass=" * 200_000, ":" * 1_000_000),
        "out of memory: Killed process 1 (" + "a" * 1_000_000,
    ],
    ids=lambda line: line[:12],
)
def test_no_line_takes_longer_than_its_length(line: str) -> None:
    began = time.process_time()
    causes = {"vllm": kinds()["vllm"].causes, "llama.cpp": kinds()["llama.cpp"].causes}
    list(
        diagnose_host(
            HostEvidence("a", "b", kernel=[masked(line)], logs={key: [masked(line)] for key in causes}), causes
        )
    )
    assert time.process_time() - began < 2


def test_a_log_of_long_lines_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_stand_in(tmp_path, "journalctl", "head -c 20000000 /dev/zero | tr '\\0' a; echo; echo CUDA error 804")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def unseen(*_: object) -> None:
        raise ValueError("not here")

    monkeypatch.setattr(host_evidence, "read_health", unseen)
    box: Any = SimpleNamespace(name="box", target=ShellHost(), rig=None)
    found, missed = host_evidence.collect_evidence("rig.py", box, [sample_instance("chat")], ())
    assert [len(line) for line in found.logs["chat"]] == [host_evidence.WIDTH, 14]
    assert [len(line) for line in found.kernel] == [host_evidence.WIDTH, 14]
    assert missed == ["how its instances are: not here"]
