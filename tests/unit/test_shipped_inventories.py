"""The inventories that are shipped: each is valid as it lies there, and becomes the rig that its words promise."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import Any

import pytest

from rigwright.declaration.rig import Rig
from rigwright.inventory import ROOT, load
from rigwright.nvidia.cards.files import POWER
from rigwright.nvidia.driver.choice import DriverPlan, driver_plan
from rigwright.nvidia.driver.files import settings
from tests.unit.driver_hosts import host, reasons, with_lock

# Of a machine or a throwaway host that has to be there first
MADE_FOR_ONE = {"demo", "metal"}
# Refused until its operator has locked its weights (test_rig5090solo)
LOCKED_BY_ITS_OPERATOR = {"rig5090solo"}
SHIPPED = ("rig2080ti", "rig3090", "rig5090")


def rigs(name: str) -> dict[str, Rig]:
    """The rigs of an inventory, by name."""
    group: Any = runpy.run_path(str(ROOT / "inventory" / f"{name}.py"))["rigs"]
    return {host_name: load(data["rig"]) for host_name, data in group}


ALL = {name: one for inventory in SHIPPED for name, one in rigs(inventory).items()}


def test_every_inventory_is_tested() -> None:
    there = {path.stem for path in (ROOT / "inventory").glob("*.py")}
    assert there == {*SHIPPED, *MADE_FOR_ONE, *LOCKED_BY_ITS_OPERATOR}


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_valid(name: str) -> None:
    # a process of its own: pyinfra's gevent wants to be there before ssl
    command = [sys.executable, "-m", "cli", "validate", str(ROOT / "inventory" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("valid\n")


@pytest.mark.parametrize(
    ("name", "card", "count", "power", "pairs"),
    [
        ("rig2080ti", "7.5", 2, None, ((0, 1),)),
        ("rig2080ti-four", "7.5", 4, 200, ((0, 1), (2, 3))),
        ("rig3090", "8.6", 1, 280, ()),
        ("rig3090-two", "8.6", 2, 280, ()),
        ("rig5090", "12.0", 8, 450, ()),
    ],
)
def test_its_cards_and_what_they_are_set_to(
    name: str, card: str, count: int, power: int | None, pairs: tuple[tuple[int, int], ...]
) -> None:
    one = ALL[name]
    assert [found.capability for found in one.cards] == [card] * count
    assert one.power_limits == (power,) * count
    assert one.driver.nvlinks == pairs


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13"])
def test_there_is_a_driver_for_it_and_its_settings(name: str, system: str) -> None:
    one = ALL[name]
    facts = host(system, *(card.pci_ids[0] for card in one.cards))
    plan = driver_plan(with_lock(one), facts)
    assert isinstance(plan, DriverPlan), plan
    assert plan.flavour == ("proprietary" if name.startswith("rig2080ti") else "open")
    files = {setting.path for setting in settings(one, plan)}
    assert (POWER in files) == (one.driver.power_w is not None)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["debian-12", "debian-13"])
def test_on_debian_its_operator_is_told_to_lock_a_driver_and_nothing_else(name: str, system: str) -> None:
    one = ALL[name]
    (reason,) = reasons(one, host(system, *(card.pci_ids[0] for card in one.cards)))
    assert reason.startswith(f"no driver is locked for {system}")


def test_only_cards_that_can_have_a_resizable_bar_are_given_one() -> None:
    given = {name for name, one in ALL.items() if "NVreg_EnableResizableBar" in one.driver.module_options}
    assert given == {"rig3090", "rig3090-two", "rig5090"}


def test_memory_is_moved_between_nodes_by_nobody_on_the_box_that_has_two() -> None:
    still = {name for name, one in ALL.items() if one.driver.sysctl.get("kernel.numa_balancing") == 0}
    assert still == {"rig5090"}
