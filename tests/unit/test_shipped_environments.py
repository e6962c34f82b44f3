"""The environments that are shipped: locked as they are asked for, each package once, and fit for the cards."""

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.project_root import ROOT
from rigwright.supply.cuda_machine_code import find_machine_code_refusals
from rigwright.supply.lock import Lock

CATALOG, LOCK = load_catalog([ROOT / "catalog"]), Lock.load([ROOT / "locks"])
DATED = sorted(name for name, one in CATALOG.inputs.items() if one.kind == "wheel" and one.python)


@pytest.mark.parametrize("name", sorted(name for name, one in CATALOG.inputs.items() if one.kind == "wheel"))
def test_every_environment_is_locked_as_it_is_asked_for(name: str) -> None:
    assert describe_mismatch(CATALOG.inputs[name], LOCK.groups.get(name, ())) == ""


@pytest.mark.parametrize("name", DATED)
def test_a_package_has_one_wheel_for_any_host(name: str) -> None:
    rows = LOCK.groups[name]
    assert len({row.name for row in rows}) == len(rows)
    assert {row.marker for row in rows} == {None}


@pytest.mark.parametrize("name", DATED)
@pytest.mark.parametrize("capability", sorted({card.capability for card in CATALOG.cards.values()}))
def test_no_shipped_card_is_refused(name: str, capability: str) -> None:
    assert find_machine_code_refusals(LOCK.groups[name], CATALOG.inputs[name].for_other_cards, capability)[0] == []


@pytest.mark.parametrize("name", DATED)
def test_every_pattern_for_other_cards_means_a_file(name: str) -> None:
    for pattern in CATALOG.inputs[name].for_other_cards:
        assert any(
            find_machine_code_refusals(LOCK.groups[name], (pattern,), capability)[1]
            for capability in ("7.5", "8.6", "12.0")
        ), pattern
