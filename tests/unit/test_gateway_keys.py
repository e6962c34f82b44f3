"""The file of a gateway's keys: valid and refused texts, how it is written, and the hosts' part of it."""

import hashlib
import json
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.gateway import keyring
from rigwright.gateway.key_models import find_unknown_key_models
from rigwright.gateway.keyring import ClientKey, ClientKeyring, RotatedKey
from rigwright.problems import Invalid

ONE, TWO, THREE = (letter * 64 for letter in "abc")
UNTIL = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
RING = ClientKeyring(
    keys={
        "zoe": ClientKey(sha256=ONE, made="2026-11-22"),
        "alice": ClientKey(
            sha256=TWO,
            models=("qwen3", "org/other:8b"),
            requests_per_minute=60,
            streams=8,
            made="2026-11-20",
            old=RotatedKey(sha256=THREE, until=UNTIL),
        ),
    }
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(path: Path, content: str | bytes) -> list[str]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(Invalid) as caught:
        keyring.load_keyring(path)
    return [str(problem).removeprefix(f"{path}: ") for problem in caught.value.problems]


def test_a_written_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "gateway-keys.toml"
    assert keyring.load_keyring(path).keys == {}
    keyring.dump(path, RING)
    assert keyring.load_keyring(path).keys == RING.keys
    assert (path.stat().st_mode & 0o777, names(tmp_path)) == (0o600, [path.name])
    assert [line for line in path.read_text().splitlines() if line.startswith("[")] == [
        "[keys.alice]",
        "[keys.zoe]",
        "[version]",
    ]
    text = path.read_text()
    keyring.dump(path, ClientKeyring(keys=dict(reversed(RING.keys.items()))))
    assert path.read_text() == text


def test_a_link_stays_one_and_other_modes_do_not(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there/keys", tmp_path / "gateway-keys.toml"
    real.write_text("")
    real.chmod(0o644)
    link.symlink_to(real)
    keyring.dump(link, RING)
    assert link.is_symlink()
    assert (keyring.load_keyring(real).keys, real.stat().st_mode & 0o777) == (RING.keys, 0o600)


def test_one_that_cannot_be_written_is_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gateway-keys.toml"
    keyring.dump(path, RING)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        keyring.dump(path, ClientKeyring())
    assert (keyring.load_keyring(path).keys, names(tmp_path)) == (RING.keys, [path.name])


def test_hosts_are_given_a_row_a_key_and_nothing_that_it_could_be_guessed_from() -> None:
    given = json.loads(keyring.keys_json(RING))
    assert given.pop("version") == {"serial": 1, "id": RING.current_version.id}
    alice = {"name": "alice", "models": ["qwen3", "org/other:8b"], "requests_per_minute": 60, "streams": 8}
    assert given == {
        "keys": [
            {"id": TWO[:16], "sha256": TWO, **alice},
            {
                **{"id": ONE[:16], "name": "zoe", "sha256": ONE},
                **{"models": None, "requests_per_minute": None, "streams": None},
            },
        ],
        "ending": [{"id": THREE[:16], "sha256": THREE, **alice, "until": int(UNTIL.timestamp())}],
    }
    assert keyring.keys_json(ClientKeyring()).startswith('{"keys":[],"ending":[],"version":{"serial":1,"id":"')


def test_a_right_that_a_key_lacks_is_written_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "gateway-keys.toml"
    keys = {"alice": ClientKey(sha256=ONE, evict=False, made="2026-11-22")}
    keys |= {"zoe": ClientKey(sha256=TWO, wake=False, made="2026-11-22")}
    keyring.dump(path, ClientKeyring(keys=keys))
    assert re.findall("(?m)^(?:wake|evict) = .*", path.read_text()) == ["evict = false", "wake = false"]
    found = keyring.load_keyring(path)
    assert found.keys == keys
    rights = [{key: row[key] for key in ("wake", "evict") if key in row} for row in keyring.key_rows(found)]
    assert rights == [{"evict": False}, {"wake": False}]
    # an older file keeps its version
    assert "wake" not in keyring.keys_json(RING) and "evict" not in keyring.keys_json(RING)


def test_a_key_has_as_much_chance_in_it_as_was_asked_for() -> None:
    made = {keyring.generate_key() for _ in range(50)}
    assert len(made) == 50
    assert all(re.fullmatch(r"rw-[A-Za-z0-9_-]{43}", one) for one in made)
    clear = made.pop()
    assert keyring.hash_key(clear) == hashlib.sha256(clear.encode()).hexdigest()


def test_the_key_before_goes_when_its_time_has_come() -> None:
    alice = RING.keys["alice"]
    assert alice.without_expired(UNTIL - timedelta(seconds=1)) == alice
    assert alice.without_expired(UNTIL).old is None


TABLE = f'[keys.alice]\nsha256 = "{ONE}"\nmade = 2026-11-22\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[keys.alice]\n", "keys.alice.made: missing"),
        (TABLE.replace("sha256", "sha25"), 'keys.alice.sha25: unknown key; did you mean "sha256"?'),
        (TABLE.replace("keys.alice", "key.alice"), 'key: unknown key; did you mean "keys"?'),
        (TABLE.replace(ONE, "rw-secret"), "keys.alice.sha256: 'rw-secret' is refused: must be 64 lowercase"),
        (TABLE.replace(ONE, ONE.upper()), "is refused: must be 64 lowercase hexadecimal digits"),
        (TABLE + "models = []\n", "keys.alice.models: [] is refused: must be a non-empty list"),
        (TABLE + 'models = ["a\\n"]\n', "is refused: must be a model's name"),
        (TABLE + 'models = "qwen3"\n', "must be a list"),
        (TABLE + "streams = 0\n", "keys.alice.streams: 0 is refused: must be at least 1"),
        (TABLE + "streams = true\n", "keys.alice.streams: True is refused: must be a whole number"),
        (TABLE + "requests_per_minute = 1000001\n", "must be at most 1000000"),
        (TABLE + 'evict = "no"\n', "keys.alice.evict: 'no' is refused: must be true or false"),
        (TABLE + "wake = 0\n", "keys.alice.wake: 0 is refused: must be true or false"),
        (TABLE + "evcit = false\n", 'keys.alice.evcit: unknown key; did you mean "evict"?'),
        (TABLE.replace("2026-11-22", "2026-11-22T10:00:00Z"), "keys.alice.made: "),
        (TABLE.replace("2026-11-22", '"today"'), "is refused: must be a day, such as"),
        (TABLE.replace("alice", '"../x"'), "keys.../x: '../x' is refused: must be at most 48 lowercase letters"),
        (TABLE + f'old = {{sha256 = "{TWO}"}}\n', "keys.alice.old.until: missing"),
        (TABLE + f'old = {{sha256 = "{TWO}", until = 2026-11-22T10:00:00}}\n', "must be a time with its zone"),
        (TABLE + f'old = {{sha256 = "{TWO}", until = "later"}}\n', "must be a time with its zone"),
        (
            TABLE + f'old = {{sha256 = "{ONE}", until = 2026-11-22T10:00:00Z}}\n',
            'keys.alice.old.sha256: "aaaaaaaaaaaaaaaa..." is refused: alice has a key with the same prefix',
        ),
        (
            TABLE + TABLE.replace("alice", "bob").replace(ONE, ONE[:16] + TWO[:48]),
            'keys.bob.sha256: "aaaaaaaaaaaaaaaa..." is refused: alice has a key with the same prefix',
        ),
        (TABLE + TABLE, "the file: cannot be read as TOML"),
        (b"\xff\xfe", "the file: cannot be read as TOML"),
        ("keys = 5\n", "keys: 5 is refused: must be a table of names"),
        ("version = 5\n", "version: 5 is refused: must be a table of keys"),
        ('[version]\nid = "0123456789abcdef"\n', "version.serial: missing"),
        ('[version]\nserial = 0\nid = "0123456789abcdef"\n', "version.serial: 0 is refused: must be at least 1"),
        ('[version]\nserial = 1\nid = "x"\n', "version.id: 'x' is refused: must be 16 lowercase hexadecimal digits"),
        ('[version]\nserial = 1\nid = "0123456789abcdef"\nbefore = ["x"]\n', "version.before[0]: 'x' is refused"),
    ],
    ids=range(30),
)
def test_problems_are_refused_with_their_places(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert any(said in line for line in refusal(tmp_path / "gateway-keys.toml", content)), said


def test_special_or_endless_files_are_refused(tmp_path: Path) -> None:
    large, pipe, dangling = tmp_path / "large", tmp_path / "pipe", tmp_path / "dangling"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(pipe)
    dangling.symlink_to(tmp_path / "gone")
    for path in (large, pipe, dangling, tmp_path, Path("/dev/zero")):
        with pytest.raises(Invalid, match="must be a file of at most"):
            keyring.load_keyring(path)
    with pytest.raises(Invalid, match="File name too long"):
        keyring.load_keyring(tmp_path / ("a" * 300))


def test_a_model_that_another_inventory_of_the_folder_names_may_be_in_the_file_of_keys(tmp_path: Path) -> None:
    keyring.dump(
        tmp_path / keyring.FILE,
        ClientKeyring(keys={"alice": ClientKey(sha256=ONE, models=("small", "fast", "fsat"), made="2026-11-22")}),
    )
    gateway = SimpleNamespace(keys_file=keyring.FILE, models={"small": None}, aliases={})
    offers: Any = [(str(tmp_path / "one.py"), gateway, ["small"])]
    found = [str(one) for one in find_unknown_key_models(offers)]
    assert [re.sub(".*models: ", "", one) for one in found] == [
        'there is no model "fast"; allowed: small',
        'there is no model "fsat"; allowed: small',
    ]
    (tmp_path / "two.py").write_text(
        "rigs = hosts({'b': {'gateway': {'aliases': {'fast': 'small'}}}})\nraise SystemExit\n"
    )
    (tmp_path / "three.py").write_text("no Python at all\0")
    (one,) = find_unknown_key_models(offers)
    assert "fsat" in one.text
