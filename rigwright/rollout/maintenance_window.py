"""Maintenance windows: the times of the week in which a rollout begins a batch."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

from rigwright.problems import format_value

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = "|".join(DAYS)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
FORM = re.compile(
    rf"(?:(?P<days>(?:{_DAY})(?:-(?:{_DAY}))?(?:,(?:{_DAY})(?:-(?:{_DAY}))?)*) )?"
    rf"(?P<begin>{_TIME})-(?P<end>{_TIME}|24:00)(?: (?P<zone>[A-Za-z][A-Za-z0-9_+/-]{{0,63}}))?"
)
RULE = (
    'days, times and a time zone, such as "Sat 02:00-05:00 Europe/Berlin" or "Mon-Fri,Sun 22:00-04:00"; UTC without a '
    "zone"
)


@dataclass(frozen=True)
class MaintenanceWindow:
    """A time of day on days of the week. One that ends before it begins ends on the next day."""

    days: frozenset[int]
    """0 is Monday."""
    begin: timedelta
    """Since midnight."""
    length: timedelta
    zone: tzinfo

    def find_opening(self, now: datetime) -> tuple[datetime, datetime]:
        """The present window, or else the next one: begin and end."""
        today = now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        # a window in the hour that summer time skips opens a week later
        for offset in range(-1, 16):
            day = today + timedelta(days=offset)
            begin, end = (self._to_moment(day + since) for since in (self.begin, self.begin + self.length))
            if day.weekday() in self.days and now < end and begin < end:
                return begin, end
        raise AssertionError("a window has at least one day")

    def _to_moment(self, local: datetime) -> datetime:
        # by way of UTC: of two moments in one zone Python compares the clock's faces
        return local.replace(tzinfo=self.zone).astimezone(timezone.utc)


def parse_window(text: str) -> MaintenanceWindow:
    """A window from its text.

    Raises:
        ValueError: it has another form, no length, or an unknown zone; the text says which.
    """
    if not (found := FORM.fullmatch(text)):
        raise ValueError(f"{format_value(text)} is refused: must be {RULE}")
    begin, end = (_parse_time(found[key]) for key in ("begin", "end"))
    if begin == end:
        raise ValueError(f"{format_value(text)} is refused: it ends when it begins; for a whole day: 00:00-24:00")
    length = end - begin if end > begin else end - begin + timedelta(days=1)
    try:
        zone = ZoneInfo(found["zone"]) if found["zone"] not in (None, "UTC") else timezone.utc
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{format_value(text)} is refused: this machine has no time zone {found['zone']}; "
            "UTC needs none, others come with the package tzdata"
        ) from None
    return MaintenanceWindow(_parse_days(found["days"]), begin, length, zone)


def _parse_time(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))


def _parse_days(text: str | None) -> frozenset[int]:
    days: set[int] = set()
    for part in (text or f"{DAYS[0]}-{DAYS[-1]}").split(","):
        first, _, last = part.partition("-")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        # Sat-Mon goes over the end of the week
        days |= {number % 7 for number in range(begin, (end if end >= begin else end + 7) + 1)}
    return frozenset(days)


def _check_window(text: str) -> str:
    parse_window(text)
    return text


WindowText = Annotated[str, AfterValidator(_check_window)]


def find_next_opening(windows: Collection[str], now: datetime) -> datetime | None:
    """When the next window opens; None while one is open, and without windows."""
    openings = [parse_window(one).find_opening(now)[0] for one in windows]
    first = min(openings, default=None)
    return first if first and first > now else None
