"""`rigwright key` with several controllers: a host keeps its keys where others were not made from them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import key_sync
from rigwright.gateway import keyring
from tests.unit.gateway_host import GatewayFolderHost
from tests.unit.keys_world import RunKeys, accepts_key, make_controller, make_gateway_hosts
from tests.unit.test_secrets_distribution import before_versions

Controllers = Callable[[str], RunKeys]


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, GatewayFolderHost]:
    return make_gateway_hosts(tmp_path, "box1", "box2")


@pytest.fixture
def box1(hosts: dict[str, GatewayFolderHost]) -> GatewayFolderHost:
    return hosts["box1"]


@pytest.fixture
def controllers(hosts: dict[str, GatewayFolderHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Controllers:
    """A controller by its name, whose folder is made where it is missing."""

    def one(name: str) -> RunKeys:
        (tmp_path / name).mkdir(exist_ok=True)
        return make_controller(hosts, tmp_path / name, monkeypatch)

    return one


def keys_file(tmp_path: Path, name: str) -> Path:
    return tmp_path / name / "gateway-keys.toml"


@pytest.fixture
def alice(controllers: Controllers, tmp_path: Path) -> str:
    """A key that controller a has made and revoked; controller b has the folder from before that."""
    a = controllers("a")
    clear = a("make", "alice").stdout.strip()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert a("revoke", "alice").exit_code == 0
    return clear


def test_a_controller_with_an_older_file_gives_no_revoked_key_back(controllers, alice, box1, tmp_path):
    b, file = controllers("b"), keys_file(tmp_path, "b")
    before = file.read_text()
    done = b("make", "carol")
    assert (done.exit_code, done.stdout, file.read_text(), accepts_key(box1, alice)) == (1, "", before, False)
    assert f"box1: {file} is older: serial 2, and this host has serial 3" in done.stderr
    assert "1 key would return: alice" in done.stderr
    assert "Take the newer file from the controller that changed the keys last" in done.stderr
    # nor by its file itself, nor after more changes, of which each has a higher serial than the host's
    for words in (["sync"], ["make", "carol", "--no-hosts"], ["make", "dave", "--no-hosts"], ["sync"]):
        done = b(*words)
        assert (done.exit_code, accepts_key(box1, alice)) == ("sync" in words, False), done.stderr
    assert (
        "serial 4, and was not made from this host's serial 3; 3 keys would return: alice, carol, dave" in done.stderr
    )
    # with the newer file it goes on
    shutil.copy(keys_file(tmp_path, "a"), file)
    carol = b("make", "carol")
    assert (carol.exit_code, accepts_key(box1, carol.stdout.strip()), accepts_key(box1, alice)) == (0, True, False)


def test_two_controllers_that_change_the_same_version_are_distinguished(controllers, box1, tmp_path):
    a = controllers("a")
    a("make", "alice")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    carol = a("make", "carol").stdout.strip()
    b = controllers("b")
    assert b("make", "dave", "--no-hosts").exit_code == 0
    done = b("sync")
    assert (done.exit_code, accepts_key(box1, carol)) == (1, True)
    assert (
        "both have serial 3, from different changes; 1 key would return: dave; 1 key would vanish: carol" in done.stderr
    )


def test_a_deliberate_replacement_names_what_it_does_and_lasts(controllers, alice, box1):
    b = controllers("b")
    done = b("sync", "--replace-newer")
    assert (done.exit_code, accepts_key(box1, alice)) == (0, True)
    assert "box1: serial 3 is replaced; 1 key would return: alice\n" in done.stderr
    assert b("make", "carol").exit_code == 0
    # the other controller is the one with an older file now
    done = controllers("a")("sync")
    assert (done.exit_code, "2 keys would vanish: alice, carol" in done.stderr) == (1, True)
    assert accepts_key(box1, alice)


def test_a_replacement_on_one_host_makes_no_other_host_take_the_keys(controllers, alice, hosts, tmp_path):
    b = controllers("b")
    # box2 tells the version of box1, with the keys of this controller, so that nothing seems to return
    version = keyring.load_keyring(keys_file(tmp_path, "a")).current_version
    content = keyring._versioned_content(keyring.load_keyring(keys_file(tmp_path, "b")))[:-1]
    lying = hosts["box2"].credentials / "gateway-keys.json"
    lying.write_text(f'{content},"version":{{"serial":{version.serial},"id":"{version.id}"}}}}\n')
    away = hosts.pop("box1")
    done = b("sync", "--replace-newer")
    assert (done.exit_code, "would return" in done.stderr) == (0, False)
    hosts["box1"] = away
    for words in (["sync"], ["make", "carol", "--no-hosts"], ["sync"]):
        done = b(*words)
        assert (done.exit_code, accepts_key(away, alice)) == ("--no-hosts" not in words, False), done.stderr
    assert "2 keys would return: alice, carol" in done.stderr
    # asked itself, it takes them
    assert b("sync", "--replace-newer").exit_code == 0
    assert accepts_key(away, alice)


def test_keys_that_come_to_a_host_after_it_was_asked_are_not_replaced(controllers, alice, box1, tmp_path, monkeypatch):
    collect = key_sync._collect_diverged

    def overtaken(ring: keyring.ClientKeyring, reach: key_sync.GatewayHosts) -> object:
        found = collect(ring, reach)
        path = box1.credentials / "gateway-keys.json"
        path.write_text(
            path.read_text().replace(keyring.load_keyring(keys_file(tmp_path, "a")).current_version.id, "f" * 16)
        )
        return found

    monkeypatch.setattr(key_sync, "_collect_diverged", overtaken)
    done = controllers("b")("sync", "--replace-newer")
    assert (done.exit_code, accepts_key(box1, alice)) == (1, False)
    assert "box1: the keys were not updated" in done.stderr


def test_a_key_is_revoked_on_hosts_that_take_it_whatever_another_one_says(controllers, hosts, tmp_path):
    a = controllers("a")
    alice = a("make", "alice").stdout.strip()
    lying = hosts["box2"].credentials / "gateway-keys.json"
    lying.write_text('{"keys":[],"ending":[],"version":{"serial":999999999999999,"id":"' + "f" * 16 + '"}}\n')
    assert a("make", "bob").exit_code == 1
    done = a("revoke", "alice")
    assert (done.exit_code, accepts_key(hosts["box1"], alice)) == (1, False)
    assert "box2: the keys were not updated: " in done.stderr
    assert (a("sync", "--replace-newer").exit_code, a("make", "bob").exit_code) == (0, 0)


def test_a_host_that_was_away_gets_all_changes_at_once(controllers, hosts):
    a = controllers("a")
    alice = a("make", "alice").stdout.strip()
    gone = hosts.pop("box2")
    a("revoke", "alice")
    bob = a("make", "bob").stdout.strip()
    hosts["box2"] = gone
    assert accepts_key(gone, alice)
    assert a("sync").exit_code == 0
    assert (accepts_key(gone, alice), accepts_key(gone, bob)) == (False, True)


def test_keys_from_before_versions_are_taken_once(controllers, hosts, tmp_path):
    a = controllers("a")
    alice = a("make", "alice").stdout.strip()
    file = keys_file(tmp_path, "a")
    old = file.read_text().partition("\n# orders")[0] + "\n"
    for host in hosts.values():
        (host.credentials / "gateway-keys.json").write_text(before_versions(keyring.load_keyring(file)))
    for name in ("a", "b"):
        keys_file(tmp_path, name).parent.mkdir(exist_ok=True)
        keys_file(tmp_path, name).write_text(old)
    # by a verb that changes nothing, too
    assert a("sync").exit_code == 0
    assert keyring.read_keys_file(file).version
    assert a("revoke", "alice").exit_code == 0
    done = controllers("b")("sync")
    assert (done.exit_code, accepts_key(hosts["box1"], alice)) == (1, False)
    assert "serial 1, and this host has serial 2; 1 key would return: alice" in done.stderr


def test_keys_that_were_edited_by_hand_are_the_next_version(controllers, alice, box1, tmp_path):
    a, b = controllers("a"), keys_file(tmp_path, "b")
    bob = a("make", "bob").stdout.strip()
    file = keys_file(tmp_path, "a")
    text = file.read_text()
    head, _, version = text.partition("\n# orders")
    file.write_text(head.partition("\n[keys.bob]")[0] + "\n# orders" + version)
    assert a("sync").exit_code == 0
    assert (accepts_key(box1, bob), keyring.read_keys_file(file).version) == (
        False,
        keyring.load_keyring(file).current_version,
    )
    # an older file does not become a newer one by that
    b.write_text(b.read_text().replace("[keys.alice]", "[keys.alicia]"))
    refused = controllers("b")("sync")
    assert (refused.exit_code, accepts_key(box1, alice)) == (1, False)
    assert "would return: alicia" in refused.stderr


def test_a_run_whose_keys_were_overtaken_by_another_of_its_machine_sends_those(controllers, box1, monkeypatch):
    a = controllers("a")
    a("make", "alice")
    sent = key_sync._send_keys
    later: list[str] = []

    def overtaken(*args: Any, **kwargs: Any) -> object:
        if not later:
            later.append("bob")
            assert a("make", "bob").exit_code == 0
        return sent(*args, **kwargs)

    monkeypatch.setattr(key_sync, "_send_keys", overtaken)
    done = a("make", "carol")
    assert done.exit_code == 0, done.stderr
    assert "box1: the keys are updated" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_user_of_the_controller_delays_no_revocation(controllers: Controllers, tmp_path: Path) -> None:
    a = controllers("a")
    a("make", "alice", "--no-hosts")
    (tmp_path / "a").chmod(0o755)
    # every file and folder that another user can open
    script = """for at in . * .*; do [ ! -r $at ] || flock --shared $at sh -c 'echo; exec sleep 60' & done; wait"""
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]
    with subprocess.Popen(nobody, cwd=tmp_path / "a", stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        try:
            for _ in (".", "rig.py"):
                process.stdout.readline()
            done = a("revoke", "alice", "--no-hosts")
        finally:
            os.killpg(process.pid, 9)
    assert done.exit_code == 0, done.stderr
    assert keyring.load_keyring(keys_file(tmp_path, "a")).keys == {}
