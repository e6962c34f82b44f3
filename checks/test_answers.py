"""Instances, as their clients and as outsiders find them."""

import json

import pytest

from checks import DEPLOY, Drift, ItemText, check, expect, report_drift
from checks.remedy import STOP_LISTENER, restart_units, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.frontend_services import GATES
from checks.survey.requests import REQUESTS, SurveyAnswer, find_answer
from checks.survey.service_exposure import REACH
from rigwright.engines import kind_of
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.model.instance import Instance
from rigwright.serving.instance_units import LOOPBACK, LOOPBACK_6, listener_units, port_socket

SHOWN = 120  # characters of an answer in a line for people


def describe_answer(found: SurveyAnswer) -> str:
    """The answer, in few words."""
    if not found.status:
        return found.error
    body = ItemText.shorten(found.body, SHOWN)
    shown, whole = (f"{found.describe}: {' '.join(one.split())}" for one in (body, body.items[0]))
    return ItemText(shown, whole)


@check(
    "S04",
    "only systemd holds the instance's port, on the loopback interface",
    severity="critical",
    why="the API has no TLS and one key: clients send that key to any other program at the port",
)
def test_listens_on_loopback(survey: SurveyAnswers, instance: Instance) -> None:
    service, socket = listener_units(instance.port)
    there = [one for one in survey.read(REACH).listeners if one.port == instance.port]
    at = frozenset(one.at for one in there)
    wanted = f"{LOOPBACK}:{instance.port}, and {LOOPBACK_6}"
    found = ", ".join(sorted(at)) or "nothing"
    others = sorted({name for one in there for name in one.holders if not name.endswith(f" of {service}")})
    held = [*others, *([] if all(one.systemd for one in there) else ["not systemd"])]
    # a deploy stops no listener of another's, at whatever address
    cure = STOP_LISTENER + DEPLOY if held else DEPLOY
    expect(found, wanted, cure, holds=port_socket(instance.port).is_listening(at))
    expect(", ".join(held) or "systemd", "systemd", STOP_LISTENER + DEPLOY)
    gates = survey.read(GATES)
    for unit in (socket, service):
        expect(f"{unit} {gates.unit_state(unit).active}", f"{unit} active", DEPLOY)


@check(
    "S05",
    "the instance rejects missing and wrong keys",
    severity="critical",
    why="every local user could use the model",
)
def test_wrong_keys_are_refused(survey: SurveyAnswers, instance: Instance) -> None:
    requests = survey.read(REQUESTS)
    found = {what: find_answer(requests, f"{instance.name}: {what}").describe for what in ("no key", "wrong key")}
    served = " and ".join(f"{code} for {what}" for what, code in found.items() if code != "401")
    expect(served or "401 for both", "401 for both", restart_units(instance.unit) + DEPLOY)


@check(
    "S06",
    "the instance answers a completion request",
    severity="critical",
    why="an open port does not prove that the model answers",
)
def test_answers(survey: SurveyAnswers, instance: Instance) -> None:
    requests = survey.read(REQUESTS)
    # the part between its socket and the port is ours, too
    for what, unit in (("socket", instance.unit), ("port", listener_units(instance.port)[0])):
        found = find_answer(requests, f"{instance.name}: {what}")
        if kind_of(instance).count_answer_tokens(found.body) != 1:
            step = restart_units(unit) + DEPLOY + show_log(unit)
            report_drift(Drift(f"one token from its {what}", describe_answer(found), step))


@check(
    "S13",
    "the instance serves its model by name and streams answers",
    severity="critical",
    why="clients request a model by name and show tokens as they arrive",
)
def test_serves_its_model_streamed(survey: SurveyAnswers, instance: Instance, service: ServiceSpec) -> None:
    if service.models is None or service.streamed is None:
        pytest.skip("not supported by this kind of engine")
    requests = survey.read(REQUESTS)
    step = restart_units(instance.unit) + DEPLOY + show_log(instance.unit)
    models = find_answer(requests, f"{instance.name}: models")
    name = first_model_name(models.body)
    expect(
        name if name is not None else describe_answer(models),
        f"the model {instance.model_name}",
        step,
        holds=name == instance.model_name,
    )
    streamed = find_answer(requests, f"{instance.name}: streamed")
    events = [line for line in streamed.body.splitlines() if line]
    if not (events[-1:] == ["data: [DONE]"] and len(events) > 1):
        raise Drift("events ending in [DONE]", describe_answer(streamed), step)


def first_model_name(body: str) -> str | None:
    """The name of the first model in an answer; None where there is none."""
    try:
        return str(json.loads(body)["data"][0]["id"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None
