"""Reasons of a gate, and the durations that a rollout expects."""

import json

import pytest
from pydantic import ValidationError

from checks.connections import HostReadFailed
from cli.rollout_plan import count_ready
from cli.rollout_steps import describe_check_fault, refuse_generations
from rigwright.rollout.state_file import BoxRecord
from roles.step_durations import StepDurations


def make_report(*verdicts: str, host: str = "not as declared") -> str:
    rows = [
        {"id": f"S0{number}", "title": "a title", "verdict": one, "found": "a file", "note": ""}
        for number, one in enumerate(verdicts)
    ]
    return json.dumps({"hosts": [{"verdict": host, "checks": rows}]})


def test_a_reason_names_the_first_failing_checks() -> None:
    assert describe_check_fault(make_report("ok", "fail", "changed")) == "1 check: S01 a title: a file"
    assert describe_check_fault(make_report("changed")) == "1 check: S00 a title: a file"
    assert describe_check_fault(make_report(*["fail"] * 5)).endswith("S02 a title: a file; and 2 more")
    assert describe_check_fault(make_report(host="not reached")) == "cannot be reached"


def test_checks_of_the_lock_do_not_fail_the_gate_of_a_driver_rollback() -> None:
    others = ("S00", "S01")
    assert describe_check_fault(make_report("fail", "changed", "ok"), others) == ""
    assert describe_check_fault(make_report("fail", "ok", "fail"), others) == "1 check: S02 a title: a file"
    assert describe_check_fault(make_report("fail", host="not reached"), others) == "cannot be reached"


@pytest.mark.parametrize("report", ["", "[]", "{}", '{"hosts": [{}]}', '{"hosts": 1}', make_report("fail")[:-9]])
def test_a_report_that_cannot_be_read_fails_the_gate(report: str) -> None:
    assert describe_check_fault(report) == "check: its report cannot be read"


def test_expected_seconds_come_from_the_roles_with_pending_steps() -> None:
    durations = StepDurations(
        {"Serving: Activate": {"a": {"": 4.0}, "b": {"": 8.0}}, "NVIDIA driver: Driver": {"b": {"": 60.0}}}
    )
    assert durations.expected_of_roles({"serving"}, "a") == 4.0
    assert durations.expected_of_roles({"nvidia_driver"}, "a") == 60.0
    assert durations.expected_of_roles({"serving", "nvidia_driver"}, "b") == 68.0
    assert durations.expected_of_roles({"weights"}, "a") is None


def test_models_without_a_ready_instance_are_absent() -> None:
    models = {"chat": ("one", "two"), "code": ("three",)}
    assert count_ready(models, ["one", "two"]) == {"chat": 2}


@pytest.mark.parametrize("number", [0, 10**9 + 1])
def test_a_generation_that_no_state_file_takes_is_refused(number: int) -> None:
    refuse_generations("one", None, 1, 10**9)
    with pytest.raises(ValidationError):
        BoxRecord(generation=number)
    with pytest.raises(HostReadFailed, match=f"one: generation {number} is refused: must be between 1 and 1000000000"):
        refuse_generations("one", 1, number)
