"""Maintenance windows: their text, and when they open."""

from datetime import datetime, timezone

import pytest

from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.maintenance_window import RULE, find_common_opening
from rigwright.problems import Invalid, format_value
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock


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
    assert find_common_opening([windows], at(now)) == at(opening or now)


@pytest.mark.parametrize(
    ("boxes", "opening"),
    [
        ([[], []], "2026-11-28T12:00"),
        ([["Sat 02:00-05:00"], []], "2026-12-05T02:00"),
        ([["Sat 02:00-05:00"], ["Sat 04:00-06:00 Europe/Berlin"]], "2026-12-05T03:00"),
        ([["Sat 02:00-05:00", "Mon 02:00-05:00"], ["Mon 04:00-06:00"]], "2026-11-30T04:00"),
        ([["Sat 02:00-05:00"], ["00:00-24:00"], ["Sat-Sun 04:59-06:00"]], "2026-12-05T04:59"),
        ([["Sat 02:00-05:00"], ["Sat 05:00-06:00"]], None),
        ([["Sat 02:00-05:00"], ["Sun 02:00-05:00"]], None),
    ],
)
def test_the_next_opening_of_several_boxes(boxes: list[list[str]], opening: str | None) -> None:
    assert find_common_opening(boxes, at("2026-11-28T12:00")) == (at(opening) if opening else None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", f"must be {RULE}"),
        ("Saturday 02:00-05:00", f'must be {RULE}; did you mean "Sat 02:00-05:00"?'),
        ("tue - Thursday, sun 2:00 - 5:00 UTC", f'must be {RULE}; did you mean "Tue-Thu,Sun 02:00-05:00 UTC"?'),
        ("Sat 02:00-25:00", f"must be {RULE}"),
        ("24:00-02:00", f"must be {RULE}"),
        ("Sat 02:00-05:00 ../etc/passwd", f"must be {RULE}"),
        ("Sat 02:00-02:00", f"it ends when it begins, and a whole day is 00:00-24:00; must be {RULE}"),
        (
            "Sat 02:00-05:00 Europe/Berlinn",
            f'this machine has no time zone Europe/Berlinn; did you mean "Europe/Berlin"?; must be {RULE}',
        ),
        ("Sat 02:00-05:00 Europe", "this machine has no time zone Europe; "),
        ("Sat 02:00-05:00\n", f'must be {RULE}; did you mean "Sat 02:00-05:00"?'),
        ("Sat 02:00-05:00" + " " * 200, f"must be {RULE}"),
    ],
)
def test_another_text_is_refused(text: str, reason: str) -> None:
    data = {"maintenance_windows": ["01:00-02:00", text]}
    with pytest.raises(Invalid) as refused:
        resolve_rig("/boxes/rig.py", "box", data, Catalog(), Lock.load([ROOT / "locks"]))
    (problem,) = refused.value.problems
    assert problem.key == "box.maintenance_windows[1]"
    assert reason.partition("; must")[0] in problem.text if reason.endswith("; ") else problem.text.endswith(reason)
    assert not text or problem.text.startswith(f"{format_value(text)} is refused: ")


def test_all_mistakes_are_reported_at_once() -> None:
    data = {"maintenance_windows": ["Sat", "Sun"], "keep_generations": 0}
    with pytest.raises(Invalid) as refused:
        resolve_rig("/boxes/rig.py", "box", data, Catalog(), Lock.load([ROOT / "locks"]))
    keys = [one.key for one in refused.value.problems]
    assert keys == ["box.keep_generations", "box.maintenance_windows[0]", "box.maintenance_windows[1]"]


def test_one_text_in_place_of_a_list_is_refused_with_an_example() -> None:
    with pytest.raises(Invalid, match=r'must be a list, such as \["Sat 02:00-05:00 Europe/Berlin"\]'):
        resolve_rig("/boxes/rig.py", "box", {"maintenance_windows": "Sat 02:00-05:00"}, Catalog(), Lock({}))


def test_another_name_of_the_key_is_refused_with_its_name() -> None:
    with pytest.raises(Invalid, match='unknown key; did you mean "maintenance_windows"'):
        resolve_rig("/boxes/rig.py", "box", {"windows": []}, Catalog(), Lock({}))
