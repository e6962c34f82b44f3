"""A generation's manifest: what it says, and which slots a deploy reads in one that lies on a host."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigwright.serving.manifest import read
from rigwright.serving.slots import Slot
from tests.unit.samples import artefact, card, instance, rig
from tests.unit.states import CHAT, CODE, wanted

CARDS = (card("8.6"), card("8.6"))
RIG = rig(instance("chat", cards=(1, 0), slots=2), instance("code", port=8021), cards=CARDS)
AIM = wanted(RIG)
TEXT = AIM.files["manifest.json"]
A, B = "a" * 64, "b" * 64


def of(**instances: Any) -> str:
    """A manifest with these instances."""
    return json.dumps({"instances": instances})


def test_a_deploy_reads_the_slots_that_were_written() -> None:
    assert read(TEXT, {}).slots == AIM.slots
    assert [(slot.unit, slot.port, slot.cards) for slot in AIM.slots] == [(CHAT, 8020, {0, 1}), (CODE, 8021, set())]


def test_what_programs_that_look_at_a_box_find_of_an_instance() -> None:
    weight = RIG.weight_path(artefact())
    (chat, code) = (json.loads(TEXT)["instances"][name] for name in ("chat", "code"))
    assert chat == {
        "variant": "llamacpp/sample",
        "kind": "llama.cpp",
        "port": 8020,
        "listener": "127.0.0.1:8020",
        "cards": [1, 0],
        "engine": "plain",
        "capacity": [2, 2048],
        "digest": AIM.units[0].digest,
        "units": {CHAT: AIM.slots[0].started_from},
        "slice": "rigwright.slice",
        "user": "rigwright",
        "weights": [weight],
    }
    assert (code["cards"], code["capacity"]) == ([], [1, 4096])
    said = json.loads(TEXT)
    assert (said["cards"], said["state"]) == ([one.name for one in CARDS], "/var/lib/rigwright")
    assert said["weights"] == {weight: artefact().sha256}


def test_an_instance_may_have_two_units_and_both_have_its_port_and_cards() -> None:
    other = "rigwright-chat-2.service"
    text = of(chat={"port": 8020, "cards": [1], "units": {other: B, CHAT: A}})
    assert read(text, {}).slots == (
        Slot(other, B, 8020, frozenset({1})),
        Slot(CHAT, A, 8020, frozenset({1})),
    )


OLD = {"variant": "llamacpp/cpu", "port": 8020, "cards": [0], "digest": "0" * 16}


def test_a_manifest_of_before_units_were_in_it_has_the_unit_that_was_called_after_each_instance() -> None:
    text = of(chat=OLD, code={**OLD, "port": 8021, "cards": []})
    beside = {CHAT: A, CODE: B, "rigwright-power.service": A}
    assert read(text, beside).slots == (
        Slot(CHAT, A, 8020, frozenset({0})),
        Slot(CODE, B, 8021, frozenset()),
    )
    assert [slot.unit for slot in read(text, {CODE: B}).slots] == [CODE]
    assert read(text, {}).slots == ()


BAD: dict[str, str] = {
    "nothing": "",
    "no JSON": "{",
    "no table": "[]",
    "no instances": "{}",
    "instances in a list": '{"instances": []}',
    "an instance that is text": of(chat="x"),
    "a port of root's": of(chat={"port": 80, "cards": []}),
    "a port as text": of(chat={"port": "8020", "cards": []}),
    "a card below none": of(chat={"port": 8020, "cards": [-1]}),
    "a card that is true": of(chat={"port": 8020, "cards": [True]}),
    "somebody else's unit": of(chat={"port": 8020, "cards": [], "units": {"ssh.service": A}}),
    "a unit in another folder": of(chat={"port": 8020, "cards": [], "units": {"rigwright-../ssh.service": A}}),
    "a unit on two lines": of(chat={"port": 8020, "cards": [], "units": {f"{CHAT}\n": A}}),
    "no digest": of(chat={"port": 8020, "cards": [], "units": {CHAT: ""}}),
    "a digest of another kind": of(chat={"port": 8020, "cards": [], "units": {CHAT: A[:63] + "G"}}),
    "a digest that is a number": of(chat={"port": 8020, "cards": [], "units": {CHAT: 7}}),
    "text that is none": '{"instances": {"\\ud800": {"port": 8020, "cards": []}}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a manifest"):
        read(text, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ANY = st.fixed_dictionaries(
    {"port": st.integers(8000, 8030) | JSON, "cards": st.lists(st.integers(0, 3), max_size=2) | JSON},
    optional={"units": st.dictionaries(st.sampled_from([CHAT, "x.service"]), st.sampled_from([A, "x"])) | JSON},
)


@given(st.text(max_size=20) | JSON.map(json.dumps) | st.dictionaries(st.text(max_size=5), ANY).map(lambda i: of(**i)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = read(text, {})
    except ValueError:
        return
    assert all(slot.unit.startswith("rigwright-") and slot.port >= 1024 for slot in found)
