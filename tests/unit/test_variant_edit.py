"""An inventory's text with another variant in it: exactly one literal's bytes, or a refusal that names the line."""

from collections.abc import Callable
from typing import Any

import pytest

from rigwright.declaration.variant_selection import VariantSwitch, apply_switch, edit_inventory, instances_sharing_name
from rigwright.problems import Invalid

HEAD = "from rigwright.inventory import hosts\n\n"
TO = VariantSwitch("chat", "llamacpp/new")
CHAT = '"chat": {"variant": "llamacpp/old", "port": 8020}'
BOX = f'rigs = hosts({{"box": {{"instances": {{{CHAT}}}}}}})\n'


def changed(text: str, rig: str = "box") -> bytes:
    return edit_inventory("rig.py", text.encode(), rig, TO)


PLAIN = {
    "written out": BOX,
    "single quotes": BOX.replace('"llamacpp/old"', "'llamacpp/old'"),
    "over lines, with comments and no spaces": """rigs = hosts(
    {   # a box
        "box": {
            "instances": {"code": {"variant": "llamacpp/other"},
              "chat": {"port":8020,  "variant":"llamacpp/old"  # the old one: "llamacpp/old"
              }},
        },
    },
    ssh_user="ops",
)
""",
    "other lines' ends": BOX.replace("rigs", "# one\r\n# two\r\nrigs").replace("\n", "\r\n"),
    "letters of several bytes before it": BOX.replace('"box": {', '"box": {"note": "größer ∞", '),
    "a form feed": "\f\n" + BOX,
    "by names that are given once": f"CHAT = {{{CHAT}}}\nBOX: dict = {{'instances': CHAT}}\n"
    "rigs = hosts({'box': BOX})\n",
    "a literal by name": BOX.replace('"llamacpp/old"', "SERVED").replace("rigs", 'SERVED = "llamacpp/old"\nrigs'),
    "shared by all boxes": f"rigs = hosts({{'box': {{}}}}, instances={{{CHAT}}})\n",
    "the last of two that are the same": BOX.replace(CHAT, f'"chat": {{"variant": "llamacpp/first"}}, {CHAT}'),
    "what is spread before it": BOX.replace('{"variant"', '{**DEMO, "variant"'),
    "one of two groups": BOX.replace("box", "other").replace("old", "its") + BOX.replace("rigs", "gpus"),
    "hosts by another way": BOX.replace("hosts", "rigwright.inventory.hosts"),
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=list(PLAIN))
def test_the_literal_alone_is_replaced(text: str) -> None:
    # the last one that is quoted, for a comment quotes it too
    quoted = '"llamacpp/old"' if text.count('"llamacpp/old"') else "'llamacpp/old'"
    made = quoted.replace("old", "new")
    assert changed(HEAD + text) == (HEAD + text).replace(quoted, made, 1).encode()
    assert b"llamacpp/new" in changed(HEAD + text)


FEWER = VariantSwitch("chat", "llamacpp/new", (1,))
ON_CARDS = BOX.replace('"port"', '"cards": [0, 1], "port"')
CARDS = {
    "a list": "[0, 1]",
    "a tuple": "(0, 1)",
    "a list over lines": "[\n    0,\n    1,\n]",
    "the same length": "[0]",
    "none": "[]",
}


@pytest.mark.parametrize("written", CARDS.values(), ids=list(CARDS))
@pytest.mark.parametrize("cards", [(1,), (0, 1, 12), ()])
def test_the_cards_are_replaced_with_it(written: str, cards: tuple[int, ...]) -> None:
    before = ON_CARDS.replace("[0, 1]", written)
    for text in (before, before.replace('"port": 8020', "").replace('{"variant"', '{"port": 8020, "variant"')):
        switch = VariantSwitch("chat", "llamacpp/new", cards)
        made = edit_inventory("rig.py", (HEAD + text).encode(), "box", switch)
        assert made == (HEAD + text).replace("old", "new").replace(written, str(list(cards))).encode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOX, "box.instances.chat.cards: line 3 has no cards in chat, so the file is unchanged: set [1] there by hand"),
        (ON_CARDS.replace("[0, 1]", "list(range(2))"), "chat.cards: line 3 is not a plain literal"),
        (ON_CARDS.replace("[0, 1]", "[0, # the near one\n1]"), "chat.cards: line 3 is not a plain literal"),
        (ON_CARDS.replace('"llamacpp/old"', "SERVED"), "chat.variant: line 3 has SERVED for it"),
    ],
)
def test_cards_that_are_not_plain_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        edit_inventory("rig.py", (HEAD + text).encode(), "box", FEWER)
    assert said in str(refused.value)


