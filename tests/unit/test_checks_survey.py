"""The survey's program, run here, and what becomes of answers that are none."""

from __future__ import annotations

import base64
import json
import subprocess
import zlib
from dataclasses import dataclass

import pytest

from checks import Drift
from checks.survey import carry
from checks.survey.accounts import ACCOUNTS
from checks.survey.section import Section
from checks.survey.taken import Survey


def run(questions: dict[str, tuple[float, object]]) -> dict[str, dict[str, object]]:
    done = subprocess.run(
        ["sh", "-c", carry.COMMAND], input=carry.program(questions), text=True, capture_output=True, check=False
    )
    assert not done.stderr
    return carry.answers(done.stdout.encode())


def test_it_finds_root() -> None:
    found = Survey(
        run({"accounts": (20.0, {"users": [], "home": "/nonexistent", "shell": "/usr/sbin/nologin", "folders": []})})
    ).read(ACCOUNTS)
    assert (user := found.user("root")) is not None
    assert (user.uid, user.home) == (0, "/root")


@pytest.fixture
def sections(tmp_path, monkeypatch):  # type: ignore[no-untyped-def]
    """Sections of a test's own beside the program's."""
    for name in ("main", *carry.COMMON):
        (tmp_path / f"{name}.py").write_text((carry.HOST / f"{name}.py").read_text())
    monkeypatch.setattr(carry, "HOST", tmp_path)
    return lambda **sources: [(tmp_path / f"{name}.py").write_text(text) for name, text in sources.items()]


def test_a_section_that_crashes_dies_or_hangs_takes_no_other_along(sections) -> None:  # type: ignore[no-untyped-def]
    sections(
        crashes="def look(asked):\n    return asked['nothing']\n",
        dies="import os\ndef look(asked):\n    os.kill(os.getpid(), 9)\n",
        hangs="import subprocess\ndef look(asked):\n    subprocess.run(['sleep', '1000'])\n",
        answers="def look(asked):\n    return asked\n",
    )
    found = run({"crashes": (9.0, {}), "dies": (9.0, {}), "hangs": (0.3, {}), "answers": (9.0, [1, "x" * 300_000])})
    assert found["answers"]["told"] == [1, "x" * 300_000]
    assert found["crashes"]["failed"] == "KeyError: 'nothing' (crashes.py line 2)"
    assert found["dies"]["failed"] == "it died"
    assert found["hangs"]["failed"] == "it took too long"


@dataclass(frozen=True)
class Told:
    one: int
    words: list[str]


TOLD: Section[Told] = Section("told", Told, lambda scene: {})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"told": {"one": "1", "words": []}}, "one: "),
        ({"told": {"one": 1, "words": ["a", 3]}}, "words.1: "),
        ({"told": {"one": 1}}, "words: "),
        ({"told": None}, "about told"),
        ({"failed": "KeyError: 'x'"}, "KeyError: 'x'"),
        ({"failed": "a\x1b[31mb"}, "a\N{REPLACEMENT CHARACTER}[31mb"),
        ({}, "found none"),
    ],
)
def test_what_is_no_answer_conforms_to_nothing(answer: dict[str, object], said: str) -> None:
    with pytest.raises(Drift, match="expected an answer about told") as caught:
        Survey({"told": answer}).read(TOLD)
    assert said in str(caught.value)


def test_a_host_that_was_not_asked_conforms_to_nothing() -> None:
    with pytest.raises(Drift, match="found the connection is gone"):
        Survey({}, "the connection is gone").read(TOLD)


@pytest.mark.parametrize("output", [b"", b"Traceback\n", b"AAAA\n", base64.b64encode(zlib.compress(b"{")), b"\xff\xfe"])
def test_output_that_is_no_survey_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="not run to its end"):
        carry.answers(output)


@pytest.mark.parametrize("answer", [[], {"accounts": 1}])
def test_an_answer_of_another_shape_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="is none"):
        carry.answers(base64.b64encode(zlib.compress(json.dumps(answer).encode())))


def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "MOST", 1 << 10)
    with pytest.raises(ValueError, match="more than"):
        carry.answers(base64.b64encode(zlib.compress(b"[" * 100_000)))
