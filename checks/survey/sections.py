"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.accounts import ACCOUNTS
from checks.survey.processes import PROCESSES
from checks.survey.section import Section
from checks.survey.units import UNITS

SECTIONS: tuple[Section[Any], ...] = (ACCOUNTS, UNITS, PROCESSES)
