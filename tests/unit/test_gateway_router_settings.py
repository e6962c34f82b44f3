"""The router's settings, and the owner of each key."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rigwright.gateway.request_rules import load_request_rules
from roles.gateway.host.router.keyring import Keyring
from roles.gateway.host.router.settings import Broken, Keys, read_keys, read_settings
from tests.unit.gateway_router import key_entry, model_entry

SETTINGS: dict[str, Any] = {
    "listeners": {"lan": {"keys": False, "models": ["qwen3"]}},
    "models": {"qwen3": model_entry("chat")},
    "aliases": {"gpt-4o": "qwen3"},
    "origins": [],
    "probe": {"every": 10, "timeout": 60},
    "links": "/run/links",
    "out": "/run/out",
    "rotation": "/run/rotation",
    "admin": "/run/admin.sock",
    "digest": "d",
    "fields": [one.setting for one in load_request_rules()],
}


def changed(where: str, value: object) -> dict[str, Any]:
    """The settings with another value in one place; None: without it."""
    made = copy.deepcopy(SETTINGS)
    *path, last = where.split("/")
    table = made
    for one in path:
        table = table[one]
    table[last] = value
    if value is None:
        del table[last]
    return made


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("models", None, "models/: must be an object"),
        ("models", [], "models/: must be an object"),
        ("models/qwen3", 1, "models/qwen3/: must be an object"),
        ("models/a b", model_entry("x"), "models/: must be by names of"),
        ("models/qwen3/instances", ["../x"], "models/qwen3/instances: must be a list of texts of the form"),
        ("models/qwen3/engine_name", {}, "models/qwen3/engine_name: chat is missing"),
        ("models/qwen3/engine_name", {"chat": 1}, "models/qwen3/engine_name: must be an object of texts"),
        ("models/qwen3/paths", ["Chat"], "models/qwen3/paths: must be a list of texts of the form"),
        ("models/qwen3/sticky", "header:X Y", "models/qwen3/sticky: must be of the form"),
        ("listeners/lan/keys", 1, "listeners/lan/keys: must be true or false"),
        ("listeners/lan/models", "qwen3", "listeners/lan/models: must be a list of texts"),
        ("aliases/gpt-4o", "qwen4", "aliases/gpt-4o: there is no model qwen4"),
        ("aliases/qwen3", "qwen3", "aliases/qwen3: a model has this name"),
        ("probe/every", 0, "probe/every: must be a number of seconds above 0"),
        ("probe/timeout", True, "probe/timeout: must be a number of seconds above 0"),
        ("digest", None, "digest: must be a text"),
        ("wake", 1, "wake/: must be an object"),
        ("wake", {"socket": "/run/x"}, "wake/states: must be a text"),
        ("fields", None, "fields: must be a list"),
        ("fields", [{"kind": "harmless"}], "fields/0/kind: must be one of absent"),
        ("models/qwen3/allow_fields", ["chat_templat"], "models/qwen3/allow_fields: there is no rule chat_templat"),
        ("models/qwen3/salted", 1, "models/qwen3/salted: must be true or false"),
        ("models/qwen3/usage_on_request", None, "models/qwen3/usage_on_request: must be true or false"),
    ],
)
def test_settings_that_are_wrong_say_where(tmp_path: Path, where: str, value: object, said: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(SETTINGS))
    assert read_settings(file).instances == {"chat": "chat.gguf"}
    file.write_text(json.dumps(changed(where, value)))
    with pytest.raises(Broken) as broken:
        read_settings(file)
    assert str(broken.value).startswith(f"settings.json: {said}")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "must be a list"),
        ([1], "keys/0/: must be an object"),
        (
            [key_entry("a", "a"), key_entry("a", "b")],
            "keys/1/id: must be the first 16 digits of sha256, and one key's alone",
        ),
        ([key_entry("a", "a", id="0" * 16)], "keys/0/id: must be the first 16"),
        ([key_entry("a", "a b")], "keys/0/name: must be of the form"),
        ([key_entry("a", "a\r\nX: y")], "keys/0/name: must be of the form"),
        ([key_entry("a", "a", sha256="A" * 64)], "keys/0/sha256: must be of the form"),
        ([key_entry("a", "a", requests_per_minute=0)], "keys/0/requests_per_minute: must be a whole number above 0"),
        ([key_entry("a", "a", streams=1.5)], "keys/0/streams: must be a whole number above 0, or null"),
        ([key_entry("a", "a", models=[1])], "keys/0/models: must be a list of texts"),
        ([key_entry("a", "a", evict=0)], "keys/0/evict: must be true or false"),
        ([key_entry("a", "a", wake=None)], "keys/0/wake: must be true or false"),
    ],
)
def test_keys_that_are_wrong_say_where(tmp_path: Path, keys: object, said: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    with pytest.raises(Broken, match=said):
        read_keys(file)


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"{", "not JSON"), (b"[" * 9999, "not JSON"), (b"\xff", "not JSON")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    for read, file in ((read_settings, tmp_path / "settings.json"), (read_keys, tmp_path / "keys.json")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(Broken, match=f"{file.name}: .*{said}"):
            read(file)


class ManualClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def keyring(folder: Path, clock: ManualClock, *keys: dict[str, object]) -> Keyring:
    return Keyring(read(folder, *keys), clock)


def read(folder: Path, *keys: dict[str, object]) -> Keys:
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    return read_keys(folder / "keys.json")


def test_requests_come_back_evenly(tmp_path: Path) -> None:
    clock = ManualClock()
    ring = keyring(tmp_path, clock, key_entry("a", "a", requests_per_minute=3), key_entry("b", "b"))
    one, free = (ring.keys.by_id[str(key_entry(clear, clear)["id"])] for clear in "ab")
    assert [ring.wait(one) for _ in range(4)] == [0, 0, 0, 20]
    assert not any(ring.wait(free) for _ in range(1000))
    clock.now += 15
    assert ring.wait(one) == 5
    clock.now += 5
    assert [ring.wait(one) for _ in range(2)] == [0, 20]
    # an hour does not give more than a minute's
    clock.now += 3600
    assert [ring.wait(one) for _ in range(4)] == [0, 0, 0, 20]


def test_new_keys_do_not_allow_more_requests(tmp_path: Path) -> None:
    clock = ManualClock()
    alice = key_entry("a", "a", requests_per_minute=2)
    ring = keyring(tmp_path, clock, alice)
    one = ring.keys.by_id[str(alice["id"])]
    assert [ring.wait(one) for _ in range(3)] == [0, 0, 30]
    ring.change(read(tmp_path, alice, key_entry("b", "b")))
    assert ring.wait(one) == 30
    ring.change(read(tmp_path, {**alice, "requests_per_minute": 60}))
    assert ring.wait(ring.keys.by_id[one.id]) == 1


def test_a_hash_that_begins_like_another_keys_does_not_count(tmp_path: Path) -> None:
    right = key_entry("a", "a")
    ring = keyring(tmp_path, ManualClock(), {**right, "sha256": str(right["id"]) + "0" * 48})
    assert ring.whose("Bearer a") is None
    assert keyring(tmp_path, ManualClock(), right).whose("Bearer a") is not None


def test_a_key_that_ends_opens_until_then(tmp_path: Path) -> None:
    new, old = key_entry("new", "alice"), key_entry("old", "alice")
    file, calendar = tmp_path / "keys.json", ManualClock()
    file.write_text(json.dumps({"keys": [new], "ending": [{**old, "until": 1060}]}))
    ring = Keyring(read_keys(file), ManualClock(), calendar)
    assert {one.name for word in ("new", "old") if (one := ring.whose(f"Bearer {word}"))} == {"alice"}
    assert ring.whose("Bearer old")
    calendar.now = 1060.0
    assert ring.whose("Bearer old") is None
    assert ring.whose("Bearer new")


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (5, "ending: must be a list"),
        ([key_entry("a", "a")], "ending/0/until: must be seconds since 1970"),
        (
            [{**key_entry("b", "a"), "until": 5}, {**key_entry("b", "a"), "until": 6}],
            "ending/1/id: must be the first 16",
        ),
    ],
)
def test_one_that_ends_says_when(tmp_path: Path, ending: object, said: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [], "ending": ending}))
    with pytest.raises(Broken, match=said):
        read_keys(file)
