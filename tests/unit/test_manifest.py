"""A generation's manifest: its contents, and which unit states a deploy reads in one that lies on a host."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigwright.host.systemd import UnitState
from rigwright.serving.generation import USER, parse_manifest
from rigwright.serving.instance_units import PREFIX, listener_units, port_socket
from tests.unit.host_states import CHAT, CODE, target_generation
from tests.unit.samples import sample_artefact, sample_card, sample_instance, sample_rig

CARDS = (sample_card("8.6"), sample_card("8.6"))
RIG = sample_rig(sample_instance("chat", cards=(1, 0), parallel=2), sample_instance("code", port=8021), cards=CARDS)
AIM = target_generation(RIG)
TEXT = AIM.files["manifest.json"]
A, B = "a" * 64, "b" * 64


def make_manifest(**instances: Any) -> str:
    """A manifest with these instances."""
    return json.dumps({"instances": instances})


def test_a_deploy_reads_the_slots_that_were_written() -> None:
    found = parse_manifest(TEXT, {})
    assert found.unit_states == AIM.unit_states
    assert found.users == {"rigwright-chat", "rigwright-code"}
    assert found.variants == {"chat": "llamacpp/sample", "code": "llamacpp/sample"}
    assert found.cards == {"chat": (1, 0), "code": ()}
    assert [
        (unit_state.unit, unit_state.port, unit_state.cards, unit_state.holders, unit_state.leads_to)
        for unit_state in AIM.unit_states
    ] == [
        (CHAT, 0, {0, 1}, (), ""),
        (CODE, 0, set(), (), ""),
        (listener_units(8020)[0], 8020, set(), (port_socket(8020),), CHAT),
        (listener_units(8021)[0], 8021, set(), (port_socket(8021),), CODE),
    ]


def test_findings_of_survey_programs_about_an_instance() -> None:
    weight = RIG.roots.weight_path(sample_artefact())
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
        "units": {CHAT: AIM.unit_states[0].started_from},
        "slice": "rigwright-chat.slice",
        "user": "rigwright-chat",
        "socket": "/run/rigwright/instances/chat/api.sock",
        "weights": [weight],
    }
    assert (code["cards"], code["capacity"]) == ([], [1, 4096])
    said = json.loads(TEXT)
    assert said["listeners"][1] == {
        "port": 8021,
        "address": "127.0.0.1:8021",
        "leads_to": CODE,
        "started_from": AIM.listeners[1].unit_state.started_from,
        "units": list(listener_units(8021)),
    }
    assert (said["cards"], said["state"]) == ([one.name for one in CARDS], "/var/lib/rigwright")
    assert said["weights"] == {weight: sample_artefact().sha256}


@pytest.mark.parametrize(("socket", "port"), [({}, 8020), ({"socket": "/run/x/api.sock"}, 0)])
def test_an_instance_may_have_two_units_and_both_have_its_port_and_cards(socket: dict[str, str], port: int) -> None:
    """With a socket they have no port: that is its listener's."""
    other = "rigwright-chat-2.service"
    text = make_manifest(chat={"port": 8020, "cards": [1], "units": {other: B, CHAT: A}, **socket})
    assert parse_manifest(text, {}).unit_states == (
        UnitState(other, B, port, frozenset({1})),
        UnitState(CHAT, A, port, frozenset({1})),
    )


OLD = {"variant": "llamacpp/cpu", "port": 8020, "cards": [0], "digest": "0" * 16}


def test_a_manifest_of_before_units_were_in_it_has_the_unit_that_was_called_after_each_instance() -> None:
    text = make_manifest(chat=OLD, code={**OLD, "port": 8021, "cards": []})
    beside = {CHAT: A, CODE: B, "rigwright-power.service": A}
    assert parse_manifest(text, beside).unit_states == (
        UnitState(CHAT, A, 8020, frozenset({0})),
        UnitState(CODE, B, 8021, frozenset()),
    )
    assert [unit_state.unit for unit_state in parse_manifest(text, {CODE: B}).unit_states] == [CODE]
    assert parse_manifest(text, {}).unit_states == ()
    assert parse_manifest(text, {}).users is None


@pytest.mark.parametrize(
    ("said", "users"),
    [
        ([], set()),
        (["svc-chat"], {"svc-chat"}),
        (["svc-chat", "svc-code"], {"svc-chat", "svc-code"}),
        # one that does not say it may run as anybody
        (["svc-chat", ""], None),
        (["svc-chat", None], None),
        (["svc-chat", "Root"], None),
        (["svc-chat\n"], None),
        (["-svc"], None),
        (["s" * 33], None),
        (["s" * 32], {"s" * 32}),
    ],
)
def test_users_are_known_where_every_instance_says_whose_it_is(said: list[str | None], users: set[str] | None) -> None:
    rows = {
        f"i{at}": {"port": 8020, "cards": [], **({} if user is None else {"user": user})}
        for at, user in enumerate(said)
    }
    assert parse_manifest(make_manifest(**rows), {}).users == users


