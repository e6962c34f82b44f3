"""`rigwright switch` between the variants that are shipped: every inventory, every variant that `--list` offers."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cli.inventory_edit import edit_inventory_text
from cli.inventory_loading import load_hosts, load_hosts_from_text
from cli.switch import collect_targets, plan_switch
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.variant_selection import VariantSwitch, apply_switch, instances_sharing_name
from rigwright.gateway.served_models import offers_of
from rigwright.inventory import layer_folders, load_rig
from rigwright.model.rig import Rig
from rigwright.plan.plan_inputs import build_target_state
from rigwright.project_root import ROOT
from tests.unit.samples import sample_facts
from tests.unit.shipped_inventories import write_lock

INVENTORIES = ("rig2080ti", "rig3090", "rig5090", "rig5090solo", "rig5090two", "fleet")
# Why `--list` may show a variant for these cards as refused: nothing else stands in the way of a shipped inventory.
REFUSED = re.compile(
    r"needs \d+ cards?, but \d+ are listed"  # of two that share a name, each keeps its cards
    r"|declare \"containers\""
)
# Names that clients of the write-ups ask for, by the box: a switch takes none of them away.
CLIENTS = {
    "rig2080ti": {"Qwen3.6-27B-AWQ-INT4", "gpt-4o"},
    "rig3090": {"qwen3.6-27b-autoround", "gpt-4o"},
    "rig5090": {"qwen3.6-27b", "gpt-4o"},
    "rig5090solo": {"Qwen3.5-35B-A3B", "Qwen2.5-1.5B-Instruct", "gpt-4o"},
}


@dataclass(frozen=True)
class ShippedInventoryFolder:
    """A shipped inventory in an operator's folder, with all of the catalogue locked."""

    path: Path

    @cache  # noqa: B019 (one a shipped inventory)
    def switches(self) -> tuple[tuple[str, dict[str, Any], Rig, VariantSwitch, str], ...]:
        """The output of `--list`: every switch, and why it is refused."""
        return tuple(self._switches())

    def _switches(self) -> Iterator[tuple[str, dict[str, Any], Rig, VariantSwitch, str]]:
        catalog = load_catalog(layer_folders(self.path, "catalog"))
        for host, data in load_hosts(str(self.path), None).items():
            rig = load_rig(data["rig"])
            for instance in rig.instances:
                for variant, refusal in collect_targets(catalog, rig, data, instance).items():
                    fixed = len(instances_sharing_name(data["rig"], instance.name)) > 1
                    yield host, data, rig, plan_switch(catalog, rig, instance, variant, fixed=fixed), refusal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("boxes")
    write_lock(made)
    return made


@pytest.fixture
def shelf(folder: Path, name: str) -> ShippedInventoryFolder:
    return ShippedInventoryFolder(Path(shutil.copy(ROOT / "inventory" / f"{name}.py", folder)))


def asked_names(rig: Rig) -> set[str]:
    """Names that clients can ask the gateway for."""
    return {one.name for one in offers_of(rig.instances, rig.gateway)} | set(rig.gateway.aliases if rig.gateway else ())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.all_only] if name == "fleet" else []) for name in INVENTORIES]
)
def test_every_offered_variant_takes_the_place_of_the_declared_one(shelf: ShippedInventoryFolder, name: str) -> None:
    content, edited = shelf.path.read_bytes(), set[tuple[object, ...]]()
    for host, data, before, switch, refusal in shelf.switches():
        if refusal:
            assert REFUSED.search(refusal), (host, switch, refusal)
            continue
        kind = (host, name != "fleet" and switch.instance, name != "fleet" and switch.cards is None)
        if name == "fleet" and kind in edited:
            continue  # each box is that of its own inventory (test_shipped_inventories.py), which has all of them
        after = load_rig(apply_switch(data["rig"], switch))
        # the file once with the same cards and once with others: it is loaded anew each time
        if kind not in edited:
            edited.add(kind)
            text = edit_inventory_text(str(shelf.path), content, host, data, switch)
            assert load_rig(load_hosts_from_text(str(shelf.path), text)[host]["rig"]) == after
        instance = next(one for one in after.instances if one.name == switch.instance)
        members = instances_sharing_name(data["rig"], switch.instance)
        assert {one.variant_name for one in after.instances if one.name in members} == {switch.variant}
        # all that it is made of is locked, with a place that hosts fetch it from
        made_of = [*instance.weights, *instance.artefacts, *(row for env in after.envs for row in env.artefacts)]
        assert instance.weights
        assert all(row.sources and len(row.sha256) == 64 for row in made_of)
        assert instance.env in (None, *(env.name for env in after.envs))
        # each name leads to the same instances as before, whatever they serve
        assert asked_names(after) == asked_names(before) >= CLIENTS.get(host, set())
        leading = [
            {one.name: [each.name for each in one.instances] for one in offers_of(rig.instances, rig.gateway)}
            for rig in (before, after)
        ]
        assert leading[0] == leading[1]
        assert all("chat/completions" in one.paths for one in offers_of(after.instances, after.gateway)), switch
        cards = tuple((f"0000:{slot:02x}:00.0", card.pci_ids[0]) for slot, card in enumerate(after.cards, start=1))
        assert f"units/{instance.unit}" in build_target_state(after, sample_facts(pci_cards=cards)).generation.files


@pytest.mark.parametrize(
    ("name", "host", "variants"),
    [
        ("rig3090", "rig3090", {"vllm/default", "vllm/qwen3.6-27b-int4", "llamacpp/default", "llamacpp/65k"}),
        (
            "rig3090",
            "rig3090-two",
            {"vllm/dual", "vllm/turbo", "vllm/long-vision", "llamacpp/dual", "vllm/default", "llamacpp/default"},
        ),
        ("rig5090", "rig5090-pairs", {"vllm/qwen3.6-27b-pair", "vllm/qwen3-30b-a3b-awq-tp2"}),
        ("rig5090two", "rig5090two", {"vllm/qwen3-8b-per-card", "vllm/qwen3-30b-a3b-awq", "llamacpp/qwen3.5-35b-a3b"}),
        ("rig2080ti", "rig2080ti", {"vllm/2080ti-two", "vllm/2080ti-two-mtp"}),
        ("rig2080ti", "rig2080ti-four", {"vllm/2080ti-four", "vllm/2080ti-four-mtp"}),
        ("rig5090", "rig5090", {"vllm/qwen3.6-27b", "vllm/qwen3.6-27b-0.20", "vllm/qwen3.6-27b-fp8"}),
        ("rig5090solo", "rig5090solo", {"llamacpp/qwen3.5-35b-a3b", "llamacpp/qwen3.5-35b-a3b-long"}),
    ],
)
def test_the_variants_of_a_write_up_are_offered_for_its_box(
    shelf: ShippedInventoryFolder, host: str, variants: set[str]
) -> None:
    assert variants <= {one.variant for box, _, _, one, refusal in shelf.switches() if box == host and not refusal}
