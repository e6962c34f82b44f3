"""Storing accepted entries on their host: serial and digest, and copies for differences, which never leave it."""

from __future__ import annotations

from typing import Any, cast

from checks.change_review.accepted_entries import HostAcceptance
from checks.survey.answers import SurveyAnswers
from checks.survey.fingerprint import ACCEPTED_COPIES, acceptance_question
from checks.survey.section import SurveyScope
from checks.survey.survey_program import COMMAND, MOST, parse_answers, render_survey_program
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import TargetState
from roles import root_shell


class EntriesChanged(Exception):
    """Entries of a host are others than those that were reviewed: it has stored nothing. The text names them."""


def store_accepted(target: Any, rig: Rig, accepted: HostAcceptance) -> None:
    """Store serial, digest and copies on a host.

    Args:
        target: pyinfra's connected host.
        rig: Its rig.
        accepted: Its accepted entries.

    Raises:
        EntriesChanged: the host has others by now, or knows a later acceptance.
        ValueError: the host does not answer; the text says what it answers instead.
        checks.Drift: its answer is of another shape.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    scope = SurveyScope(rig, cast("TargetState", None))  # entries depend on no target state
    entries = [(kind, key, value) for kind, listed in accepted.entries.items() for key, value in listed.items()]
    question = acceptance_question(scope, accepted.serial, accepted.digest, entries)
    limit = ACCEPTED_COPIES.time_limit(scope)
    program = render_survey_program({ACCEPTED_COPIES.name: (limit, question)})
    answer = root_shell.run_command(target, COMMAND, program, limit=2 * limit, most=MOST)
    try:
        stored = SurveyAnswers(parse_answers(answer.out)).read(ACCEPTED_COPIES)
    except ValueError as error:
        raise ValueError(f"{error}: {answer.complaint or f'exit status {answer.status}'}") from None
    if stored.changed:
        raise EntriesChanged(", ".join(f"{kind} {key}" for kind, key in stored.changed))
    if (stored.serial, stored.digest) != (accepted.serial, accepted.digest):
        raise EntriesChanged(f"it knows accepted entries {stored.serial} by now")
