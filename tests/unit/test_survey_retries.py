"""How long the survey repeats a request for a model without a ready instance."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from checks.survey.host import requests, systemd_properties
from checks.survey.requests import SurveyRequest
from tests.unit.file_server import LoopbackFileServer, complete_file, error_status, run_file_server

UNIT = "rigwright-chat.service"
MODEL = SurveyRequest("lan: model chat", "", "/v1/models", again=(503,), units=(UNIT,), limit=5.0)


@pytest.fixture
def gateway() -> Iterator[LoopbackFileServer]:
    with run_file_server() as served:
        yield served


def make_request(
    gateway: LoopbackFileServer, units: dict[str, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """The request with what the survey knows of the services' processes."""
    monkeypatch.setattr(systemd_properties, "properties", lambda *_: units)
    processes = requests.main_processes({UNIT})
    return {**asdict(MODEL), "at": gateway.url.removeprefix("http://"), "processes": [*processes.values()]}


def test_a_busy_model_whose_service_runs_is_asked_again(
    gateway: LoopbackFileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.serve("v1/models", error_status(503), error_status(503), complete_file(b"{}"))
    units: dict[str, dict[str, object]] = {UNIT: {"ActiveState": "active", "MainPID": os.getpid()}}
    assert requests.patiently(make_request(gateway, units, monkeypatch), "")["status"] == 200
    assert len(gateway.asked) == 3


@pytest.mark.parametrize("state", ["inactive", "failed", "activating"])
def test_a_model_whose_service_does_not_run_is_asked_once(
    gateway: LoopbackFileServer, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    gateway.serve("v1/models", error_status(503))
    units: dict[str, dict[str, object]] = {UNIT: {"ActiveState": state, "MainPID": os.getpid()}}
    assert requests.patiently(make_request(gateway, units, monkeypatch), "")["status"] == 503
    assert len(gateway.asked) == 1


def test_a_model_whose_process_ends_meanwhile_is_not_asked_to_the_end(
    gateway: LoopbackFileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.serve("v1/models", error_status(503))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        units: dict[str, dict[str, object]] = {UNIT: {"ActiveState": "active", "MainPID": one.pid}}
        ask = make_request(gateway, units, monkeypatch)
        one.kill()
    began = time.monotonic()
    assert requests.patiently(ask, "")["status"] == 503
    assert time.monotonic() - began < MODEL.limit / 2


@pytest.mark.parametrize("state", ["inactive", "failed", "activating"])
def test_a_service_that_is_down_gets_no_request(
    gateway: LoopbackFileServer, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    gateway.serve("v1/models", complete_file(b"{}"))
    ask = make_request(gateway, {UNIT: {"ActiveState": state, "MainPID": os.getpid()}}, monkeypatch)
    found: Any = requests.look({"asks": [ask], "parts": [], "within": 5.0})["answers"]
    assert (found[MODEL.name]["status"], found[MODEL.name]["error"]) == (0, f"not asked: {UNIT} is not active")
    assert gateway.asked == []
