"""Boxes that connect after an interrupt, or refuse root, next to others with results."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from checks.connections import ConnectedHost
from cli import bench_stress, check_serving
from cli.exit_codes import HostUnreached, InvalidRequest
from cli.instance_access import INTERRUPTED, ClientAccess
from roles.client import ClientJobLost
from tests.unit.samples import sample_instance, sample_rig

INSTANCE = sample_instance()
RIG = sample_rig(INSTANCE)


def make_box(name: str) -> ConnectedHost:
    return ConnectedHost(name, RIG, None)


def test_a_box_that_connects_after_an_interrupt_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_serving, "observe_box", lambda *_: pytest.fail("the box was asked"))
    interrupt: Any = SimpleNamespace(asked=True)
    (told,) = check_serving.verify_box(
        make_box("box"), [INSTANCE], ClientAccess(), interrupt, lambda *_: None, "rig.py"
    )
    assert told.ended == INTERRUPTED


def run_stress(
    monkeypatch: pytest.MonkeyPatch, lock: Callable[[ConnectedHost], None], interrupted: bool = False
) -> tuple[int, dict[str, Any]]:
    """Run `bench stress --json` on three boxes whose clients are lost; returns the exit status and the report."""

    @contextmanager
    def hold(box: ConnectedHost, _doing: str) -> Iterator[None]:
        lock(box)
        yield

    @contextmanager
    def lose_client(*_: object) -> Iterator[Any]:
        raise ClientJobLost("no job in this test")
        yield

    def map_boxes(_inventory: str, _limit: object, _names: object, look: Callable[[Any], Any]) -> Any:
        return [look(make_box(name)) for name in ("a", "b", "c")], {}

    interrupt = SimpleNamespace(asked=interrupted, open_client=lose_client, describe_error=str)
    monkeypatch.setattr(bench_stress, "InterruptHandler", lambda: interrupt)
    monkeypatch.setattr(bench_stress, "hold_deploy_lock", hold)
    monkeypatch.setattr(bench_stress, "map_boxes", map_boxes)
    monkeypatch.setattr(ConnectedHost, "resolve_desired", lambda _: pytest.fail("no probe in this test"))
    done = CliRunner().invoke(bench_stress.stress, [__file__, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_no_box_is_locked_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    status, report = run_stress(monkeypatch, lambda box: pytest.fail("the box was locked"), interrupted=True)
    assert status == 130
    assert [box["instances"][0]["ended"] for box in report["hosts"]] == [INTERRUPTED] * 3


def test_a_box_that_refuses_root_loses_no_result_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def lock(box: ConnectedHost) -> None:
        if box.name == "b":
            raise HostUnreached("b: refused: no root")
        raise InvalidRequest("held")

    status, report = run_stress(monkeypatch, lock)
    assert status == 3
    a, b, c = report["hosts"]
    assert (b["verdict"], b["why"], b["instances"]) == ("not reached", "refused: no root", [])
    assert [one["instances"][0]["ended"] for one in (a, c)] == ["held", "held"]
