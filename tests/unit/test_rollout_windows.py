"""Maintenance windows: their text, and when they open."""

from datetime import datetime, timezone

import pytest

from rigwright.rollout.maintenance_window import find_next_opening, parse_window


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("windows", "now", "opening"),
    [
        ([], "2026-11-28T12:00", None),
        (["Sat 02:00-05:00"], "2026-11-28T02:00", None),
        (["Sat 02:00-05:00"], "2026-11-28T04:59", None),
        (["Sat 02:00-05:00"], "2026-11-28T05:00", "2026-12-05T02:00"),
        (["Sat 02:00-05:00"], "2026-11-27T02:00", "2026-11-28T02:00"),
        (["Sat 02:00-05:00 UTC"], "2026-11-27T02:00", "2026-11-28T02:00"),
        (["Sat 02:00-05:00 Europe/Berlin"], "2026-11-28T00:59", "2026-11-28T01:00"),
        # in summer Berlin is two hours ahead of UTC
        (["Sat 02:00-05:00 Europe/Berlin"], "2026-06-05T12:00", "2026-06-06T00:00"),
        # 02:00 to 03:00 does not exist on the day on which summer time begins
        (["Sun 02:00-03:00 Europe/Berlin"], "2026-03-22T02:00", "2026-04-05T00:00"),
        (["Sun 02:00-03:00 Europe/Berlin"], "2026-03-27T12:00", "2026-04-05T00:00"),
        # over midnight, and over the end of a week
        (["Sun 22:00-04:00"], "2026-11-30T03:59", None),
        (["Sun 22:00-04:00"], "2026-11-30T04:00", "2026-12-06T22:00"),
        (["Sat-Mon 10:00-11:00"], "2026-11-30T11:00", "2026-12-05T10:00"),
        (["Mon-Wed,Fri 10:00-11:00"], "2026-12-02T11:00", "2026-12-04T10:00"),
        (["10:00-11:00"], "2026-12-02T11:00", "2026-12-03T10:00"),
        (["00:00-24:00"], "2026-12-02T23:59", None),
        (["Sat 02:00-05:00", "Wed 01:00-02:00"], "2026-11-29T00:00", "2026-12-02T01:00"),
        (["Sat 02:00-05:00", "Wed 01:00-02:00"], "2026-12-02T01:30", None),
    ],
)
def test_the_next_opening(windows: list[str], now: str, opening: str | None) -> None:
    assert find_next_opening(windows, at(now)) == (at(opening) if opening else None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be days, times and a time zone"),
        ("Saturday 02:00-05:00", "must be days"),
        ("Sat 2:00-05:00", "must be days"),
        ("Sat 02:00-25:00", "must be days"),
        ("24:00-02:00", "must be days"),
        ("Sat 02:00-05:00 ../etc/passwd", "must be days"),
        ("Sat 02:00-02:00", "it ends when it begins"),
        ("Sat 02:00-05:00 Europe/Berlinn", "this machine has no time zone Europe/Berlinn"),
        ("Sat 02:00-05:00 Europe", "this machine has no time zone Europe"),
        ("Sat 02:00-05:00\n", "must be days"),
    ],
)
def test_another_text_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="is refused") as refused:
        parse_window(text)
    assert reason in str(refused.value)
