"""All sections of the survey."""

from __future__ import annotations

from typing import Any

from checks.survey.accounts import ACCOUNTS
from checks.survey.boot import BOOT
from checks.survey.cards import CARDS
from checks.survey.kernel import KERNEL
from checks.survey.packages import ARCHIVE, FILES, PACKAGES
from checks.survey.section import Section
from checks.survey.settings import SETTINGS

SECTIONS: tuple[Section[Any], ...] = (ACCOUNTS, KERNEL, BOOT, SETTINGS, CARDS, PACKAGES, FILES, ARCHIVE)
