"""The state file of a rollout: its mode, its types, and what is refused."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from rigwright.rollout.state_file import (
    BoxRecord,
    RolloutSettings,
    RolloutState,
    UnreadableState,
    describe_box,
    describe_other_inputs,
    load_state,
    save_state,
    state_path,
)

A, B = "a" * 64, "b" * 64


def make_state(*batches: tuple[str, ...], soak: int = 0, **settings: Any) -> RolloutState:
    """A rollout that has not begun."""
    listed = batches or (("one",), ("two", "three"))
    return RolloutState(
        identifier="0123456789ab",
        started="2026-11-29T07:00:00Z",
        inventory_digest=A,
        supply_digest=B,
        settings=RolloutSettings(soak_minutes=soak, **settings),
        batches=listed,
        boxes={name: BoxRecord(generation=1) for batch in listed for name in batch},
    )


def test_it_lies_next_to_the_inventory() -> None:
    assert state_path("/x/fleet.py") == Path("/x/fleet.rollout.json")


def test_a_saved_state_is_read_again_and_its_owner_alone_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "rig.rollout.json"
    assert load_state(path) is None
    path.write_text("{}")
    path.chmod(0o644)
    record = BoxRecord(state="restored", reason="a check", before=1, boot="0123456789ab", step=3, is_out=True)
    state = make_state().with_records({"two": record})
    save_state(path, state)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_state(path) == state
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def write_content(path: Path, **changes: object) -> None:
    content = json.loads(make_state().model_dump_json()) | changes
    path.write_text(json.dumps(content))
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "something"}, "format: Input should be 'rigwright rollout'"),
        ({"version": 2}, "version: Input should be 1"),
        ({"extra": 1}, "extra: Extra inputs are not permitted"),
        ({"phase": "gone"}, "phase: Input should be"),
        ({"batches": []}, "batches: Tuple should have at least 1 item"),
        ({"batches": [["one"], ["one"], ["two", "three"]]}, "batches and boxes name different hosts"),
        ({"boxes": {}}, "batches and boxes name different hosts"),
        ({"batches": [["../one"]], "boxes": {}}, "batches.0.0"),
        ({"inventory_digest": "x"}, "inventory_digest"),
        ({"settings": {"reboot": "yes please", "soak_minutes": 0}}, "settings.reboot"),
        ({"settings": {"windows": ["some day"]}}, "settings.windows.0"),
        ({"identifier": "../../../../etc"}, "identifier"),
    ],
)
def test_foreign_content_is_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    path = tmp_path / "rig.rollout.json"
    write_content(path, **changes)
    with pytest.raises(UnreadableState) as refused:
        load_state(path)
    assert str(refused.value).startswith(f"{path}: is no rollout's state: ")
    assert reason in str(refused.value)


def test_a_file_that_others_can_read_or_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rig.rollout.json"
    write_content(path)
    path.chmod(0o640)
    with pytest.raises(UnreadableState, match="open to other users"):
        load_state(path)
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(UnreadableState, match="not a regular file"):
        load_state(link)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rig.rollout.json"
    write_content(path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(UnreadableState, match="is no rollout's state"):
        load_state(path)


def test_other_inputs_are_named() -> None:
    state = make_state()
    assert describe_other_inputs(state, A, B) == ""
    assert describe_other_inputs(state, B, B).startswith("the inventory (or catalog/ or patches/ next to it) changed")
    assert describe_other_inputs(state, A, A).startswith("a lock or a bundle changed since the rollout of 2026-11-29")


def test_each_box_has_its_state_and_generation() -> None:
    assert describe_box("a", BoxRecord()) == "a: untouched"
    assert describe_box("a", BoxRecord(generation=3)) == "a: untouched, generation 3"
    assert describe_box("a", BoxRecord(state="failed", is_out=True)).endswith("no generation, out of rotation")
    failed = BoxRecord(state="restored", generation=3, reason="S01 fails")
    assert describe_box("a", failed) == "a: failed its gate, rolled back, generation 3: S01 fails"
