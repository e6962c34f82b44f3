"""Taking the survey of a host, in one command over the connection that there is."""

from __future__ import annotations

from typing import Any

from checks.survey.carry import COMMAND, MOST, answers, asked, program
from checks.survey.section import Scene
from checks.survey.sections import SECTIONS
from checks.survey.taken import Survey
from roles import root


def take(target: Any, scene: Scene) -> Survey:
    """Ask a host all that its rig gives reason to.

    Raises:
        ValueError: the survey was not run to its end; its text says what the host has said instead.
        roles.root.Gone: the connection is gone.
    """
    questions = asked(scene, SECTIONS)
    limit = max(limit for limit, _ in questions.values())
    answer = root.run(target, COMMAND, program(questions), limit=2 * limit, whole=3 * limit, most=MOST)
    try:
        return Survey(answers(answer.out))
    except ValueError as error:
        raise ValueError(f"{error}: {answer.complaint or f'exit status {answer.status}'}") from None
