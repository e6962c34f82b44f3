"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.accounts import ACCOUNTS
from checks.survey.ground import GROUND
from checks.survey.ours import OURS
from checks.survey.section import Section
from checks.survey.units import UNITS
from checks.survey.weights import WEIGHTS

SECTIONS: tuple[Section[Any], ...] = (ACCOUNTS, UNITS, WEIGHTS, OURS, GROUND)