REFUSED: dict[str, tuple[str, str]] = {
    "a name of another module's": (BOX.replace('"llamacpp/old"', "SERVED"), "line 3 has SERVED for it"),
    "a name that is given twice": (
        BOX.replace('"llamacpp/old"', "SERVED").replace("rigs", 'SERVED = "a/b"\nSERVED = "a/c"\nrigs'),
        "line 5 has SERVED for it",
    ),
    "put together": (BOX.replace('"llamacpp/old"', '"llamacpp/" + NAME'), "line 3 has 'llamacpp/' + NAME for it"),
    "formatted": (BOX.replace('"llamacpp/old"', 'f"llamacpp/{NAME}"'), "line 3 has f'llamacpp/{NAME}' for it"),
    "in two pieces": (BOX.replace('"llamacpp/old"', '"llamacpp/" "old"'), "line 3 is not a plain literal"),
    "with a prefix": (BOX.replace('"llamacpp/old"', 'r"llamacpp/old"'), "line 3 is not a plain literal"),
    "with an escape": (BOX.replace('"llamacpp/old"', r'"llamacpp\x2fold"'), "line 3 is not a plain literal"),
    "three quotes": (BOX.replace('"llamacpp/old"', '"""llamacpp/old"""'), "line 3 is not a plain literal"),
    "another one may be after it": (BOX.replace('"port": 8020', "**MORE"), "line 3 has **MORE in chat"),
    "tables put together": (BOX.replace(f"{{{CHAT}}}", "BASE | {}"), "line 3 has BASE | {} for instances"),
    "in a loop": (
        "rigs = hosts({name: {} for name in NAMES})\n",
        "line 3 has {name: {} for name in NAMES} for hosts()",
    ),
    "a key that is no literal": (BOX.replace('"box"', "NAME"), "line 3 has the key NAME in hosts()"),
    "not there": (BOX.replace("chat", "code"), "line 3 has no chat in instances"),
    "not in a call of ours": ("rigs = [('box', {})]\n", "does not pass box to hosts() in a single literal table"),
    "twice": (BOX + BOX, "line 4 does not pass box to hosts() in a single literal table"),
    "a table from a function": (BOX.replace(BOX[13:-2], "boxes()"), "line 3 has boxes() for hosts()"),
    "no Python": ("rigs = hosts({\n", "line 3: '{' was never closed"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=list(REFUSED))
def test_computed_values_are_refused_with_their_line(text: str, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        changed(HEAD + text)
    assert str(refused.value).startswith("rig.py: box.instances.chat.variant: ")
    assert said in str(refused.value)
    if "Python" not in text and "was never" not in said:
        assert 'set "llamacpp/new" there by hand' in str(refused.value)


def test_instances_that_share_a_name_get_the_variant_together() -> None:
    models = {"m": {"instances": ["chat", "code"]}, "n": {"instances": ["third"]}}
    instances = {name: {"variant": "a/b"} for name in ("chat", "code", "third")}
    data = {"entry": {"instances": instances, "gateway": {"models": models}}}
    assert instances_sharing_name(data, "chat") == ("chat", "code")
    made: Any = apply_switch(data, TO)
    assert {name: one["variant"] for name, one in made["entry"]["instances"].items()} == {
        "chat": "llamacpp/new",
        "code": "llamacpp/new",
        "third": "a/b",
    }
    both = BOX.replace(CHAT, f'{CHAT}, "code": {{"variant": "llamacpp/old", "port": 8021}}')
    text = (HEAD + both).encode()
    assert edit_inventory("rig.py", text, "box", TO, ("code",)) == text.replace(b"llamacpp/old", b"llamacpp/new")


@pytest.mark.parametrize("models", [None, [], {"m": None}, {"m": {}}, {"m": {"instances": ["other"]}}])
def test_of_a_gateway_that_is_written_otherwise_an_instance_shares_nothing(models: object) -> None:
    assert instances_sharing_name({"entry": {"gateway": {"models": models}}}, "chat") == ("chat",)


def test_host_data_gets_the_cards_of_a_switch() -> None:
    data = {"entry": {"instances": {"chat": {"variant": "a/b", "cards": [0, 1]}}}}
    assert apply_switch(data, FEWER) == {"entry": {"instances": {"chat": {"variant": "llamacpp/new", "cards": [1]}}}}


def test_host_data_is_switched_and_stays_as_it_was() -> None:
    data = {"name": "box", "entry": {"instances": {"chat": {"variant": "a/b", "port": 1}}}}
    made = apply_switch(data, TO)
    assert made == {"name": "box", "entry": {"instances": {"chat": {"variant": "llamacpp/new", "port": 1}}}}
    assert data["entry"] == {"instances": {"chat": {"variant": "a/b", "port": 1}}}


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: {"entry": {}},
        lambda: {"entry": {"instances": {"chit": {"variant": "a/b"}}}},
        lambda: {"entry": {"instances": {"chat": "a/b"}}},
        lambda: {"entry": {"instances": []}},
    ],
)
def test_an_instance_that_is_not_declared_is_not_switched(make: Callable[[], object]) -> None:
    with pytest.raises(Invalid, match='there is no instance "chat"'):
        apply_switch(make(), TO)
