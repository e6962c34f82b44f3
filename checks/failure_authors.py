"""Asks a host for the authors of changes to the files and units of its failed checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from checks import Drift, strip_control_characters
from checks.failure_causes import CheckFailure
from checks.survey.answers import SurveyAnswers
from checks.survey.failure_authors import FAILURE_AUTHORS, LIMIT
from checks.survey.survey_program import COMMAND, parse_answers, render_survey_program
from roles import root_shell

SUBJECT = re.compile(
    r"(?<![\w/.~-])(?:/(?:bin|boot|etc|home|lib\w*|opt|root|run|s?bin|srv|tmp|usr|var|dev/shm)(?:/[\w.@+:~\\-]*[\w@+~-])+"
    r"|[\w.@:\\-]+\.(?:service|socket|timer|target|path|mount|slice|scope)\b|\b(?:process|pid) [0-9]{1,10}\b)"
)
"""A path, the name of a unit or the number of a process in the text of a failure."""
INSTANCE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
MOST_SUBJECTS = 20
MOST_FAILURES = 100
LONGEST_AUTHOR = 400  # characters
ANSWER_BYTES = 1 << 20


def name_subjects(failure: CheckFailure) -> list[str]:
    """The paths, units and processes that a failure is about, each once, in the order in which it names them."""
    names = [name for _, found in failure.items for name in SUBJECT.findall(found)]
    names += [name for expected, _ in failure.items for name in SUBJECT.findall(expected)]
    if INSTANCE.fullmatch(failure.part):
        names.append(f"rigwright-{failure.part}.service")
    return [*dict.fromkeys(names)][:MOST_SUBJECTS]


def ask_authors(target: Any, state_folder: str, failures: Sequence[CheckFailure]) -> dict[str, str]:
    """Label of a failure -> the change with its time and author, for failures that logs of the host explain.

    Args:
        target: pyinfra's connected host.
        state_folder: Rigwright's folder there, which tells its own changes from others'.
        failures: Its failures.
    """
    named = [(one.label, names) for one in failures[:MOST_FAILURES] if (names := name_subjects(one))]
    if not named:
        return {}
    question = {"failures": [names for _, names in named], "state": state_folder}
    program = render_survey_program({FAILURE_AUTHORS.name: (LIMIT, question)})
    try:
        answer = root_shell.run_command(target, COMMAND, program, limit=60.0, most=ANSWER_BYTES)
        found = SurveyAnswers(parse_answers(answer.out)).read(FAILURE_AUTHORS).authors
    except (Drift, ValueError, OSError, root_shell.ConnectionGone):
        return {}
    rows = zip((label for label, _ in named), found, strict=False)
    return {label: strip_control_characters(author)[:LONGEST_AUTHOR] for label, author in rows if author}
