"""States x verbs: each verb names the same state for the same facts, with the exit status that belongs to it."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from checks.connections import ConnectedHost
from checks.results import STATUS
from checks.survey.answers import SurveyAnswers
from checks.survey.health import HEALTH, observe_state
from cli import chat, check_serving, doctor, observed_box, plan, status
from cli.exit_codes import NotAsDeclared
from cli.instance_access import ClientAccess
from cli.measurement_refusals import refuse_foreign_server
from rigwright.model.gateway_schema import Gateway
from rigwright.operate.chat_reply import Reply
from rigwright.operate.client_target import ClientTarget
from rigwright.operate.diagnosis_findings import HostEvidence
from rigwright.operate.instance_health import BLANK_HOST_FACTS, HealthFacts, RotationObservation, RotationReason
from rigwright.operate.instance_state import GenerationObservation
from rigwright.serving.serving_state import ObservedServing
from roles import root_shell
from roles.client import ClientJobFailed, ClientJobLost
from tests.unit.ready_instances import ENGINE, UNIT, ready_facts
from tests.unit.samples import sample_facts, sample_instance, sample_rig

INSTANCE = sample_instance()
RIG = sample_rig(INSTANCE)
READY = ready_facts(None, RIG)
MUTE = replace(ENGINE, status=0, error="no answer in time", silent_s=0.6)


OUT = RotationObservation((RotationReason("Xid 79 of card 0: it fell off the bus", 0.0, None),), last_resort=False)


def with_unit(**changes: Any) -> HealthFacts:
    return replace(READY, units={INSTANCE.unit: replace(UNIT, **changes)}, engines={})


def with_engine(**changes: Any) -> HealthFacts:
    return replace(READY, engines={INSTANCE.name: replace(MUTE, **changes)})


STATES: dict[str, HealthFacts] = {
    "ready": READY,
    "asleep": with_engine(asleep=True),
    "starting": with_unit(active="activating", sub="start-post"),
    "stopping": with_unit(active="deactivating"),
    "stopped": with_unit(active="inactive"),
    "stopped by hand": replace(with_unit(active="inactive"), stopped={INSTANCE.name: 0.0}),
    "silent": with_engine(),
    "wedged": with_engine(silent_s=500.0),
    "failing": with_engine(status=503),
    "out of rotation": replace(READY, rotation={INSTANCE.name: OUT}),
    "failed": with_unit(active="failed", result="exit-code"),
    "running": replace(READY, engines={}),
    "other generation": replace(READY, generation=GenerationObservation(3, "d", "d")),
    "not deployed": BLANK_HOST_FACTS,
}


class StateBox(ConnectedHost):
    """A box whose host is known."""

    def prefetch(self, *looks: str) -> ConnectedHost:
        return self

    def read_facts(self) -> Any:
        return sample_facts(clock=int(time.time()))

    def read_serving_state(self) -> ObservedServing:
        return ObservedServing()

    def read_resource_usage(self) -> Any:
        return {}

    def read_written_files(self) -> Any:
        return {}

    def read_lock_holder(self) -> None:
        return None


@contextmanager
def lose_client(*_: object) -> Iterator[Any]:
    raise ClientJobLost("no job in this test")
    yield


def verify_state(box: ConnectedHost) -> tuple[str, int]:
    interrupt: Any = SimpleNamespace(asked=False, open_client=lose_client, describe_error=str)
    (told,) = check_serving.verify_box(box, [INSTANCE], ClientAccess(), interrupt, lambda *_: None, "rig.py")
    # whether an instance that may answer does is not this test's
    return told.state, STATUS[replace(told, ended="").verdict] if told.state else 0


def status_state(box: ConnectedHost) -> tuple[str, int]:
    found = status.collect_status(box)
    (one,) = found.instances
    # this host's serving side has no generation
    return one.assessed.describe(), replace(found, declared=True).exit_status


def check_state(box: ConnectedHost) -> tuple[str, int]:
    told = json.loads(json.dumps(asdict(observed_box.read_health(box.target, box.rig))))
    found = observe_state(SurveyAnswers({HEALTH.name: {"told": told}}), INSTANCE, box.resolve_desired().generation)
    return found.describe(), 0 if found.is_ready else 1


VERBS: dict[str, Callable[[ConnectedHost], tuple[str, int]]] = {
    "status": status_state,
    "check": check_state,
    "check --serving": verify_state,
    "doctor": lambda box: ("; ".join(one.means for one in doctor._check_deployability("rig.py", box)), -1),
    "plan": lambda box: ("; ".join(plan.plan_box(box).states), -1),
    "chat": lambda box: (observed_box.describe_unanswered(box, INSTANCE, "rig.py"), -1),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
def test_each_verb_names_the_state(state: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_box, "read_health", lambda target, rig: STATES[state])
    said, code = VERBS[verb](StateBox("box", RIG, SimpleNamespace(data={})))
    state_phrase = {"failed": "has failed", "other generation": "runs another generation"}.get(state, f"is {state}")
    sentence = f"{INSTANCE.name} {state_phrase}"
    ready = state in ("ready", "asleep")
    if ready and verb not in ("status", "check"):
        assert f"{INSTANCE.name} is " not in said
    else:
        assert sentence in said
    # the exit status of doctor follows from its findings; that of plan from refusals; that of chat from the answer
    assert code in (-1, 0 if ready else 1)


def test_verbs_that_ask_at_the_own_socket_name_an_instance_on_demand_that_is_asleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateway = Gateway.model_validate({"listeners": {"lan": {"address": "0.0.0.0", "port": 8000, "keys": False}}})
    one = sample_instance(start="on-demand")
    box = StateBox("box", sample_rig(one, gateway=gateway), SimpleNamespace(data={}))
    interrupt: Any = SimpleNamespace(asked=False, open_client=lose_client, describe_error=str)
    for facts, asleep in ((READY, False), (with_unit(active="inactive"), True)):
        monkeypatch.setattr(observed_box, "read_health", lambda target, rig, facts=facts: facts)
        (told,) = check_serving.verify_box(box, [one], ClientAccess(), interrupt, lambda *_: None, "rig.py")
        command = "rigwright start rig.py chat --limit box"
        text = f"chat is asleep, and only requests at the gateway load it; next: `{command}`" if asleep else ""
        assert told.state == text
        assert told.verdict == ("not as declared" if asleep else told.verdict)
        assert observed_box.describe_unanswered(box, one, "rig.py") == text
        (told,) = check_serving.verify_box(box, [one], ClientAccess(gateway=True), interrupt, lambda *_: None, "rig.py")
        assert told.state == ""


@pytest.mark.parametrize(
    ("facts", "at", "message"),
    [
        (with_unit(active="inactive"), "", "no answer in time: chat is asleep, and only requests at"),
        (with_unit(active="inactive"), "192.0.2.7:8000", "chat does not name its model: no answer in time"),
        (READY, "", "chat does not name its model: no answer in time"),
        (with_engine(), "", "no answer in time: chat is silent"),
        (with_unit(active="failed", result="exit-code"), "", "no answer in time: chat has failed"),
    ],
    ids=["asleep", "at the gateway", "ready", "silent", "failed"],
)
def test_a_measurement_names_the_state_of_an_instance_that_gives_no_answer(
    facts: HealthFacts, at: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_box, "read_health", lambda target, rig: facts)
    one = sample_instance(start="on-demand")
    box = StateBox("box", sample_rig(one), SimpleNamespace(data={}))
    client: Any = SimpleNamespace(
        place=ClientTarget(one.name, at or one.socket, one.model_name),
        send_request=lambda *_: Reply(0, "no answer in time", "", "", (), None, 10.0, 0, 10.0),
    )
    with pytest.raises(ClientJobFailed, match=re.escape(message)):
        refuse_foreign_server(box, one, client)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (with_unit(active="inactive"), "box: chat has no API key: run deploy"),
        (READY, "box: chat has no API key: run deploy"),
        (with_unit(active="failed", result="exit-code"), "box: chat has failed"),
    ],
    ids=["asleep", "ready", "failed"],
)
def test_chat_names_a_missing_key_also_of_an_instance_that_is_asleep(
    facts: HealthFacts, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_box, "read_health", lambda target, rig: facts)
    monkeypatch.setattr(
        root_shell, "run_command", lambda *_, **__: root_shell.RootCommandResult(1, b"", b"cat: absent")
    )
    one = sample_instance(start="on-demand")
    box = StateBox("box", sample_rig(one), SimpleNamespace(data={}))
    with pytest.raises(NotAsDeclared, match=re.escape(message)):
        chat._read_instance_key(box, one, "rig.py")


def test_a_host_without_a_look_is_unreachable_for_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: object, rig: object) -> None:
        raise ValueError("it printed something else")

    monkeypatch.setattr(observed_box, "read_health", fail)
    found = status.collect_status(StateBox("box", RIG, SimpleNamespace(data={})))
    (one,) = found.instances
    assert (one.state, one.note, found.exit_status) == ("unreachable", "it printed something else", 3)


@pytest.mark.parametrize(
    ("state", "line", "first"),
    [
        ("failed", "invalid magic characters: 'brok', expected 'GGUF'", "invalid-magic-characters"),
        ("failed", "a line that names no cause", "state-failed"),
        ("stopped by hand", "invalid magic characters: 'brok', expected 'GGUF'", "state-stopped-by-hand"),
    ],
)
def test_doctor_names_the_reason_of_a_failed_start_before_its_state(
    state: str, line: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_box, "read_health", lambda target, rig: STATES[state])
    evidence = HostEvidence("rig.py", "box", logs={INSTANCE.name: [line]})
    monkeypatch.setattr(doctor, "collect_evidence", lambda *_: (evidence, []))
    found = doctor._diagnose_box("rig.py", StateBox("box", RIG, SimpleNamespace(data={})), (), {})
    assert next(one.id for one in found.causes if one.where == INSTANCE.name) == first