def listening(**changes: Any) -> str:
    """A manifest with one listener."""
    return json.dumps({"instances": {}, "listeners": [{"port": 8020, "leads_to": CHAT, "started_from": A} | changes]})


BAD: dict[str, str] = {
    "nothing": "",
    "no JSON": "{",
    "no table": "[]",
    "no instances": "{}",
    "instances in a list": '{"instances": []}',
    "an instance that is text": make_manifest(chat="x"),
    "a port of root's": make_manifest(chat={"port": 80, "cards": []}),
    "a port as text": make_manifest(chat={"port": "8020", "cards": []}),
    "a card below none": make_manifest(chat={"port": 8020, "cards": [-1]}),
    "a card that is true": make_manifest(chat={"port": 8020, "cards": [True]}),
    "somebody else's unit": make_manifest(chat={"port": 8020, "cards": [], "units": {"ssh.service": A}}),
    "a unit in another folder": make_manifest(
        chat={"port": 8020, "cards": [], "units": {"rigwright-../ssh.service": A}}
    ),
    "a unit on two lines": make_manifest(chat={"port": 8020, "cards": [], "units": {f"{CHAT}\n": A}}),
    "no digest": make_manifest(chat={"port": 8020, "cards": [], "units": {CHAT: ""}}),
    "a digest of another kind": make_manifest(chat={"port": 8020, "cards": [], "units": {CHAT: A[:63] + "G"}}),
    "a digest that is a number": make_manifest(chat={"port": 8020, "cards": [], "units": {CHAT: 7}}),
    "a user that is a number": make_manifest(chat={"port": 8020, "cards": [], "user": 7}),
    "a socket that is a list": make_manifest(chat={"port": 8020, "cards": [], "socket": []}),
    "a listener on a port of root's": listening(port=22),
    "a listener on a port as text": listening(port="8020"),
    "a listener on no port": json.dumps({"instances": {}, "listeners": [{"leads_to": CHAT, "started_from": A}]}),
    "a listener for somebody else's unit": listening(leads_to="ssh.service"),
    "a listener for nobody": listening(leads_to=""),
    "a listener for a listener": listening(leads_to=listener_units(8020)[0]),
    "a listener for a unit on two lines": listening(leads_to=f"{CHAT}\n"),
    "a listener without a digest": listening(started_from=""),
    "a listener with a digest on two lines": listening(started_from=f"{A}\n"),
    "listeners that are none": json.dumps({"instances": {}, "listeners": {}}),
    "text that is invalid": '{"instances": {"\\ud800": {"port": 8020, "cards": []}}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_an_invalid_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"an invalid manifest|a manifest with"):
        parse_manifest(text, {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ANY = st.fixed_dictionaries(
    {"port": st.integers(8000, 8030) | JSON, "cards": st.lists(st.integers(0, 3), max_size=2) | JSON},
    optional={
        "units": st.dictionaries(st.sampled_from([CHAT, "x.service"]), st.sampled_from([A, "x"])) | JSON,
        "socket": st.text(max_size=5) | JSON,
        "user": st.sampled_from(["svc", "root\n", "-x", ""]) | JSON,
    },
)
LISTENER = st.fixed_dictionaries(
    {
        "port": st.integers(8000, 8030) | JSON,
        "leads_to": st.sampled_from([CHAT, "x.service"]) | JSON,
        "started_from": st.sampled_from([A, "x"]) | JSON,
    }
)
WHOLE = st.fixed_dictionaries(
    {"instances": st.dictionaries(st.text(max_size=5), ANY, max_size=3)},
    optional={"listeners": st.lists(LISTENER, max_size=3) | JSON},
)


@given(st.text(max_size=20) | JSON.map(json.dumps) | WHOLE.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_manifest(text, {})
    except ValueError:
        return
    for unit_state in found.unit_states:
        assert unit_state.unit.startswith(PREFIX if unit_state.holders else "rigwright-")
        assert unit_state.port >= 1024 or (unit_state.port == 0 and not unit_state.holders)
        assert bool(unit_state.holders) == bool(unit_state.leads_to)
    assert all(USER.fullmatch(user) for user in found.users or ())
