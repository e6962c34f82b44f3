"""Checks, called with a survey that a test has made."""

from __future__ import annotations

import inspect
import subprocess
from types import ModuleType

import pytest

from checks import Drift
from checks.survey import carry
from checks.survey.taken import Survey


def red_of(module: ModuleType, survey: Survey, **given: object) -> dict[str, str]:
    """Check -> what it says, of those of a module that are red; only those that need nothing beside what is given."""
    values = {"survey": survey, **given}
    found = {}
    for one in vars(module).values():
        for mark in getattr(one, "pytestmark", ()):
            names = inspect.signature(one).parameters
            if mark.name != "check" or not set(names) <= set(values):
                continue
            try:
                one(**{name: values[name] for name in names})
            except pytest.skip.Exception:  # it is about something that the rig has not
                continue
            except Drift as drift:
                found[mark.kwargs["identifier"]] = str(drift)
    return found


def taken(questions: dict[str, tuple[float, object]]) -> dict[str, dict[str, object]]:
    """What the survey's program answers here."""
    program = carry.program(questions)
    done = subprocess.run(["sh", "-c", carry.COMMAND], input=program, text=True, capture_output=True, check=False)
    assert not done.stderr
    return carry.answers(done.stdout.encode())
