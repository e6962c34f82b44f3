"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.about import ABOUT
from checks.survey.accounts import ACCOUNTS
from checks.survey.section import Section
from checks.survey.units import UNITS

SECTIONS: tuple[Section[Any], ...] = (ABOUT, ACCOUNTS, UNITS)
