"""Maintenance windows: the times of the week in which a rollout begins a batch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rigwright.name_suggestions import suggestion
from rigwright.problems import CausedError

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

NEAR_LENGTH = 100
"""Characters of a refused text that is corrected."""
HORIZON = timedelta(days=60)
"""In which windows of several boxes are searched for a common time."""


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
        CausedError: it has another form, no length, or an unknown zone; with the rule of all windows.
    """
    if not (found := FORM.fullmatch(text)):
        near = _correct_window(text) if len(text) <= NEAR_LENGTH else ""
        raise CausedError(RULE + (f'; did you mean "{near}"?' if near and FORM.fullmatch(near) else ""), "")
    begin, end = (_parse_time(found[key]) for key in ("begin", "end"))
    if begin == end:
        raise CausedError(RULE, "it ends when it begins, and a whole day is 00:00-24:00")
    length = end - begin if end > begin else end - begin + timedelta(days=1)
    return MaintenanceWindow(_parse_days(found["days"]), begin, length, _load_zone(found["zone"] or "UTC"))


def _load_zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = suggestion(name, available_timezones()) or "; zones come with the package tzdata"
        raise CausedError(RULE, f"this machine has no time zone {name}{near}") from None


def _correct_window(text: str) -> str:
    """The window that a text of another form may mean: `saturday 2:00 - 5:00` for `Sat 02:00-05:00`."""
    short = re.sub(rf"(?i)\b({_DAY})[a-z]*", lambda found: found[1].capitalize(), text.strip())
    return re.sub(r"\b([0-9]:[0-9])", r"0\1", re.sub(r"\s*([,-])\s*", r"\1", short))


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


def find_common_opening(boxes: Iterable[Collection[str]], now: datetime) -> datetime | None:
    """The next moment within windows of each box, `now` if it is one; None if there is none within the horizon.

    Args:
        boxes: The windows of each; a box without windows is always open.
        now: The present moment.
    """
    rules = [[parse_window(text) for text in windows] for windows in {tuple(one) for one in boxes if one}]
    moment = now
    while moment < now + HORIZON:
        # until the last of their next openings, one of them is closed
        later = max((min(one.find_opening(moment)[0] for one in windows) for windows in rules), default=moment)
        if later <= moment:
            return moment
        moment = later
    return None
