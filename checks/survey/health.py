"""One look at how instances are doing: the survey's program with this one question, typed and bounded as its others."""

from __future__ import annotations

from typing import Any

from checks.survey.carry import COMMAND, answers, program
from checks.survey.section import Section
from checks.survey.taken import Survey
from rigwright.model.rig import Rig
from rigwright.operate import health
from roles import root

LIMIT = 8.0  # seconds for all of it, which takes less than one
MOST = 4 << 20  # bytes of the answer
HEALTH: Section[health.Look] = Section("health", health.Look, lambda scene: health.asked(scene.rig), limit=LIMIT / 2)


def look(target: Any, rig: Rig | None, *, ask: bool = True) -> health.Look:
    """Look at a host; of one whose rig is not known, what runs there is told, and nothing is asked.

    Args:
        target: pyinfra's connected host.
        rig: What it is to be.
        ask: Whether its engines are asked for a token.

    Raises:
        ValueError: it does not answer what was asked; the text says what it has said instead.
        checks.Drift: its answer is of another shape.
        roles.root.Gone: the connection is gone.
    """
    asked = {HEALTH.name: (LIMIT / 2, health.asked(rig) | ({} if ask else {"asks": []}))}
    answer = root.run(target, COMMAND, program(asked), limit=LIMIT, whole=LIMIT, most=MOST)
    try:
        return Survey(answers(answer.out)).read(HEALTH)
    except ValueError as error:
        raise ValueError(f"{error}: {answer.complaint or f'exit status {answer.status}'}") from None
