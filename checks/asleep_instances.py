"""Checks of instances on demand that are asleep: those of a process are skipped."""

from __future__ import annotations

import pytest

from checks.check_items import item_params, read_check_mark
from checks.survey.answers import SurveyAnswers
from checks.survey.health import HEALTH
from rigwright.model.instance import Instance

HOLD_ASLEEP = frozenset({"S01", "S03", "S04", "S07", "S09", "S11", "S26"})
"""Checks of one instance that hold while it is asleep."""


def skip_asleep(item: pytest.Item, survey: SurveyAnswers | None) -> None:
    """Skip a check of the process of an instance that is asleep.

    Args:
        item: The check.
        survey: Its host.
    """
    params = item_params(item)
    found = next((params[name] for name in ("instance", "offered") if isinstance(params.get(name), Instance)), None)
    if found is None or not found.is_on_demand or survey is None or read_check_mark(item)["identifier"] in HOLD_ASLEEP:
        return
    look = survey.read(HEALTH)
    unit = look.units.get(found.unit)
    if unit and unit.active == "inactive" and found.name not in look.stopped:
        pytest.skip("it is asleep: the next request loads it")
