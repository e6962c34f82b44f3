"""Taking the survey of a host, in one command over the connection that there is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, cast

from checks.survey.answers import SurveyAnswers, read_survey
from checks.survey.health import HEALTH
from checks.survey.section import SurveyScope
from checks.survey.sections import list_sections
from checks.survey.survey_program import (
    BLANK_HOST,
    COMMAND,
    MOST,
    NO_PYTHON,
    collect_questions,
    describe_failed_survey,
    parse_probe_line,
    parse_read_line,
    parse_waiting_line,
    render_further_questions,
    render_survey_program,
    unpack_answers,
)
from rigwright.model.rig import Rig
from rigwright.model.shared_results import share_results
from rigwright.operate import instance_health
from rigwright.plan.plan_inputs import TargetState
from roles import root_shell

SURVEY_PATIENCE = 60.0
"""Seconds in which a host runs its probe, and in which it prints a line while its sections are under way."""


@share_results
def _collect_early_questions(
    rig: Rig, deep: bool, compares_entries: bool
) -> tuple[float, Mapping[str, tuple[float, object]]]:
    """The time limit of the longest section in seconds, and the questions that are asked at once."""
    # these sections do not use the target state
    scope = SurveyScope(rig, cast("TargetState", None), deep, compares_entries)
    limit = max(section.time_limit(scope) for section in list_sections())
    return limit, collect_questions(scope, list_sections("early"))


@lru_cache(8)
def _digest_begin(begin: str) -> Any:
    """hashlib's SHA-256 of a program."""
    return hashlib.sha256(begin.encode())


def take_survey(
    target: Any,
    rig: Rig,
    probe: str,
    desired: Callable[[list[str]], TargetState],
    *,
    deep: bool = False,
    compares_entries: bool = True,
    patience: float = SURVEY_PATIENCE,
    wait: Callable[[list[str]], None] = lambda sections: None,
    read: Callable[[int], None] = lambda number: None,
) -> SurveyAnswers:
    """Ask a host all that its rig gives reason to.

    Args:
        target: pyinfra's connected host.
        rig: Its target.
        probe: A script for it.
        desired: The target state of the rig there, by that output; its errors are raised here.
        deep: Whether all bytes are to be read.
        compares_entries: Whether entries of the host are compared with accepted ones.
        patience: Seconds until its probe has ended, and between two lines after that.
        wait: Gets the names of sections that have not answered after a second, and again as they become fewer.
        read: Gets the bytes that sections have read, once a second after the first.

    Raises:
        ValueError: the survey was not run to its end; its text says what the host has said instead.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    limit, questions = _collect_early_questions(rig, deep, compares_entries)
    begin = render_survey_program(questions, probe, (section.name for section in list_sections("probed")))

    sent = _digest_begin(begin).copy()

    def rest(line: bytes) -> str | None:
        found = parse_probe_line(line)
        if found is None:
            return None
        scope = SurveyScope(rig, desired(found), deep, compares_entries)
        questions = render_further_questions(collect_questions(scope, list_sections("probed")))
        sent.update(questions.encode())
        return questions

    def hear(line: bytes) -> None:
        if names := parse_waiting_line(line):
            wait(names)
        elif (number := parse_read_line(line)) is not None:
            read(number)

    # sections begin at once, and the program prints a line each second until the last of them has ended
    limits = {"limit": patience, "begin": patience, "whole": 2 * patience + limit}
    answer = root_shell.run_command(target, COMMAND, begin, **limits, most=MOST, rest=rest, heard=hear)
    if answer.status == BLANK_HOST:
        return SurveyAnswers({HEALTH.name: {"told": asdict(instance_health.BLANK_HOST_FACTS)}}, NO_PYTHON)
    try:
        return read_survey(unpack_answers(answer.out), sent.hexdigest())
    except ValueError as error:
        raise ValueError(describe_failed_survey(error, answer.complaint, answer.status)) from None
