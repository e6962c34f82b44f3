"""The inventories that are shipped: each is valid as it lies there, and becomes the rig that its words promise."""

import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines import kind_of
from rigwright.envs.environment import plan_environment
from rigwright.inventory import load_for, load_rig
from rigwright.nvidia.cards.card_setting_files import POWER
from rigwright.nvidia.driver.driver_files import render_driver_settings
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.operate.long_context_probes import haystack_sizes
from rigwright.plan.preflight import describe_variant_evidence
from rigwright.project_root import ROOT
from tests.unit.driver_samples import driverless_host, refusal_reasons, with_locked_drivers
from tests.unit.samples import sample_facts
from tests.unit.shipped_inventories import load_rigs

# Of a machine or a throwaway host that has to be there first
MADE_FOR_ONE = {"demo", "metal"}
# Each is refused until its operator has locked its weights; rig5090solo's models have a file of their own
SHIPPED = ("rig2080ti", "rig3090", "rig5090", "rig5090solo", "rig5090two")
# Of their boxes one of each kind
FLEET = "fleet"
SOLO = {"Qwen3.5-35B-A3B-UD-Q4_K_XL", "Qwen2.5-1.5B-Instruct-Q8_0"}
FOLDER = TemporaryDirectory()
ALL = {name: one for inventory in SHIPPED for name, one in load_rigs(inventory, Path(FOLDER.name)).items()}


def test_every_inventory_is_tested() -> None:
    there = {path.stem for path in (ROOT / "inventory").glob("*.py")}
    assert there == {*SHIPPED, FLEET, *MADE_FOR_ONE}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("rig2080ti", {"Qwen3.6-27B-AWQ-INT4"}),
        ("rig3090", {"Qwen3.6-27B-int4-AutoRound"}),
        ("rig5090", {"Qwen3.6-27B"}),
        ("rig5090two", {"Qwen3-8B", "Qwen3-30B-A3B-AWQ-4bit"}),
        ("rig5090solo", SOLO),
        (FLEET, SOLO | {"Qwen3.6-27B-AWQ-INT4", "Qwen3.6-27B-int4-AutoRound", "Qwen3.6-27B", "Qwen3-8B"}),
    ],
)
def test_without_locked_weights_it_is_refused_and_names_them(name: str, weights: set[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "inventory" / f"{name}.py"))
    lines = str(ended.value.code).splitlines()
    assert all("is not locked: run `rigwright lock" in line for line in lines)
    assert {line.partition(" is not locked")[0].rpartition(" ")[2] for line in lines} == weights


@pytest.mark.parametrize("name", [*SHIPPED, FLEET])
def test_it_is_valid_and_every_rig_serves(name: str, tmp_path: Path) -> None:
    one = load_rigs(name, tmp_path)
    # a process of its own: pyinfra's gevent wants to be there before ssl
    command_ = [sys.executable, "-m", "cli", "validate", str(tmp_path / f"{name}.py")]
    done = subprocess.run(command_, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("valid\n")
    assert all(found.instances for found in one.values())


def load_inventory(name: str) -> dict[str, dict[str, Any]]:
    """An inventory's rigs, by name, without their locks: each can be made."""
    with load_for("lock"):
        group: Any = runpy.run_path(str(ROOT / "inventory" / f"{name}.py"))["rigs"]
        assert all(load_rig(data["rig"]).instances for _, data in group)
    return {rig: {"ssh_hostname": data["ssh_hostname"], **data["rig"]["entry"]} for rig, data in group}


@pytest.mark.parametrize("name", SHIPPED)
def test_its_lock_can_be_made(name: str) -> None:
    assert load_inventory(name)


def test_a_fleet_has_a_box_of_each_kind_as_its_own_inventory_has_it() -> None:
    fleet, shared = load_inventory(FLEET), {"share", "peers", "mirrors"}
    alone = {rig: entry for name in SHIPPED for rig, entry in load_inventory(name).items()}
    for rig, entry in fleet.items():
        assert {key: entry[key] for key in entry if key not in shared} == {
            key: alone[rig][key] for key in alone[rig] if key not in shared
        }, rig
    kinds = {(entry["cards"][0], len(entry["cards"])) for entry in alone.values()}
    assert {(entry["cards"][0], len(entry["cards"])) for entry in fleet.values()} == kinds - {("rtx-2080-ti-22g", 4)}


def test_a_fleet_fetches_once_what_vllm_is_made_of() -> None:
    fleet = load_inventory(FLEET)
    (source,) = [entry["share"]["address"] for entry in fleet.values() if "share" in entry]
    asking = {rig: entry["peers"] for rig, entry in fleet.items() if entry["peers"]}
    assert set(map(tuple, asking.values())) == {(f"http://{source}:8090",)}
    with_vllm = {rig for rig, entry in fleet.items() if any(map(on_vllm, entry["instances"].values()))}
    assert {*asking, "rig3090-two"} == with_vllm


def on_vllm(instance: dict[str, Any]) -> bool:
    return str(instance["variant"]).startswith("vllm/")


@pytest.mark.parametrize("name", ALL)
def test_nothing_that_it_serves_goes_without_evidence(name: str) -> None:
    one = ALL[name]
    assert len(describe_variant_evidence(one.cards, one.instances)) == len(one.instances)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13"])
def test_there_is_a_driver_for_it_and_its_settings(name: str, system: str) -> None:
    one = ALL[name]
    facts = driverless_host(system, *(card.pci_ids[0] for card in one.cards))
    box_rig = with_locked_drivers(one)
    plan = plan_driver(box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, facts)
    assert isinstance(plan, DriverPlan), plan
    assert plan.flavour == ("proprietary" if name.startswith("rig2080ti") else "open")
    files = {setting.path for setting in render_driver_settings(one.roots, one.cards, one.driver, plan)}
    assert (POWER in files) == (one.driver.power_w is not None)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["debian-12", "debian-13"])
def test_on_debian_the_message_suggests_only_to_lock_a_driver(name: str, system: str) -> None:
    one = ALL[name]
    (reason,) = refusal_reasons(one, driverless_host(system, *(card.pci_ids[0] for card in one.cards)))
    assert reason.startswith(f"no driver is locked for {system}")


def command(name: str) -> list[str]:
    """The words after the model of what the instance of a rig is started with."""
    whole = ALL[name]
    (one,) = whole.instances
    made = plan_environment(
        whole.roots, whole.cards, whole.instances, whole.envs, whole.toolkit, whole.envs[0], sample_facts()
    )
    return [str(word) for word in kind_of(one).service(whole, one, made).command[5:]]


def test_a_single_slot_has_room_for_a_needle_in_178000_tokens() -> None:
    capacity = load_catalog([ROOT / "catalog"]).variants["llamacpp/qwen3.5-35b-a3b-long"].capacity
    assert capacity
    slots, tokens = capacity
    assert slots == 1
    assert 178_000 in haystack_sizes(tokens)
