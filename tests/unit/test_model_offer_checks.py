"""Requests to a listener with keys: only by hashes of keys, and whether it refuses in words of OpenAI's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks import Drift
from checks.gateway_key_answers import check_key_permissions, describe_refusal_mismatch
from checks.survey.requests import ROUTER, TRIED, RequestAnswers, SurveyAnswer, gateway_requests
from rigwright.gateway.keyring import FILE, ClientKey, ClientKeyring, dump
from rigwright.gateway.nginx_conf import PATHS
from rigwright.model.gateway_schema import Gateway
from rigwright.model.rig import Rig
from tests.unit.samples import sample_instance, sample_rig

ERROR = {"message": "no", "type": "authentication_error", "param": None, "code": "invalid_api_key"}
HEADERS = {"content-type": "application/json", "www-authenticate": "Bearer"}


def router_answer(status: int, body: object = "", **headers: str) -> SurveyAnswer:
    text = body if isinstance(body, str) else json.dumps(body)
    return SurveyAnswer(status, text, "", {key.replace("_", "-"): value for key, value in headers.items()}, "", "")


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (router_answer(401, {"error": ERROR}, **HEADERS), ""),
        (router_answer(200, {"error": ERROR}, **HEADERS), "200"),
        (replace(router_answer(0), error="no answer in time"), "no answer in time"),
        (router_answer(401, {"error": ERROR}), "other headers"),
        (router_answer(401, {"error": ERROR}, **HEADERS | {"www-authenticate": "Basic"}), "other headers"),
        (router_answer(401, {"error": ERROR | {"code": "x"}}, **HEADERS), "other words"),
        (router_answer(401, {"error": ERROR | {"message": ""}}, **HEADERS), "other words"),
        (router_answer(401, {"error": ERROR | {"key": "x"}}, **HEADERS), "other words"),
        (router_answer(401, {"detail": "no"}, **HEADERS), "no error in JSON"),
        (router_answer(401, "<html>", **HEADERS), "no error in JSON"),
        (router_answer(401, "[" * 5000, **HEADERS), "no error in JSON"),
    ],
)
def test_a_refusal_is_one_that_clients_of_openai_read(answer: SurveyAnswer, found: str) -> None:
    assert describe_refusal_mismatch(answer, "chat/completions") == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"type": "error", "error": {"type": "authentication_error", "message": "no"}}, ""),
        ({"type": "error", "error": {"type": "authentication_error", "message": ""}}, "other words"),
        ({"type": "error", "error": {"type": "api_error", "message": "no"}}, "other words"),
        ({"type": "error", "error": ERROR}, "other words"),
        ({"error": ERROR}, "no error in JSON"),
    ],
)
def test_at_anthropics_paths_a_refusal_is_one_that_its_clients_read(body: dict[str, Any], found: str) -> None:
    assert describe_refusal_mismatch(router_answer(401, body, **HEADERS), "messages/count_tokens") == found


@pytest.fixture
def box(tmp_path: Path) -> Rig:
    """A rig with one model behind a listener with keys, an alias of it, and no key yet."""
    model = sample_instance("chat").model_name
    gateway = {"listeners": {"office": {"address": "192.0.2.7", "port": 443}}, "aliases": {"gpt-4o": model}}
    made = sample_rig(sample_instance("chat"))
    return replace(made, gateway=Gateway.model_validate(gateway), inventory=str(tmp_path / "rig.py"))


def keys(box: Rig, **models: Any) -> None:
    """Give keys to an owner."""
    ring = {
        name: ClientKey(sha256=f"{number:016x}{0:048x}", models=of, made="2026-06-10")
        for number, (name, of) in enumerate(models.items())
    }
    dump(Path(box.inventory).with_name(FILE), ClientKeyring(keys=ring))


def test_rights_of_keys_are_asked_of_the_router_by_their_hashes(box: Rig) -> None:
    keys(box, alice=None, bob=("gpt-4o",), eve=("none-such",))
    asked = {one.name: one for one in gateway_requests(box) if one.at == ROUTER}
    owners = [one.rpartition(" ")[2] for one in asked if ": model " in one]
    assert (owners.count("alice"), owners.count("bob"), owners.count("eve")) == (2, 2, 0)
    one = asked["office: models of bob"]
    assert one.headers == ("X-Rw-Listener: office", f"X-Rw-Key: {1:016x}")
    assert not any(asks.key or "Authorization" in str(asks.headers) for asks in asked.values())


def test_each_open_path_is_tried_without_a_key(box: Rig) -> None:
    posted = {one.path for one in gateway_requests(box) if one.method == "POST" and one.at != ROUTER}
    assert posted == {f"/v1/{path}" for path in PATHS}


def test_of_many_keys_some_are_asked_for(box: Rig) -> None:
    keys(box, **{f"k{number}": None for number in range(TRIED + 5)})
    assert sum(": models of " in one.name for one in gateway_requests(box)) == TRIED


def offer_problems(box: Rig, **changed: SurveyAnswer) -> str:
    """The problems of the router's answers; of some it answers otherwise."""
    model = sample_instance("chat").model_name
    told = {
        "office: models of alice": router_answer(200, {"data": [{"id": model}, {"id": "gpt-4o"}]}),
        f"office: model {model} of alice": router_answer(204, x_rw_group=model),
        "office: model gpt-4o of alice": router_answer(204, x_rw_group=model),
    }
    gateway = box.gateway
    assert gateway
    try:
        check_key_permissions(
            RequestAnswers(told | changed, {}),
            box.inventory,
            box.instances,
            box.gateway,
            "office",
            gateway.listeners["office"],
        )
    except Drift as drift:
        return str(drift)
    return ""


def test_names_that_lead_elsewhere_or_nowhere_are_red(box: Rig) -> None:
    keys(box, alice=None)
    assert offer_problems(box) == ""
    wrong = {
        "office: model gpt-4o of alice": (router_answer(404), "gpt-4o for key alice (404)"),
        "office: models of alice": (router_answer(200, {"data": []}), "no model for key alice"),
    }
    for name, (answer, words) in wrong.items():
        assert words in offer_problems(box, **{name: answer})
    model = sample_instance("chat").model_name
    without_alias = router_answer(200, {"data": [{"id": model}]})
    assert f"{model} for key alice" in offer_problems(box, **{"office: models of alice": without_alias})
    assert "gpt-4o for key alice (other)" in offer_problems(
        box, **{"office: model gpt-4o of alice": router_answer(204, x_rw_group="other")}
    )


def test_without_anybodys_key_nothing_is_judged(box: Rig) -> None:
    with pytest.raises(pytest.skip.Exception):
        offer_problems(box)
