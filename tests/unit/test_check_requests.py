"""Requests of checks without a valid key: the record in a journal, and readers that tell them from clients'."""

import os
import socket
from dataclasses import asdict
from pathlib import Path

import pytest

from checks.survey.host import requests
from checks.survey.requests import SurveyRequest
from rigwright.engines import kinds
from rigwright.engines.log_causes import Cause, CheckRequests

CAUSES: tuple[Cause, ...] = kinds()["llama.cpp"].causes
REFUSAL = "0.07 W srv validate_api: Unauthorized: Invalid API Key"
UNIT = "rigwright-chat.service"


def journal_line(second: int, message: str, sender: str = "llama-server") -> str:
    return f"2026-11-29T10:{second // 60:02}:{second % 60:02}+0000 {sender}[77]: {message}"


def record(second: int, count: int = 2) -> str:
    return journal_line(second, requests.RECORD.format(count), requests.IDENTIFIER)


def refusals(*seconds: int) -> list[str]:
    return [journal_line(second, REFUSAL) for second in seconds]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ([record(1), *refusals(1, 2)], 0),
        (refusals(1), 1),
        ([record(1), *refusals(1, 2, 3)], 1),
        ([*refusals(0), record(1), *refusals(1, 1)], 1),
        ([record(1), *refusals(1), record(30), *refusals(31, 31, 31)], 0),
        ([record(1), *refusals(70, 71)], 2),
        ([record(1), record(100), *refusals(101, 101, 102)], 1),
        # a line of the engine repeats a client's words
        ([journal_line(1, requests.RECORD.format(99)), *refusals(1, 2)], 2),
        ([journal_line(1, f"{requests.IDENTIFIER}[7]: {requests.RECORD.format(99)}"), *refusals(1)], 1),
        ([record(1, 999), *refusals(1)], 1),
        (["no time at all", *refusals(1)], 1),
    ],
)
def test_as_many_refusals_as_a_check_announces_are_its_own(lines: list[str], left: int) -> None:
    kept = CheckRequests(CAUSES).without_own(lines)
    assert kept.count(REFUSAL) == left
    assert len(kept) == len(lines) - sum(REFUSAL in line for line in lines) + left


def test_another_cause_is_never_a_checks_own() -> None:
    line = journal_line(1, 'got exception: {"error":{"code":400,"type":"invalid_request_error"}}')
    checks = CheckRequests(CAUSES)
    assert [checks.is_own(one) for one in (record(1), line)] == [False, False]


@pytest.mark.parametrize("kind", ["llama.cpp", "llama.cpp-wheel", "vllm", "image"])
def test_each_engine_has_the_line_of_a_refused_key(kind: str) -> None:
    assert [one.id for one in kinds()[kind].causes if one.of_checks]


def test_root_writes_how_many_requests_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setattr(requests, "JOURNAL", path)
    keyless = SurveyRequest("chat: no key", "127.0.0.1:8020", "/v1/models", units=(UNIT,), keyless=True)
    keyed = SurveyRequest("chat: port", "127.0.0.1:8020", "/v1/models", units=(UNIT,))
    away = SurveyRequest(
        "code: no key", "127.0.0.1:8021", "/v1/models", units=("rigwright-code.service",), keyless=True
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(path)
        journal.setblocking(False)
        requests.announce_keyless([asdict(one) for one in (keyless, keyless, keyed, away)], {UNIT: os.getpid()})
        assert journal.recv(4096).decode().splitlines() == [
            "MESSAGE=a check sends 2 requests without a valid API key",
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=rigwright-check",
            f"OBJECT_PID={os.getpid()}",
        ]
        with pytest.raises(BlockingIOError):
            journal.recv(4096)
    requests.announce_keyless([asdict(keyless)], {UNIT: os.getpid()})  # without journald
