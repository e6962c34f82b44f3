"""Versions of a keys file: which of two was made from the other, and what one would do where the other is."""

from pathlib import Path

import pytest

from rigwright.gateway import keyring
from rigwright.gateway.keyring import ClientKey, ClientKeyring
from rigwright.gateway.keys_file_version import (
    HIGHEST,
    HISTORY,
    HostVersion,
    KeyVersion,
    describe_effect,
    is_replaceable,
    next_version,
    parse_host_version,
    version_for,
)


def key(letter: str, **rights: object) -> ClientKey:
    return ClientKey.model_validate({"sha256": letter * 64, "made": "2026-11-22", **rights})


def changed(ring: ClientKeyring, name: str, letter: str | None) -> ClientKeyring:
    """The next version, as a command writes it."""
    made = ring.with_key(name, key(letter) if letter else None)
    return made.model_copy(update={"version": made.current_version})


def advanced(ring: ClientKeyring) -> ClientKeyring:
    """The same keys as their next version, as a deliberate replacement makes it."""
    return ring.model_copy(update={"version": next_version(ring.current_version, keyring._versioned_content(ring))})


FIRST = changed(ClientKeyring(), "alice", "a")
REVOKED = changed(FIRST, "alice", None)
LATER = changed(REVOKED, "bob", "b")
FORK = changed(FIRST, "carol", "c")
LONGER = changed(changed(FORK, "dave", "d"), "eve", "e")
EDITED = REVOKED.model_copy(update={"keys": {"zoe": key("f")}})
EDITED_OLDER = FIRST.model_copy(update={"keys": {"zoe": key("f")}})
UNVERSIONED = ClientKeyring(keys=FIRST.keys)


@pytest.mark.parametrize(
    ("host", "incoming", "taken"),
    [
        (FIRST, FIRST, True),
        (FIRST, REVOKED, True),
        (FIRST, LATER, True),
        (REVOKED, FIRST, False),
        (LATER, FIRST, False),
        (REVOKED, FORK, False),
        (REVOKED, LONGER, False),
        (FORK, REVOKED, False),
        (REVOKED, EDITED, True),
        (LATER, EDITED, False),
        (REVOKED, EDITED_OLDER, False),
        (REVOKED, UNVERSIONED, False),
        (FORK, advanced(FORK), True),
        (REVOKED, advanced(FORK), False),
        (advanced(FORK), FORK, False),
        (advanced(FORK), LONGER, False),
        (advanced(FORK), changed(advanced(FORK), "eve", "e"), True),
    ],
)
def test_a_host_takes_keys_that_were_made_from_its_own(host, incoming, taken):
    assert is_replaceable(incoming.current_version, host.current_version.id) is taken
    assert is_replaceable(incoming.current_version, "")


def test_each_change_raises_the_serial() -> None:
    rings = (ClientKeyring(), FIRST, REVOKED, LATER, FORK, EDITED, UNVERSIONED, advanced(FORK))
    assert [ring.current_version.serial for ring in rings] == [1, 1, 2, 3, 2, 3, 1, 3]


def test_a_version_keeps_to_its_bounds() -> None:
    version = version_for(None, "0")
    for number in range(1, HISTORY + 9):
        version = version_for(version, str(number))
    assert (len(version.before), version.serial) == (HISTORY, HISTORY + 9)
    after = version_for(KeyVersion(serial=HIGHEST, id="0" * 16), "1")
    assert (after.serial, after.before, version_for(after, "1")) == (HIGHEST, ("0" * 16,), after)


def test_a_file_keeps_its_version(tmp_path: Path) -> None:
    path = tmp_path / "gateway-keys.toml"
    for ring in (FIRST, LONGER, advanced(FORK), EDITED):
        keyring.dump(path, ring)
        assert keyring.read_keys_file(path).version == ring.current_version
    written = path.stat()
    assert keyring.write_version(path, "a test").version == EDITED.current_version
    assert path.stat() == written


def test_a_file_that_is_not_there_is_not_written_for_its_version(tmp_path: Path) -> None:
    assert keyring.write_version(tmp_path / "keys", "a test").current_version.serial == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"serial": 1},
        {"serial": True, "id": "0" * 16},
        {"serial": 0, "id": "0" * 16},
        {"serial": HIGHEST + 1, "id": "0" * 16},
        {"serial": 1.0, "id": "0" * 16},
        {"serial": 1, "id": "0" * 16 + "\n"},
        {"serial": 1, "id": 5},
    ],
)
def test_a_host_with_an_invalid_version_has_none(value: object) -> None:
    assert parse_host_version(value) is None
    assert parse_host_version({"serial": 1, "id": "0" * 16}) == HostVersion(1, "0" * 16)


def row(name: object, sha256: object, **more: object) -> dict[str, object]:
    return {"name": name, "sha256": sha256, "models": None, **more}


@pytest.mark.parametrize(
    ("ours", "theirs", "effect"),
    [
        ([], [], []),
        ([row("alice", "a")], [], ["1 key would return: alice"]),
        ([], [row("alice", "a")], ["1 key would vanish: alice"]),
        # it was rotated on the host since, and is about to end or has
        ([row("alice", "a")], [row("alice", "b"), row("alice", "a", until=9)], ["return: alice", "vanish: alice"]),
        ([row("alice", "a", until=9)], [row("alice", "a")], ["vanish: alice"]),
        ([row("alice", "a", until=9)], [row("alice", "a", until=8)], ["return: alice"]),
        ([row("alice", "a", models=["x"])], [row("alice", "a")], ["1 key would get other rights: alice"]),
        ([row("alice", "a", evict=False)], [row("alice", "a")], ["1 key would get other rights: alice"]),
        ([row("alice", "a")], [row("alice", "a", wake=False)], ["1 key would get other rights: alice"]),
        ([row("alice", "a")], [row("alice", "a", wake=True, evict=True)], []),
        ([row("alice", "a")], [{"name": "\33[2J" * 40, "sha256": [1]}, {}], ["return: alice", "2 keys would vanish"]),
        ([row(f"k{n:02}", str(n)) for n in range(12)], [], ["12 keys would return: k00, k01, k02"]),
    ],
)
def test_effects_of_keys_are_named(ours, theirs, effect):
    found = list(describe_effect(ours, theirs))
    assert len(found) == len(effect)
    assert all(words in line for words, line in zip(effect, found, strict=True)), found
    assert all(line.isprintable() and len(line) < 300 for line in found)
