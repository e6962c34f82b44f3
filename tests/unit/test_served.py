"""What the state script and the goal script print becomes values; a line that is not theirs is refused."""

from __future__ import annotations

import pytest

from rigwright.serving.activation import Goal
from rigwright.serving.live import Kept, Process, Served, parse
from rigwright.serving.units import Slot

WEIGHT = "/srv/models/small/1/small.gguf"
OUTPUT = """\
generation 2 aaaa bbbb 2026-11-02T12:00:00Z -
generation 10 cccc cccc 2026-11-03T12:00:00Z proven
reference 10 /opt/rigwright/engines/plain-1.0-0123456789ab
reference 10 /srv/models/small/1/small.gguf
current generations/10
activating no
job inactive
loaded All instances of this rig, generation 0123456789ab
enabled enabled
elsewhere
reload 0
link rigwright.target /etc/rigwright/current/units/rigwright.target
link rigwright-old.service
link rigwright-code.service /etc/rigwright/current/units/rigwright-code.service
process rigwright-chat.service active running 1 4711 d1 s1 current 8020 cards=0,1
process rigwright-code.service failed failed 5 0 - - stale 0 cards=
folder /opt/rigwright/engines/plain-1.0-0123456789ab
folder /etc/rigwright/credentials/chat.api-key""".splitlines()


def changed(key: str, *lines: str) -> list[str]:
    """The output with the lines of one key replaced."""
    return [line for line in OUTPUT if line.partition(" ")[0] != key] + list(lines)


def test_the_scripts_lines_become_what_a_host_serves() -> None:
    engine = "/opt/rigwright/engines/plain-1.0-0123456789ab"
    assert parse(OUTPUT) == Served(
        generations=(
            Kept(2, "aaaa", "bbbb", "2026-11-02T12:00:00Z", False),
            Kept(10, "cccc", "cccc", "2026-11-03T12:00:00Z", True, frozenset({engine, WEIGHT})),
        ),
        current=10,
        loaded="All instances of this rig, generation 0123456789ab",
        enabled=True,
        links={
            "rigwright.target": "/etc/rigwright/current/units/rigwright.target",
            "rigwright-old.service": "",
            "rigwright-code.service": "/etc/rigwright/current/units/rigwright-code.service",
        },
        processes={
            "rigwright-chat.service": Process("active", "running", 1, 4711, "d1", "s1", True, 8020, frozenset({0, 1})),
            "rigwright-code.service": Process("failed", "failed", 5, 0, "", "", False, 0, frozenset()),
        },
        folders=frozenset({engine, "/etc/rigwright/credentials/chat.api-key"}),
    )


def test_a_generation_is_intact_while_it_is_what_was_written() -> None:
    assert [kept.intact for kept in parse(OUTPUT).generations] == [False, True]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("current ", "current", None),
        ("activating yes", "activating", True),
        ("job active", "job", True),
        ("job activating", "job", True),
        ("job failed", "job", False),
        ("loaded ", "loaded", ""),
        ("enabled no", "enabled", False),
        ("enabled linked", "enabled", False),
        ("reload 2", "reload_needed", True),
    ],
)
def test_each_fact_stands_in_its_own_line(line: str, name: str, value: object) -> None:
    assert getattr(parse(changed(line.partition(" ")[0], line)), name) == value


def test_a_generation_without_its_record_is_damaged() -> None:
    (only,) = parse(changed("generation", "generation 3 - cccc - -")).generations
    assert not only.intact


def test_a_card_that_is_no_number_is_none_of_ours() -> None:
    line = "process rigwright-x.service active running 0 1 d1 - stale 8020 cards=GPU-4af2,1"
    assert parse(changed("process", line)).processes["rigwright-x.service"].cards == frozenset({1})


@pytest.mark.parametrize(
    ("name", "digest", "ours"),
    [
        ("rigwright-code.service", "-", True),  # its file is
        ("rigwright-gone.service", "d1", True),  # its process is
        ("rigwright-backup.service", "-", False),
    ],
)
def test_a_unit_of_such_a_name_is_ours_by_its_file_or_its_process(name: str, digest: str, ours: bool) -> None:
    line = f"process {name} active running 0 1 {digest} - stale 0 cards="
    assert (name in parse(changed("process", line)).processes) == ours


@pytest.mark.parametrize("key", SINGLE)
def test_a_line_that_is_missing_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"no '{key}'"):
        parse(changed(key))


def test_no_output_and_another_programs_output_are_refused() -> None:
    for lines in ([], ["sudo: a password is required"]):
        with pytest.raises(ValueError, match="current"):
            parse(lines)


@pytest.mark.parametrize(
    "line",
    [
        "generation",
        "generation 1",
        "generation one aaaa aaaa 2026-11-02T12:00:00Z -",
        "generation 1 aaaa aaaa 2026-11-02T12:00:00Z",
        "generation 1 aaaa aaaa 2026-11-02 12:00:00 -",
        "reference x /opt",
        "process rigwright-x.service",
        "process rigwright-x.service active running 0 1 - - stale 8020",
        "process rigwright-x.service active running - 1 - - stale 8020 cards=",
        "process rigwright-x.service active running 0 x - - stale 8020 cards=",
        "process rigwright-x.service active running 0 1 - - stale http cards=",
        "process rigwright-x.service active running 0 1 - - stale 8020 cards= more",
    ],
)
def test_a_malformed_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse([*OUTPUT, line])


GOAL = """\
mark 0123456789ab
file rigwright-chat.service
slot rigwright-chat.service d1 s1 8020 cards=0,1
file rigwright-code.service
slot rigwright-code.service d2 s2 8021 cards=
file rigwright.target""".splitlines()


def test_a_generations_lines_become_a_goal() -> None:
    assert parse_goal(3, GOAL) == Goal(
        3,
        "0123456789ab",
        ("rigwright-chat.service", "rigwright-code.service", "rigwright.target"),
        (
            Slot("rigwright-chat.service", "d1", "s1", 8020, frozenset({0, 1})),
            Slot("rigwright-code.service", "d2", "s2", 8021, frozenset()),
        ),
    )


@pytest.mark.parametrize(
    "line",
    [
        "slot",
        "slot rigwright-x.service d1 s1 8020",
        "slot rigwright-x.service d1 s1  cards=",
        "slot rigwright-x.service d1 s1 http cards=",
        "slot rigwright-x.service d1 s1 8020 cards= more",
    ],
)
def test_a_malformed_line_of_a_goal_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        parse_goal(3, [*GOAL, line])
