"""`rigwright plan` says what driver a host with cards has and should have, and asks no other host for it."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from checks.connections import ConnectedHost
from checks.required_check_ids import declared_digest
from cli import observed_box, plan
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.stages import DeployPlan
from rigwright.plan.state_digests import OwnedStateFacts
from rigwright.serving.serving_state import ObservedServing, UnitUsage
from rigwright.serving.unit_diff import WrittenUnit
from tests.unit.driver_samples import C3090, driverless_host
from tests.unit.mapped_hosts import map_given_hosts
from tests.unit.ready_instances import ready_facts
from tests.unit.samples import sample_facts, sample_instance, sample_rig


class PlanBox(ConnectedHost):
    """A box whose host is known."""

    def __init__(self, one: Rig, there: DriverFacts) -> None:
        super().__init__("box", one, SimpleNamespace())
        self.__dict__["asked"] = []
        self.__dict__["there"] = there

    def prefetch(self, *looks: str) -> ConnectedHost:
        self.__dict__["asked"] += [look for look in looks if look == "driver_facts"]
        return self

    def read_facts(self) -> Any:
        return sample_facts(clock=int(time.time()), pci_cards=(("0000:01:00.0", "10de:2204"),))

    def read_serving_state(self) -> ObservedServing:
        return ObservedServing()

    def read_driver_facts(self) -> DriverFacts:
        self.__dict__["asked"].append("driver")
        found: DriverFacts = self.__dict__["there"]
        return found


def run_plan(monkeypatch: pytest.MonkeyPatch, box: ConnectedHost, *options: str) -> Any:
    monkeypatch.setattr(plan, "map_inventory", map_given_hosts([box]))
    monkeypatch.setattr(observed_box, "read_health", ready_facts)
    return CliRunner().invoke(plan.plan, [str(__file__), *options])


def test_a_rig_with_cards_learns_what_driver_a_managed_one_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_plan(monkeypatch, PlanBox(sample_rig(cards=(C3090,)), driverless_host(nouveau=True)))
    assert done.exit_code == 0, done.output
    said = [line.removeprefix("box: driver: ") for line in done.output.splitlines() if line.startswith("box: driver: ")]
    assert said[0] == "there now: none; nouveau is loaded"
    assert said[1].startswith("a managed driver would be 580 with open modules from the distribution's archive")
    assert "needs a reboot: nouveau is bound to the cards" in said


def test_a_refused_driver_is_advice_and_refuses_no_deploy(monkeypatch: pytest.MonkeyPatch) -> None:
    there = replace(driverless_host(), run_files=("/usr/bin/nvidia-uninstall",))
    done = run_plan(monkeypatch, PlanBox(sample_rig(cards=(C3090,)), there))
    assert done.exit_code == 0
    assert "box: driver: a managed driver would be refused: /usr/bin/nvidia-uninstall" in done.output


MANAGED_DRIVER_FACTS = DriverEntry.model_construct(**DriverEntry().model_dump() | {"managed": True})


def test_a_managed_driver_is_a_step_and_so_is_its_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_plan(
        monkeypatch,
        PlanBox(sample_rig(cards=(C3090,), driver=MANAGED_DRIVER_FACTS), driverless_host(nouveau=True)),
        "--json",
    )
    assert done.exit_code == 0, done.output
    (row,) = json.loads(done.output)
    assert [(step["what"], step["why"]) for step in row["steps"] if step["role"] == "nvidia_driver"] == [
        ("install driver 580 with open modules from the distribution's archive", "installed: none"),
        ("reboot", "nouveau is bound to the cards; without --reboot the deploy stops there"),
    ]


def test_a_refused_driver_refuses_the_deploy_where_it_is_managed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = replace(driverless_host(), run_files=("/usr/bin/nvidia-uninstall",))
    done = run_plan(monkeypatch, PlanBox(sample_rig(cards=(C3090,), driver=MANAGED_DRIVER_FACTS), there))
    assert done.exit_code == 1
    assert done.output.count("/usr/bin/nvidia-uninstall comes from a .run file") == 1
    assert "box: refused: /usr/bin/nvidia-uninstall" in done.output
    assert "nvidia_driver" not in done.output


def test_programs_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run_plan(monkeypatch, PlanBox(sample_rig(cards=(C3090,)), driverless_host()), "--json")
    (row,) = json.loads(done.output)
    assert row["driver"]["found"] == "none"
    assert (row["driver"]["plan"]["branch"], row["driver"]["refused"], row["driver"]["managed"]) == (580, [], False)
    assert "nvidia_driver" not in {step["role"] for step in row["steps"]}
    assert row["driver"]["plan"]["packages"][0] == "linux-modules-nvidia-580-server-open-generic"


def test_a_rig_without_cards_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    box = PlanBox(sample_rig(), driverless_host())
    assert json.loads(run_plan(monkeypatch, box, "--json").output)[0]["driver"] is None
    assert box.__dict__["asked"] == []


def test_the_digest_that_a_deploy_can_be_held_to_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    box = PlanBox(sample_rig(), driverless_host())
    assert (
        f"box: lock and bundle have the digest {box.rig.digest[:12]} (complete in `plan --json`)"
        in run_plan(monkeypatch, box).output.splitlines()
    )
    (row,) = json.loads(run_plan(monkeypatch, box, "--json").output)
    assert row["digest"] == box.rig.digest


def test_an_instance_that_is_interrupted_is_reported_by_what_and_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    box = PlanBox(sample_rig(sample_instance("chat")), driverless_host())
    aim = build_target_state(box.rig, sample_facts())
    (unit,) = aim.generation.units
    monkeypatch.setattr(
        PlanBox,
        "read_written_files",
        lambda _: {unit.name: WrittenUnit(f"{unit.text}Nice=5\n", unit.environment, unit.weights)},
    )
    monkeypatch.setattr(PlanBox, "read_resource_usage", lambda _: {unit.name: UnitUsage("", None, 8.2)})
    made = DeployPlan((), (unit.name, "rigwright-old.service"))
    assert plan._describe_changes(box, aim, made) == [
        "chat: unit: - Nice=5 (restart, about 8 s down)",
        "old: no longer declared (stop)",
    ]
    assert plan._describe_changes(box, aim, DeployPlan((), ())) == []


@pytest.mark.parametrize(("recorded", "changed"), [("a" * 64, False), ("b" * 64, True)])
def test_changes_since_the_verification_of_a_deploy_are_named(
    monkeypatch: pytest.MonkeyPatch, recorded: str, changed: bool
) -> None:
    box = PlanBox(sample_rig(), driverless_host())
    goal = build_target_state(box.rig, box.read_facts()).generation.digest
    found = OwnedStateFacts(
        {"unit_files": "a" * 64}, {"unit_files": recorded, "declared": declared_digest(box.rig.digest, goal)}
    )
    monkeypatch.setattr(PlanBox, "read_serving_state", lambda _: ObservedServing(current=1))
    monkeypatch.setattr(PlanBox, "read_owned_state", lambda _: found)
    assert (
        "box: no deploy has verified this state since the boot: unit files" in run_plan(monkeypatch, box).output
    ) is changed
    (row,) = json.loads(run_plan(monkeypatch, box, "--json").output)
    assert row["unverified"] == (["unit files"] if changed else [])
