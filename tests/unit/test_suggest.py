"""Suggestions of a survey: names for cards, a root with room, a free port, variants that fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.host.basic_facts import ListeningSocket
from rigwright.model.catalog_schema import Catalog
from rigwright.patches import patch
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from rigwright.survey.box_survey import GpuProcess, ObservedCard, ObservedDisk
from rigwright.survey.suggestions import (
    OperatorAnswers,
    VariantOffer,
    card_names,
    choose_cards,
    offer_variant,
    suggest_entry,
    suggest_models_root,
    suggest_port,
)
from tests.unit.sample_texts import LOCK
from tests.unit.samples import OperatorFolder
from tests.unit.test_survey import BARE, CARD, capture

GIB = 1024 * 1024
CONNECTION = {"ssh_hostname": "192.0.2.7", "ssh_user": "ops", "_sudo": True}
ANSWERS = OperatorAnswers("box", CONNECTION)
TURING = replace(CARD, address="0000:00:00.0", pci_id="10de:1e04")
STRANGE = replace(
    CARD, address="0000:00:00.0", pci_id="10de:2335", name="NVIDIA H200", vram_mib=143771, capability="9.0"
)
# samples' lock has its files in a mirror; an inventory that was just written names none
OPEN_LOCK = LOCK.replace("store:", "https://example.org/")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> OperatorFolder:
    made = OperatorFolder(tmp_path_factory.mktemp("box"))
    made.write("locks/box.lock.toml", OPEN_LOCK)
    return made


@pytest.fixture(scope="module")
def catalog(place: OperatorFolder) -> Catalog:
    return load_catalog([place.folder / "catalog"])


@pytest.fixture(scope="module")
def lock(place: OperatorFolder) -> Lock:
    return Lock.load([ROOT / "locks", place.folder / "locks"])


def cards(*kinds: ObservedCard, nodes: tuple[int | None, ...] = ()) -> tuple[ObservedCard, ...]:
    numbered = [replace(card, address=f"0000:{number:02x}:00.0") for number, card in enumerate(kinds)]
    return tuple(replace(card, numa_node=node) for card, node in zip(numbered, nodes or (0,) * len(kinds), strict=True))


def busy(*numbers: int, **changes: Any) -> GpuProcess:
    return replace(GpuProcess(7, "root", "python3", "", "", tuple((n, 100) for n in numbers)), **changes)


@pytest.mark.parametrize(
    ("kinds", "names"),
    [
        ((), ()),
        ((CARD,), ("ampere",)),
        ((TURING, CARD, TURING), ("turing", "ampere", "turing")),
        ((STRANGE,), ()),
        # the numbers of the cards after it would be others once it is in the catalogue
        ((CARD, STRANGE, CARD), ("ampere",)),
        ((CARD,) * 20, ("ampere",) * 16),
    ],
)
def test_cards_are_named_in_bus_order_up_to_one_that_the_catalogue_lacks(
    catalog: Catalog, kinds: tuple[ObservedCard, ...], names: tuple[str, ...]
) -> None:
    assert card_names(replace(BARE, cards=cards(*kinds)), catalog) == names


def test_of_two_cards_with_one_pci_id_the_memory_decides() -> None:
    shipped = load_catalog([ROOT / "catalog"])
    assert card_names(capture("two-sockets"), shipped) == ("rtx-2080-ti-22g", "rtx-3090", "rtx-3090", "rtx-3090")
    for memory, name in ((11264, "rtx-2080-ti"), (0, "rtx-2080-ti")):
        seen = replace(BARE, cards=(replace(TURING, vram_mib=memory),))
        assert card_names(seen, shipped) == (name,)


@pytest.mark.parametrize(
    ("kinds", "nodes", "processes", "count", "chosen"),
    [
        ((CARD,) * 4, (0, 0, 1, 1), (), 1, (0,)),
        ((CARD,) * 4, (0, 0, 1, 1), (), 2, (0, 1)),
        # one node comes before side by side, and that before the lowest number
        ((CARD,) * 4, (0, 1, 1, 0), (), 2, (1, 2)),
        ((CARD,) * 4, (0, 1, 0, 1), (), 2, (0, 2)),
        ((CARD,) * 4, (0, 0, 1, 1), (busy(0),), 2, (2, 3)),
        ((CARD,) * 4, (0, 0, 1, 1), (busy(0), busy(2)), 2, (1, 3)),
        ((CARD,) * 4, (0, 0, 1, 1), (busy(0, 1, 2),), 2, None),
        ((CARD,) * 2, (0, 0), (busy(0, unit="rigwright-chat.service"),), 1, (0,)),
        ((CARD,) * 2, (0, 0), (busy(),), 1, (0,)),
        ((TURING, CARD, CARD), (0, 0, 0), (), 2, (1, 2)),
        ((CARD, CARD), (None, None), (), 2, (0, 1)),
        ((), (), (), 0, ()),
        ((), (), (), 1, None),
    ],
)
def test_an_instance_gets_free_cards_of_one_node_and_model_side_by_side(
    catalog: Catalog,
    kinds: tuple[ObservedCard, ...],
    nodes: tuple[int | None, ...],
    processes: tuple[GpuProcess, ...],
    count: int,
    chosen: tuple[int, ...] | None,
) -> None:
    survey = replace(BARE, cards=cards(*kinds, nodes=nodes), processes=processes)
    assert choose_cards(survey, card_names(survey, catalog), count) == chosen


def disk(mount: str, free: int, **changes: Any) -> ObservedDisk:
    return replace(ObservedDisk(mount, f"/dev{mount}x", "ext4", 2 * free * GIB, free * GIB, True), **changes)


@pytest.mark.parametrize(
    ("disks", "root"),
    [
        ((), None),
        ((disk("/", 40),), None),
        ((disk("/", 40), disk("/data", 3000)), "/data/models"),
        ((disk("/", 40), disk("/data", 3000), disk("/mnt/big", 9000)), "/mnt/big/models"),
        ((disk("/", 40), disk("/data", 99)), None),
        ((disk("/", 400), disk("/data", 700)), None),
        ((disk("/", 40), disk("/srv", 3000)), None),
        ((disk("/", 40), disk("/srv/models", 3000)), None),
        ((disk("/", 40), disk("/data", 3000, writable=False)), None),
        ((disk("/", 40), disk("/nas", 3000, type="nfs4")), None),
        # services are kept from it, and a unit cannot print it
        ((disk("/", 40), disk("/home", 3000)), None),
        ((disk("/", 40), disk("/my disk", 3000), disk("/data", 2000)), "/data/models"),
    ],
)
def test_weights_go_to_a_big_data_disk(disks: tuple[ObservedDisk, ...], root: str | None) -> None:
    assert suggest_models_root(replace(BARE, disks=disks)) == root


def test_a_port_belongs_to_one_rig() -> None:
    listeners = (
        ListeningSocket(8020, "python3", ""),
        ListeningSocket(8021, "x", "x.service"),
        ListeningSocket(8022, "y", "rigwright-a.service"),
    )
    assert suggest_port(BARE) == 8020
    assert suggest_port(replace(BARE, listeners=listeners)) == 8022


@pytest.mark.parametrize(
    ("variant", "kinds", "processes", "offered"),
    [
        ("llamacpp/cpu", (), (), VariantOffer("llamacpp/cpu")),
        ("llamacpp/two", (CARD,) * 3, (), VariantOffer("llamacpp/two", (0, 1))),
        (
            "llamacpp/two",
            (CARD, CARD),
            (busy(1),),
            VariantOffer("llamacpp/two", refusal="needs 2 cards; 1 of 2 are free and in the catalogue"),
        ),
        (
            "llamacpp/one",
            (replace(CARD, vram_mib=1),),
            (),
            VariantOffer("llamacpp/one", (0,), "its weights need 2 MiB, the cards have 1"),
        ),
    ],
)
def test_a_variant_is_offered_where_it_can_be_declared(
    catalog: Catalog,
    lock: Lock,
    place: OperatorFolder,
    variant: str,
    kinds: tuple[ObservedCard, ...],
    processes: tuple[GpuProcess, ...],
    offered: VariantOffer,
) -> None:
    survey = replace(BARE, cards=cards(*kinds), processes=processes)
    assert offer_variant(variant, survey, ANSWERS, catalog, lock, str(place.inventory)) == offered


@pytest.mark.parametrize(
    ("variant", "used", "reserved"),
    [
        (None, (), None),
        (None, (1, 3), [1, 3]),
        ("llamacpp/two", (1,), [1]),
        # a card that the instance gets in spite of its user is not reserved
        ("llamacpp/two", (0, 1, 3), [3]),
        # the catalogue lacks the card
        (None, (4,), None),
    ],
)
def test_cards_that_others_compute_on_are_lent(
    catalog: Catalog, variant: str | None, used: tuple[int, ...], reserved: list[int] | None
) -> None:
    survey = replace(BARE, cards=cards(CARD, CARD, CARD, CARD, STRANGE), processes=(busy(*used),))
    assert suggest_entry(survey, replace(ANSWERS, variant=variant), catalog).get("reserved_gpus") == reserved


def test_a_variant_whose_files_are_in_a_mirror_is_not_offered(
    catalog: Catalog, place: OperatorFolder, tmp_path: Path
) -> None:
    (tmp_path / "box.lock.toml").write_text(LOCK)
    refused = offer_variant(
        "llamacpp/cpu", BARE, ANSWERS, catalog, Lock.load([ROOT / "locks", tmp_path]), str(place.inventory)
    )
    assert "has no address: the lock places it in the mirror store (store:small-q4.gguf)" in refused.refusal


@pytest.mark.parametrize("variant", ["vllm/default", "vllm/dual", "vllm/qwen3-8b-per-card", "llamacpp/65k"])
def test_a_shipped_variant_is_offered_before_its_weights_are_locked(tmp_path: Path, variant: str) -> None:
    shipped = load_catalog([ROOT / "catalog"]).model_copy(update={"patches": patch.load_patches([ROOT / "patches"])})
    survey = replace(BARE, cards=cards(replace(CARD, vram_mib=24576), replace(CARD, vram_mib=24576)))
    found = offer_variant(variant, survey, ANSWERS, shipped, Lock.load([ROOT / "locks"]), str(tmp_path / "rig.py"))
    assert (found.refusal, found.unlocked) == ("", True)


def test_a_failing_locked_input_does_not_count_as_unlocked(catalog: Catalog, lock: Lock, place: OperatorFolder) -> None:
    changes = {"cache_type_v": "q8_0", "flash_attention": "off"}
    wrong = {"llamacpp/one": catalog.variants["llamacpp/one"].model_copy(update=changes)}
    told = catalog.model_copy(update={"variants": {**catalog.variants, **wrong}})
    found = offer_variant("llamacpp/one", replace(BARE, cards=cards(CARD)), ANSWERS, told, lock, str(place.inventory))
    assert "(llama.cpp, src/llama-context.cpp)" in found.refusal


@pytest.mark.parametrize(
    ("driver", "variant", "declared"),
    [("", "llamacpp/one", {"managed": True}), ("580.95.05", "llamacpp/one", None), ("", "llamacpp/cpu", None)],
)
def test_a_host_without_a_driver_gets_one(
    catalog: Catalog, driver: str, variant: str, declared: dict[str, object] | None
) -> None:
    survey = replace(BARE, cards=cards(CARD), driver=driver)
    assert suggest_entry(survey, replace(ANSWERS, variant=variant), catalog).get("driver") == declared
