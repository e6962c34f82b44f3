"""The plan of a rollout: drivers that can go back, the openings of batches, and the wait for instances."""

from dataclasses import replace
from datetime import datetime, timezone
from unittest.mock import Mock

import pytest

from cli import rollout_steps
from cli.rollout_plan import find_driver_faults, print_batches
from cli.rollout_steps import await_started_instances
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverRefusal
from rigwright.rollout.batch_plan import RolloutBatch
from tests.unit.driver_samples import C3090, driver_rig, make_driver_plan
from tests.unit.managed_driver_samples import NEW, OLD, UBUNTU_HOST, managed_host, managed_rig

KEPT = (OLD, NEW)


def faults_of(rig: Rig, facts: DriverFacts) -> tuple[str, ...]:
    # a bundle that lacks what the present driver needs refuses a deploy, and no rollback
    refused = DriverRefusal(("the bundle has no kernel headers",))
    return find_driver_faults(
        Mock(driver=(rig.driver, rig.driver_supply, facts, refused), unbundled=make_driver_plan(rig, facts))
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (managed_host(NEW, kept=KEPT), ""),
        # packages have gone back, the reboot waits
        (managed_host(OLD, module=NEW, kept=KEPT), ""),
        (managed_host(NEW, kept=(NEW,)), "no files of an earlier driver are stored"),
        (managed_host(OLD, kept=KEPT), f"driver {NEW} is stored and newer than the installed {OLD}, so no rollback"),
        (replace(UBUNTU_HOST, kept=("570.86.15",)), "the previous driver has modules only for the previous kernel"),
    ],
)
def test_a_driver_that_cannot_go_back_is_refused_with_the_reason(facts: DriverFacts, reason: str) -> None:
    (found,) = faults_of(managed_rig(), facts) or ("",)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_box_without_a_managed_driver_is_refused() -> None:
    reason = ("its driver is not managed: --limit leaves the box out",)
    assert faults_of(driver_rig(C3090, managed=False), managed_host(NEW, kept=KEPT)) == reason
    assert find_driver_faults(Mock(driver=None)) == reason


def test_the_table_has_the_opening_of_each_batch_where_a_box_has_windows(capsys: pytest.CaptureFixture[str]) -> None:
    opening = datetime(2026, 12, 5, 1, 0, tzinfo=timezone.utc)
    batches = [
        RolloutBatch(("one",), True, {"chat": (1, 2)}, 60.0, None),
        RolloutBatch(("two",), False, {"chat": (1, 2)}, 60.0, opening),
    ]
    print_batches(batches, 0)
    title, first, second, _ = capsys.readouterr().out.splitlines()
    assert title.split()[:4] == ["batch", "boxes", "begins", "minutes"]
    assert "at any time" in first
    assert "2026-12-05T01:00:00Z" in second
    print_batches(batches[:1], 0)
    assert "begins" not in capsys.readouterr().out


def test_a_gate_waits_for_instances_that_start(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["starting", "starting", "failed"])
    box = Mock()
    box.rig.instances = ["chat"]
    observed = Mock(assess_state=lambda one: Mock(state=next(states)))
    monkeypatch.setattr(rollout_steps, "observe_box", lambda *_: observed)
    waits: list[float] = []
    await_started_instances(box, waits.append)
    assert len(waits) == 2
