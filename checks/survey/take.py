"""Taking the survey of a host, in one command over the connection that there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from checks.survey.carry import COMMAND, MOST, answers, asked, more, probed, program, waiting
from checks.survey.section import Scene
from checks.survey.sections import EARLY, PROBED, SECTIONS
from checks.survey.taken import Survey
from rigwright.model.rig import Rig
from rigwright.plan.desired import Desired
from roles import root


def take(
    target: Any,
    rig: Rig,
    probe: str,
    desired: Callable[[list[str]], Desired],
    *,
    deep: bool = False,
    wait: Callable[[list[str]], None] = lambda sections: None,
) -> Survey:
    """Ask a host all that its rig gives reason to.

    Args:
        target: pyinfra's connected host.
        rig: What it is to be.
        probe: A script for it.
        desired: What the rig comes to there, by what that prints; what this raises is raised here.
        deep: Whether all bytes are to be read.
        wait: Gets the names of sections that have not answered after a second, and again as they become fewer.

    Raises:
        ValueError: the survey was not run to its end; its text says what the host has said instead.
        roles.root.Gone: the connection is gone.
    """
    # EARLY have nothing of what the rig comes to
    early = Scene(rig, cast("Desired", None), deep)
    limit = max(section.seconds(early) for section in SECTIONS)
    begin = program(asked(early, EARLY), probe, (section.name for section in PROBED))

    def rest(line: bytes) -> str | None:
        found = probed(line)
        return None if found is None else more(asked(Scene(rig, desired(found), deep), PROBED))

    def hear(line: bytes) -> None:
        if names := waiting(line):
            wait(names)

    limits = {"limit": 2 * limit, "whole": 3 * limit}
    answer = root.run(target, COMMAND, begin, **limits, most=MOST, rest=rest, heard=hear)
    try:
        return Survey(answers(answer.out))
    except ValueError as error:
        raise ValueError(f"{error}: {answer.complaint or f'exit status {answer.status}'}") from None
