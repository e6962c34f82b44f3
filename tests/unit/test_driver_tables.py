"""The catalogue's tables of drivers are whole, and know the catalogue's own cards."""

from typing import Any

import pytest
from pydantic import ValidationError

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.host.supported_systems import SYSTEMS
from rigwright.model.nvidia_tables import DriverTables, load_driver_tables
from rigwright.project_root import ROOT

SHIPPED = load_driver_tables(ROOT).model_dump()


def test_every_card_that_is_shipped_is_of_one_generation_by_its_numbers_and_its_capability() -> None:
    for card in load_catalog([ROOT / "catalog"]).cards.values():
        found = {load_driver_tables(ROOT).device_generation(pci_id).name for pci_id in card.pci_ids}
        assert found == {load_driver_tables(ROOT).capability_generation(card.capability).name}


@pytest.mark.parametrize(
    ("pci_id", "name"),
    [
        ("10de:1b06", "Pascal"),
        ("10de:1d81", "Volta"),
        ("10de:1e04", "Turing"),
        ("10de:2182", "Turing"),
        ("10de:20b0", "Ampere"),
        ("10de:2203", "Ampere"),
        ("10de:2335", "Hopper"),
        ("10de:2684", "Ada"),
        ("10de:2b87", "Blackwell"),
        ("10de:2c05", "Blackwell"),
        ("10de:17c8", "Maxwell"),
        ("10de:128b", "Kepler or older"),
        ("10de:06cd", "Kepler or older"),
        ("10de:ffff", "an unknown generation"),
    ],
)
def test_a_card_is_known_by_its_number(pci_id: str, name: str) -> None:
    assert load_driver_tables(ROOT).device_generation(pci_id).name == name


def test_a_newer_capability_needs_open_modules_and_an_unknown_device_is_not_guessed() -> None:
    assert load_driver_tables(ROOT).capability_generation("13.0").flavours == ("open",)
    assert (
        load_driver_tables(ROOT).device_generation("10de:ffff").flavours
        == load_driver_tables(ROOT).capability_generation("4.0").flavours
        == ()
    )


def test_every_supported_system_has_a_driver() -> None:
    assert {system for offer in load_driver_tables(ROOT).offers for system in offer.systems} == set(SYSTEMS)


def test_every_layout_is_offered() -> None:
    assert {offer.layout for offer in load_driver_tables(ROOT).offers} == set(load_driver_tables(ROOT).layouts)


OFFER = SHIPPED["offers"][0]
PASCAL = next(one for one in SHIPPED["generations"] if one["name"] == "Pascal")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"offers": [OFFER | {"layout": "nowhere"}]}, "no nowhere"),
        ({"offers": [OFFER | {"source": "ppa"}]}, "'distribution' or 'nvidia'"),
        ({"offers": [OFFER | {"systems": ["arch"]}]}, "debian-12"),
        ({"pins": {"nvidia": ["src:x:any"]}}, "pins for distribution and nvidia"),
        ({"layouts": {"x": {"prebuilt": True, "packages": ["a b"]}}}, "pattern"),
        ({"layouts": {"x": {"prebuilt": True, "packages": ["a-{version}"]}}}, "pattern"),
        ({"layouts": {"x": {"prebuilt": True, "packages": []}}}, "at least 1"),
        ({"generations": [PASCAL, PASCAL]}, "do not overlap"),
        ({"generations": [PASCAL | {"devices": [["1dff", "1b00"]]}]}, "from the lower"),
        ({"generations": [PASCAL | {"devices": [["1B00", "1d7f"]]}]}, "pattern"),
        ({"more": 1}, "Extra inputs"),
    ],
)
def test_a_mistake_in_them_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DriverTables.model_validate(SHIPPED | changes)
    assert said in str(caught.value)
