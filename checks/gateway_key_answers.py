"""The answers of a gateway's listener to clients without a key, and about those that have one."""

from __future__ import annotations

import json

import pytest

from checks import DEPLOY, expect
from checks.remedy import restart_units, show_log
from checks.survey.requests import RequestAnswers, SurveyAnswer, find_answer, keys_to_test, offered_model_names
from rigwright.engines.api_paths import MESSAGES
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT, ROUTER_UNIT
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance

READABLE = "an error of the path's protocol"
MEMBERS = {"message", "type", "param", "code"}
LOG = show_log(GATEWAY_UNIT, ROUTER_UNIT)


def describe_refusal_mismatch(said: SurveyAnswer, path: str = "") -> str:
    """The parts of a refusal that clients would not read; empty where there are none.

    Args:
        said: The answer.
        path: After `/v1/`; Anthropic's have another shape than all others.
    """
    if said.status != 401:
        return said.describe
    if (said.headers.get("content-type"), said.headers.get("www-authenticate")) != ("application/json", "Bearer"):
        return "other headers"
    try:
        body = json.loads(said.body)
        error = body["error"]
        if path in MESSAGES:
            same = (body["type"], error["type"]) == ("error", "authentication_error") and bool(error["message"])
            return "" if same and len(body) == len(error) == 2 else "other words"
        told = (error["type"], error["code"], bool(error["message"]), set(error))
    except (ValueError, KeyError, TypeError, RecursionError):
        return "no error in JSON"
    return "" if told == ("authentication_error", "invalid_api_key", True, MEMBERS) else "other words"


def check_key_permissions(
    requests: RequestAnswers,
    inventory: str,
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
    name: str,
    entry: ListenerEntry,
) -> None:
    """Judge what each key may use at a listener: the controller has only its hash, and the router reports it to nginx.

    Raises:
        Drift: it is more or less than declared.
    """
    aliases = gateway.aliases if gateway else {}
    if not (keys := keys_to_test(inventory, gateway)):
        pytest.skip("clients need a key here, and no key exists")
    lacking, shown = [], []
    for owner, key in keys.items():
        offered = offered_model_names(instances, gateway, entry, key)
        for one in offered:
            said = find_answer(requests, f"{name}: model {one} of {owner}")
            leads = said.headers.get("x-rw-group", said.describe) if said.status == 204 else said.describe
            lacking += [f"{one} for key {owner} ({leads})"] if leads != aliases.get(one, one) else []
        found = parse_model_names(find_answer(requests, f"{name}: models of {owner}").body)
        shown += [f"{', '.join(found) or 'no model'} for key {owner}"] if found != sorted(offered) else []
    expect(
        ", ".join(lacking) or "an answer for every name",
        "an answer for every name",
        restart_units(ROUTER_UNIT) + DEPLOY,
    )
    expect(", ".join(shown) or "what each key may use", "what each key may use", restart_units(ROUTER_UNIT))


def parse_model_names(said: str) -> list[str]:
    """The names in a list of models, sorted."""
    try:
        return sorted(str(one["id"]) for one in json.loads(said)["data"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ["no list"]
