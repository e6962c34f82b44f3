"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.accounts import ACCOUNTS
from checks.survey.clients import REQUESTS
from checks.survey.firewall import FIREWALL
from checks.survey.gates import GATES
from checks.survey.reach import REACH
from checks.survey.section import Section

SECTIONS: tuple[Section[Any], ...] = (ACCOUNTS, GATES, REQUESTS, REACH, FIREWALL)
