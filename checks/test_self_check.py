"""The check that a box makes of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from checks import DEPLOY, check, expect
from checks.drift_text import expect_none, format_day
from checks.remedy import host_command, instruction, remove_paths, show_log
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.self_check import (
    SELF_CHECK,
    describe_stale,
    describe_stale_full_read,
    expected_files,
    find_disagreements,
)
from checks.survey.units import UNITS
from rigwright.monitoring.self_check import FULL_READ_HOURS, SERVICE, STALE_MINUTES, running_units


@check(
    "Y01",
    "the box's self-check runs, and agrees with this check",
    severity="low",
    why="a box without self-checks reports no fault between two checks from the controller",
    blind="failures of the box's own check that are younger than six minutes",
)
def test_result(survey: SurveyAnswers, scope: SurveyScope, verdicts: Mapping[str, str]) -> None:
    found, units = survey.read(SELF_CHECK), survey.read(UNITS)
    states = {name: units.property_value(name, "ActiveState") for name in running_units(scope.rig)}
    idle = (f"{name} {state or 'not there'}" for name, state in states.items() if state != "active")
    expect_none(idle, "active units that look after the box", DEPLOY)
    stale = describe_stale(found)
    start = host_command("systemctl start {}", SERVICE)
    expect(stale, f"a run in the last {STALE_MINUTES} minutes", start + show_log(SERVICE), holds=not stale)
    disagreements = find_disagreements(found, verdicts, units.property_value(SERVICE, "ActiveState"))
    expect_none(
        (
            f"{one.check} failing there since {format_day(one.since)} ({one.text}), and not here"
            for one in disagreements
        ),
        "a last run that agrees",
        start,
    )


@check(
    "Y02",
    "the program and the declaration of the self-check are as deployed",
    severity="high",
    why="a changed self-check can report success on a faulty box",
)
def test_files(survey: SurveyAnswers, scope: SurveyScope) -> None:
    found, wanted = survey.read(SELF_CHECK).files, expected_files(scope)
    # a box without the inventory's waivers reports more, not less: they need no deploy
    unwaived = expected_files(replace(scope, rig=replace(scope.rig, waivers=())))
    wrong = [path for path in wanted if found.get(path) not in (wanted[path], unwaived[path])]
    expect_none((f"another {path}" for path in wrong), "its files as deployed", DEPLOY)
    others = survey.read(SELF_CHECK).others
    expect_none((f"{path} beside them" for path in others), "its files alone", remove_paths(*others))


@check(
    "Y03",
    "the box reads all fingerprinted files each night, and finds the bytes that the fingerprint has",
    severity="high",
    why="a raw write to the disk changes a program without a trace in its inode, size and times",
    blind="files of other users than root, files over 1 GiB, and what no `check` has read before",
)
def test_full_read(survey: SurveyAnswers) -> None:
    read = survey.read(SELF_CHECK)
    found, stale = read.result, describe_stale_full_read(read)
    start = host_command("systemctl start {}", SERVICE) + show_log(SERVICE)
    expect(stale, f"a complete read in the last {FULL_READ_HOURS} hours", start, holds=not stale)
    texts = [one.text for one in found.failing if one.check == "Y03"] if found else []
    cure = instruction("restore each file from its package or a backup, or review it, touch it and accept it")
    expect_none(texts, "files with the bytes that the fingerprint has", cure)
