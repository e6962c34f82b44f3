"""Checks, called with a survey that a test has made."""

import inspect
import subprocess
from collections.abc import Callable, Collection, Mapping
from types import ModuleType

import pytest

from checks import Drift, conftest
from checks.survey import survey_program
from checks.survey.answers import SurveyAnswers

# parts of a rig, which checks receive by name
RIG_FIXTURES = {
    name: fixture._fixture_function
    for name, fixture in vars(conftest).items()
    if set(inspect.signature(getattr(fixture, "_fixture_function", id)).parameters) in ({"rig"}, {"rig", "desired"})
}


def red_checks(
    module: ModuleType, survey: SurveyAnswers, *, unsupplied: Collection[str] = (), **given: object
) -> dict[str, str]:
    """Check -> what it says, of those of a module that are red.

    Args:
        module: The file of checks.
        survey: The answers of its host.
        unsupplied: The checks of the module that need more than is given, and are not run.
        given: Values by the names of parameters; parts of a given rig follow from it.

    Raises:
        AssertionError: other checks than `unsupplied` need more: a check that is not run finds nothing.
    """
    values = {"survey": survey, **given}
    parts = {
        name: fixture
        for name, fixture in RIG_FIXTURES.items()
        if name not in values and set(inspect.signature(fixture).parameters) <= set(values)
    }
    found, lacking = {}, set()
    for one in vars(module).values():
        for mark in getattr(one, "pytestmark", ()):
            names = inspect.signature(one).parameters
            if mark.name != "check":
                continue
            if not set(names) <= {*values, *parts}:
                lacking.add(mark.kwargs["identifier"])
                continue
            try:
                values |= {name: _call(parts[name], values) for name in names if name not in values}
                one(**{name: values[name] for name in names})
            except pytest.skip.Exception:  # it is about something that the rig has not
                continue
            except Drift as drift:
                found[mark.kwargs["identifier"]] = str(drift)
    assert lacking == {*unsupplied}, f"parameters are missing for {sorted(lacking)}, not {sorted(unsupplied)}"
    return found


def _call(function: Callable[..., object], values: Mapping[str, object]) -> object:
    return function(*(values[name] for name in inspect.signature(function).parameters))


def collect_answers(questions: dict[str, tuple[float, object]]) -> dict[str, dict[str, object]]:
    """The survey program's answers here."""
    program = survey_program.render_survey_program(questions)
    done = subprocess.run(
        ["sh", "-c", survey_program.COMMAND], input=program, text=True, capture_output=True, check=False
    )
    assert not done.stderr
    return survey_program.parse_answers(done.stdout.encode())
