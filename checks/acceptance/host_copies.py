"""Storing accepted entries on their host: serial and digest, and copies for differences, which never leave it."""

from __future__ import annotations

from typing import Any

from checks.acceptance.accepted_entries import AcceptedEntries
from checks.survey.answers import SurveyAnswers
from checks.survey.fingerprint import ACCEPTED_COPIES
from checks.survey.survey_program import COMMAND, MOST, parse_answers, render_survey_program
from roles import root_shell

LIMIT = 60.0
"""Seconds that a host may take to read and copy its entries."""


def store_accepted(target: Any, accepted: AcceptedEntries) -> None:
    """Store serial, digest and copies on a host.

    Args:
        target: pyinfra's connected host.
        accepted: Its accepted entries.

    Raises:
        ValueError: the host does not answer; the text says what it answers instead.
        checks.Drift: the host has not stored them; `found` says why.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    entries = [[kind, key, value] for kind, listed in accepted.entries.items() for key, value in listed.items()]
    question = {"serial": accepted.serial, "digest": accepted.digest, "entries": entries}
    program = render_survey_program({ACCEPTED_COPIES.name: (LIMIT, question)})
    answer = root_shell.run_command(target, COMMAND, program, limit=2 * LIMIT, most=MOST)
    try:
        SurveyAnswers(parse_answers(answer.out)).read(ACCEPTED_COPIES)
    except ValueError as error:
        raise ValueError(f"{error}: {answer.complaint or f'exit status {answer.status}'}") from None
