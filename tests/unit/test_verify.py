"""Capabilities of instances: each check green on a scripted model, and red on one that misbehaves."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.host.systemd import UnitState
from rigwright.model.instance import Instance
from rigwright.operate.capability_probes import CHECKS, PATCHES, ProbeFinding, is_passed
from rigwright.operate.client_target import ClientTarget
from rigwright.serving.serving_state import ObservedServing, ObservedUnit
from roles.client import HostClient
from roles.client.instance_probes import check_patches, verify_instance
from tests.unit.client_host import make_client_host
from tests.unit.model_server import KEY, MODEL, Fault, ScriptedModel, run_model_server
from tests.unit.serving_samples import SERVICE, capable_instance

NAMES = [one.name for one in CHECKS]
NO_PATCHES = ProbeFinding(*PATCHES, "n/a", "it declares none")
FindingsById = dict[str, ProbeFinding]
Verifying = Callable[..., FindingsById]


@pytest.fixture
def verifying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verifying:
    (tmp_path / "key").write_text(f"{KEY}\n")
    place = ClientTarget("chat", str(tmp_path / "s"), MODEL, credential=str(tmp_path / "key"))

    def made(model: ScriptedModel, instance: Instance | None = None) -> FindingsById:
        host = make_client_host(tmp_path / "host", monkeypatch)
        with run_model_server(model, tmp_path / "s"), HostClient(host, place) as client:
            found = list(
                verify_instance(client, instance or capable_instance(), SERVICE, NO_PATCHES, lambda what: None)
            )
        assert [one.check for one in found] == ["server", "patches", *NAMES[1:]]
        return {one.check: one for one in found}

    return made


def red(found: FindingsById) -> set[str]:
    return {name for name, one in found.items() if one.verdict == "fail"}


def test_a_working_instance_passes_all_that_it_declares_in_less_than_a_minute(verifying: Verifying) -> None:
    began = time.monotonic()
    found = verifying(ScriptedModel(gap_s=0.001))
    assert {name: one.detail for name, one in found.items() if one.verdict != "ok"} == {"patches": "it declares none"}
    assert time.monotonic() - began < 60
    assert is_passed(found.values())
    assert found["drafts"].detail == "3.00 tokens a step"


@pytest.mark.parametrize(
    ("fault", "names", "words"),
    [
        ("empty", {*NAMES} - {"server", "streamed-tool", "thinking"}, "an empty answer"),
        ("empty", {"thinking"}, "a thought, and no answer after it"),
        ("call in content", {"tool-call", "streamed-tool"}, "a tool call as text: <tool_call>"),
        ("one piece", {"streaming"}, "pieces came at once"),
        ("same line", {"quality"}, "the same line"),
        ("error with 200", {"completion", "quality", "json-schema"}, "an error with status 200"),
        ("lost stream", {"streaming", "quality", "thinking"}, "the answer breaks off"),
        ("no call", {"tool-call", "streamed-tool"}, "no tool call"),
        ("no thought", {"thinking"}, "a thought of 0 characters"),
        ("wrong city", {"completion"}, "no Paris: 'Lyon it is.'"),
        ("not json", {"json-schema"}, "does not match its schema"),
        ("garbage", {"completion"}, "an answer of another shape: 200: <html>"),
    ],
)
def test_misbehaviour_is_reported(verifying: Verifying, fault: Fault, names: set[str], words: str) -> None:
    found = verifying(ScriptedModel(fault))
    assert names <= red(found)
    assert all(words in found[name].detail for name in names), found
    assert not is_passed(found.values())


@pytest.mark.parametrize(
    ("fault", "only"), [("no thought", "thinking"), ("wrong city", "completion"), ("not json", "json-schema")]
)
def test_nothing_else_is_red_for_it(verifying: Verifying, fault: Fault, only: str) -> None:
    assert red(verifying(ScriptedModel(fault))) == {only}


def test_an_instance_of_another_model_is_asked_no_more(verifying: Verifying) -> None:
    model = ScriptedModel("other model")
    found = verifying(model)
    assert found["server"].detail == "it serves somebody-else, not scripted"
    assert {one.verdict for name, one in found.items() if name not in ("server", "patches")} == {"skip"}
    assert model.asked == []


def test_guesses_that_are_all_wrong_are_red(verifying: Verifying) -> None:
    found = verifying(ScriptedModel(accept=0))
    assert red(found) == {"drafts"}
    assert found["drafts"].detail.startswith("1.00 tokens a step, not 2.00: what guesses ahead is not loaded")


def test_an_engine_that_does_not_say_what_it_guesses_is_not_judged(verifying: Verifying) -> None:
    found = verifying(ScriptedModel(drafts=False))
    assert found["drafts"].verdict == "skip"
    assert not is_passed([found["drafts"]])


def test_no_answer_to_one_token_is_one_failure(verifying: Verifying) -> None:
    found = verifying(ScriptedModel(revoked_after=0))
    assert red(found) == {"completion"}
    assert "no answer to one token" in found["completion"].detail
    assert not is_passed(found.values())


@pytest.mark.parametrize(
    ("verdicts", "passed"), [("ok skip n/a", True), ("skip n/a", False), ("", False), ("ok fail", False)]
)
def test_skips_are_no_failures_and_prove_nothing(verdicts: str, passed: bool) -> None:
    assert is_passed(ProbeFinding("a", "a", one, "") for one in verdicts.split()) is passed  # type: ignore[arg-type]


def test_undeclared_capabilities_are_not_asked(verifying: Verifying) -> None:
    model = ScriptedModel()
    plain = capable_instance(
        tool_call_parser=None, reasoning_parser=None, speculative_config=None, flags={"language-model-only": True}
    )
    found = verifying(model, plain)
    left_out = {name for name, one in found.items() if one.verdict == "n/a"}
    assert left_out == {"patches", "tool-call", "streamed-tool", "thinking", "drafts", "image"}
    assert not any("tools" in asked for asked in model.asked)
    assert is_passed(found.values())


@pytest.mark.parametrize(("fault", "verdict"), [("wrong city", "skip"), ("empty", "fail"), ("", "ok")])
def test_of_a_tiny_model_no_knowledge_is_asked_for_and_an_answer_is(
    verifying: Verifying, fault: Fault, verdict: str
) -> None:
    found = verifying(ScriptedModel(fault), capable_instance(size=800_000))
    assert found["completion"].verdict == verdict
    assert verdict != "skip" or "its weights of 0.8 MB are too small" in found["completion"].detail


@pytest.mark.parametrize("name", ["tool-call", "streamed-tool"])
@pytest.mark.parametrize(("fault", "verdict"), [("no call", "skip"), ("call in content", "fail"), ("", "ok")])
def test_a_tiny_model_calls_no_tool_but_its_calls_are_no_text(
    verifying: Verifying, name: str, fault: Fault, verdict: str
) -> None:
    assert verifying(ScriptedModel(fault), capable_instance(size=800_000))[name].verdict == verdict


def test_an_answer_is_no_longer_than_there_is_room(verifying: Verifying) -> None:
    model = ScriptedModel()
    verifying(model, capable_instance(max_model_len=1024))
    assert max(asked["max_tokens"] for asked in model.asked) == 512


def test_patches_are_in_what_runs() -> None:
    wanted = UnitState("rigwright-chat.service", "a" * 64, 0, frozenset())
    runs = ObservedServing(processes={wanted.unit: ObservedUnit("active", "running", started_from="a" * 64)})
    older = ObservedServing(processes={wanted.unit: ObservedUnit("active", "running", started_from="b" * 64)})
    assert check_patches(runs, capable_instance(), wanted, ()).verdict == "n/a"
    assert check_patches(runs, capable_instance(), wanted, ("one",)).verdict == "ok"
    assert check_patches(older, capable_instance(), wanted, ("one",)).verdict == "fail"
    assert check_patches(ObservedServing(), capable_instance(), wanted, ("one",)).verdict == "fail"
