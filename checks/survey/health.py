"""One look at how instances are doing: the survey's program with this one question, typed and bounded as its others."""

from __future__ import annotations

from typing import Any

from checks.survey.answers import SurveyAnswers
from checks.survey.section import Section
from checks.survey.survey_program import (
    BLANK_HOST,
    COMMAND,
    describe_failed_survey,
    parse_answers,
    render_survey_program,
)
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.operate import instance_health
from rigwright.operate.instance_health import state_facts
from rigwright.operate.instance_state import PATIENCE, AssessedState, assess_state, declared_processes
from rigwright.serving.generation import Generation
from roles import root_shell

LIMIT = 4.0 + PATIENCE  # seconds for the program, which takes less than one of an engine that answers
WHOLE = LIMIT + 4.0  # seconds for the answer to arrive
MOST = 4 << 20  # bytes of the answer
HEALTH: Section[instance_health.HealthFacts] = Section(
    "health",
    instance_health.HealthFacts,
    lambda scene: instance_health.health_request(scene.rig, evidence=False),
    limit=LIMIT,
    blind="earlier behaviour of an instance",
    start_order=2,
)


def observe_state(survey: SurveyAnswers, instance: Instance, generation: Generation) -> AssessedState:
    """The state of an instance, by the look that a survey has taken.

    Args:
        survey: The survey.
        instance: The instance.
        generation: The declared generation.

    Raises:
        checks.Drift: the host has not answered it.
    """
    facts = state_facts(survey.read(HEALTH), instance, declared_processes(generation).get(instance.unit))
    return assess_state(instance.name, facts)


def read_health(target: Any, rig: Rig | None, *, ask: bool = True) -> instance_health.HealthFacts:
    """Look at a host; for an unknown rig, its processes are reported, and nothing is asked.

    Args:
        target: pyinfra's connected host.
        rig: Its target.
        ask: Whether its engines are asked for a token.

    Raises:
        ValueError: it does not answer what was asked; the text says what it has said instead.
        checks.Drift: its answer is of another shape.
        roles.root_shell.ConnectionGone: the connection is gone.
    """
    asked = {HEALTH.name: (LIMIT, instance_health.health_request(rig) | ({} if ask else {"asks": []}))}
    answer = root_shell.run_command(target, COMMAND, render_survey_program(asked), limit=WHOLE, whole=WHOLE, most=MOST)
    if answer.status == BLANK_HOST:
        return instance_health.BLANK_HOST_FACTS
    try:
        return SurveyAnswers(parse_answers(answer.out)).read(HEALTH)
    except ValueError as error:
        raise ValueError(describe_failed_survey(error, answer.complaint, answer.status)) from None
