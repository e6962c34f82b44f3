"""Checks of instances on demand that are not loaded: those of a process are skipped."""

from __future__ import annotations

import pytest

from checks.host_checks import HostCheck
from checks.survey.answers import SurveyAnswers
from checks.survey.health import HEALTH
from rigwright.model.instance import Instance

NOT_LOADED = ("inactive", "activating", "deactivating")
"""States of the unit of an instance on demand whose process cannot be checked: it is asleep, starts for a client, or
stops for another instance."""
HOLD_ASLEEP = frozenset({"S01", "S03", "S04", "S07", "S09", "S11", "S15", "S26"})
"""Checks of one instance that hold while it is not loaded."""


def is_asleep_for(identifier: str, part: object, survey: SurveyAnswers | None) -> bool:
    """Whether a check is about the process of an instance that is not loaded.

    Args:
        identifier: The check.
        part: The part of the host that it is about.
        survey: The host.
    """
    if not isinstance(part, Instance) or not part.is_on_demand or survey is None or identifier in HOLD_ASLEEP:
        return False
    look = survey.read(HEALTH)
    unit = look.units.get(part.unit)
    return bool(unit and unit.active in NOT_LOADED and part.name not in look.stopped)


def skip_asleep(check: HostCheck, survey: SurveyAnswers | None) -> None:
    """Skip a check of the process of an instance that is not loaded."""
    about, identifier = check.function.about, check.function.mark["identifier"]
    if about in ("instance", "offered") and is_asleep_for(identifier, check.params[about], survey):
        pytest.skip("it is not loaded now: requests load it")
