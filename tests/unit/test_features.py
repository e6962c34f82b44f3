"""The features of an entry: each registers its part, and resolve knows none of them by name."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import pytest

from rigwright.declaration.features import FEATURES
from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.inventory_feature import RELEASE, EntryDraft, Feature, Fields, RigDraft
from rigwright.model.rig import Rig
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock

# the keys that resolve itself takes from the entry
COMMON = {"name", "inventory", "roots", "accounts", "keep_generations", "maintenance_windows", "lock", "requests"}
resolve = partial(resolve_rig, "/boxes/rig.py", "box")


@pytest.fixture
def lock() -> Lock:
    """The shipped one."""
    return Lock.load([ROOT / "locks"])


def test_features_resolve_all_fields_of_a_rig(lock: Lock) -> None:
    draft: dict[str, object] = {}

    def collect(one: RigDraft) -> Fields:
        draft.update(one.fields)
        return {}

    resolve({}, Catalog(), lock, features=(*FEATURES, Feature("last", resolve=collect)))
    assert draft.keys() | COMMON == {one.name for one in fields(Rig)}


def test_a_feature_refuses_keys_and_names_together_with_all_others(lock: Lock) -> None:
    def validate(draft: EntryDraft) -> Fields:
        draft.refuse("keep_generations", f"{draft.entry.keep_generations} is too many")
        return {}

    def look_up(draft: RigDraft) -> Fields:
        draft.select_wheels("fans", "fans")
        return {}

    cooling = Feature("cooling", validate, look_up)
    with pytest.raises(Invalid) as refused:
        resolve({"reserved_gpus": [3], "keep_generations": 7}, Catalog(), lock, features=(*FEATURES, cooling))
    assert [one.key for one in refused.value.problems] == ["box.fans", "box.keep_generations", "box.reserved_gpus[0]"]


def test_a_field_belongs_to_one_feature(lock: Lock) -> None:
    again = Feature("cooling", resolve=lambda _: {"share": None, "fs_verity": False})
    with pytest.raises(TypeError, match="cooling resolves fs_verity, share"):
        resolve({}, Catalog(), lock, features=(*FEATURES, again))


def test_allow_names_the_groups_of_packages_of_each_feature(lock: Lock) -> None:
    cooling = Feature("cooling", root_groups=("fans", f"pumps-{RELEASE}"))
    with pytest.raises(Invalid) as refused:
        resolve(
            {"allow": ["locks.fan", "locks.fans", "locks.pumps-debian-13"]},
            Catalog(),
            lock,
            features=(*FEATURES, cooling),
        )
    (problem,) = refused.value.problems
    assert problem.key == "box.allow[0]"
    assert "locks.driver-SYSTEM and locks.docker-SYSTEM and locks.pumps-SYSTEM" in problem.text
    assert 'did you mean "locks.fans"?' in problem.text
