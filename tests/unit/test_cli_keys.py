"""`rigwright key`: a key is seen once and lies nowhere; the file first, then every host, during other work too."""

import fcntl
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from cli import key_sync
from cli import keys as verb
from rigwright.gateway import keyring
from rigwright.gateway.deployed_keys import DeployedKeys, KeyDelivery
from rigwright.gateway.gateway_units import render_gateway
from rigwright.gateway.secrets_distribution import ROUTER, ROUTER_UNIT
from rigwright.host.deploy_lock_state import DEPLOY_LOCK
from rigwright.model.gateway_schema import Gateway
from rigwright.project_root import ROOT
from rigwright.serving.instance_units import OWNED_HEADER
from roles import root_shell
from tests.unit import keys_world
from tests.unit.gateway_host import GatewayFolderHost
from tests.unit.keys_world import LONG, RunKeys, accepts_key, make_controller, make_gateway_hosts
from tests.unit.samples import sample_instance


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, GatewayFolderHost]:
    """Two, on which the router runs."""
    return make_gateway_hosts(tmp_path, "box1", "box2")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway-keys.toml"


@pytest.fixture
def keys(hosts: dict[str, GatewayFolderHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunKeys:
    """The verb, on the hosts and those that are gone."""
    return make_controller(hosts, tmp_path, monkeypatch)


def given_to(host: GatewayFolderHost) -> list[str]:
    rows = json.loads((host.run / ROUTER / "keys.json").read_text())["keys"]
    return [row["name"] for row in rows]


def test_a_key_is_printed_alone_and_every_host_has_it(keys, hosts, file):
    done = keys("make", "alice", "--models", "qwen3, org/b", "--requests-per-minute", "60", "--streams", "8")
    assert (done.exit_code, done.stdout.count("\n"), done.stdout[:3]) == (0, 1, "rw-")
    key = keyring.load_keyring(file).keys["alice"]
    assert key.sha256 == keyring.hash_key(done.stdout.strip())
    assert (key.models, key.requests_per_minute, key.streams) == (("qwen3", "org/b"), 60, 8)
    assert key.made == datetime.now(timezone.utc).date().isoformat()
    for host in hosts.values():
        assert (given_to(host), host.reloaded_units) == (["alice"], [ROUTER_UNIT])
    assert "box1: the keys are updated\nbox2: the keys are updated\n" in done.stderr
    assert "plain" not in done.stderr


def test_a_key_may_have_fewer_rights_to_models_on_demand(keys, hosts, file):
    assert (keys("make", "alice", "--no-evict").exit_code, keys("make", "bob", "--no-wake").exit_code) == (0, 0)
    # as its other limits, also after a rotation
    keys("rotate", "alice")
    found = keyring.load_keyring(file).keys
    assert [(found[name].wake, found[name].evict) for name in ("alice", "bob")] == [(True, False), (False, True)]
    rows = json.loads((hosts["box1"].run / ROUTER / "keys.json").read_text())["keys"]
    assert [(row.get("wake"), row.get("evict")) for row in rows] == [(None, False), (False, None)]
    listed = keys("list").stdout
    assert "no evict" in listed and "no wake" in listed


def install_gateway(host: GatewayFolderHost, start: str = "on-demand") -> None:
    """Write the gateway of a generation whose instance is started so."""
    chat = replace(sample_instance("chat"), start=start)
    gateway = Gateway.model_validate({"listeners": {"lan": {"address": "192.0.2.7", "port": 8000, "tls": True}}})
    made = render_gateway(host.rig.roots, host.rig.accounts, (chat,), gateway, None, OWNED_HEADER)
    for path, text in made.files.items():
        (host.config / "current" / path).parent.mkdir(parents=True, exist_ok=True)
        (host.config / "current" / path).write_text(text)
    host.install_generation()


def test_a_gateway_that_may_ignore_the_rights_of_a_key_is_named(keys, hosts, file):
    for host in hosts.values():
        install_gateway(host)
    program = hosts["box2"].current / "router/routing.py"
    program.write_text(program.read_text().replace("X-Rw-Wake", "X-Rw-Other"))
    assert keys("make", "alice").exit_code == 0, "all gateways know a key with all rights"

    done = keys("make", "bob", "--no-wake")
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    assert "box1: the keys are updated box2: the keys are updated; the gateway has programs of another" in said
    assert f"may ignore `wake` and `evict` of bob; next: `rigwright deploy {file.with_name('rig.py')}`" in said
    assert [given_to(host) for host in hosts.values()] == [["alice", "bob"]] * 2
    assert (keys("sync").exit_code, keys("rotate", "alice").exit_code, keys("revoke", "bob").exit_code) == (1, 0, 0)

    # a change of another key is complete without these programs
    keys("make", "bob", "--no-wake")
    revoked = keys("revoke", "alice")
    assert revoked.exit_code == 0
    assert "may ignore `wake` and `evict` of bob; next:" in " ".join(revoked.stderr.split())
    assert [given_to(host) for host in hosts.values()] == [["bob"]] * 2
    assert (keys("rotate", "bob").exit_code, keys("revoke", "bob").exit_code) == (1, 0)

    keys("make", "carol", "--no-evict", "--no-hosts")
    hosts["box2"].current.joinpath("settings.json").write_text('{\n "wake": hostile\0}')
    assert keys("sync").exit_code == 1
    install_gateway(hosts["box2"], "boot")
    program.unlink()
    assert keys("sync").exit_code == 0, "it has no model on demand"
    install_gateway(hosts["box2"])
    assert keys("sync").exit_code == 0, "as after a deploy"


def test_a_key_may_be_for_an_alias(keys: RunKeys, file: Path) -> None:
    assert keys("make", "alice", "--models", "gpt-4o").exit_code == 0
    # as the operator typed it: it follows the alias
    assert keyring.load_keyring(file).keys["alice"].models == ("gpt-4o",)


@pytest.mark.parametrize("words", [["make", "bob"], ["sync"]])
def test_a_file_that_has_gone_takes_no_keys_away(keys, hosts, file, words):
    keys("make", "alice")
    file.unlink()
    done = keys(*words)
    assert (done.exit_code, done.stdout, file.exists()) == (1, "", False)
    assert (
        f"{file} is not there: bring it back, or create it empty and run `key sync INVENTORY --replace-newer` "
        "to take all keys away; box1 has 1 key"
    ) in done.stderr
    assert given_to(hosts["box1"]) == ["alice"]
    file.touch()
    refused = keys(*words)
    assert (refused.exit_code, "1 key would vanish: alice" in refused.stderr) == (1, True)
    assert (given_to(hosts["box1"]), keys("sync", "--replace-newer").exit_code) == (["alice"], 0)
    assert keys(*words).exit_code == 0
    assert given_to(hosts["box1"]) == (["bob"] if words[0] == "make" else [])


def test_present_files_cause_no_reload(keys: RunKeys, hosts: dict[str, GatewayFolderHost]) -> None:
    keys("make", "alice")
    assert (keys("sync").exit_code, hosts["box1"].reloaded_units) == (0, [ROUTER_UNIT])


def test_a_name_that_has_a_key_keeps_it(keys: RunKeys, hosts: dict[str, GatewayFolderHost], file: Path) -> None:
    keys("make", "alice")
    before = file.read_text()
    done = keys("make", "alice")
    assert (done.exit_code, done.stdout, file.read_text()) == (1, "", before)
    assert "alice already has a key: `key rotate` replaces it" in done.stderr
    assert hosts["box1"].reloaded_units == [ROUTER_UNIT]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["make", "Alice"], "'Alice' is refused: must be at most 48 lowercase letters, digits and dashes"),
        (["make", "../x"], "'../x' is refused"),
        (["make", "a\n[keys.b]"], r"'a\n[keys.b]' is refused"),
        (["make", "alice", "--models", ""], 'there is no model ""'),
        (["make", "alice", "--models", "qwen3,,llama"], 'there is no model ""'),
        (["make", "alice", "--models", "qwen3,qwne3"], 'there is no model "qwne3"; did you mean "qwen3"?'),
        (["make", "alice", "--streams", "0"], "must be a whole number from 1 to 1000000"),
        (["rotate", "bob"], 'there is no key "bob"'),
        (["revoke", "bob"], 'there is no key "bob"'),
        (["rotate", "bob", "--keep", "1"], "must be such as 90m, 24h or 7d"),
        (["rotate", "bob", "--keep", "9000d"], "must be such as 90m, 24h or 7d"),
    ],
)
def test_a_wrong_request_changes_nothing(keys: RunKeys, file: Path, words: list[str], said: str) -> None:
    done = keys(*words)
    assert done.exit_code in (1, 2)
    assert (done.stdout, file.exists(), said in done.stderr) == ("", False, True), done.stderr


def test_the_nearest_name_is_reported(keys: RunKeys) -> None:
    keys("make", "alice", "--no-hosts")
    assert 'did you mean "alice"?' in keys("revoke", "alcie").stderr


def test_a_key_that_is_rotated_ends_unless_it_is_kept(keys, hosts, file):
    first = keys("make", "alice", "--streams", "8").stdout.strip()
    rotated = keys("rotate", "alice", "--keep", "24h")
    second = rotated.stdout.strip()
    key = keyring.load_keyring(file).keys["alice"]
    assert (key.sha256, key.streams) == (keyring.hash_key(second), 8)
    assert key.old
    assert key.old.sha256 == keyring.hash_key(first)
    assert f"the previous key of alice stays valid until {key.old.until:%Y-%m-%d %H:%M:%S} UTC" in rotated.stderr
    left = key.old.until - datetime.now(timezone.utc)
    assert timedelta(hours=23, minutes=59) < left <= timedelta(hours=24)
    held = json.loads((hosts["box2"].run / ROUTER / "keys.json").read_text())
    assert [row["sha256"] for row in held["keys"]] == [key.sha256]
    assert [(row["sha256"], row["until"]) for row in held["ending"]] == [
        (key.old.sha256, int(key.old.until.timestamp()))
    ]
    assert "the previous key of alice is not valid any more" in keys("rotate", "alice").stderr
    assert keyring.load_keyring(file).keys["alice"].old is None
    assert given_to(hosts["box2"]) == ["alice"]


def test_a_revoked_key_is_gone_everywhere(keys: RunKeys, hosts: dict[str, GatewayFolderHost], file: Path) -> None:
    keys("make", "alice")
    keys("make", "bob")
    done = keys("revoke", "alice")
    assert (done.exit_code, done.stdout) == (0, "")
    assert sorted(keyring.load_keyring(file).keys) == ["bob"]
    assert given_to(hosts["box1"]) == given_to(hosts["box2"]) == ["bob"]


def test_a_host_that_is_gone_is_named_and_others_have_it(keys: RunKeys, hosts: dict[str, GatewayFolderHost]) -> None:
    keys("make", "alice")
    done = keys("make", "bob", gone=("box9",))
    assert (done.exit_code, len(done.stdout.splitlines())) == (3, 1)
    assert "box9: cannot be reached" in done.stderr
    assert given_to(hosts["box1"]) == ["alice", "bob"]


def test_a_file_is_not_begun_while_a_host_cannot_be_asked_whether_it_has_keys(keys, hosts, file):
    done = keys("make", "alice", gone=("box9",))
    assert (done.exit_code, done.stdout, file.exists()) == (3, "", False)
    assert "box9 cannot be asked for keys: --no-hosts begins a new one" in done.stderr
    assert keys("make", "alice", "--no-hosts").exit_code == 0


def test_nothing_is_brought_where_only_the_file_is_meant(keys, hosts, file):
    assert keys("make", "alice", "--no-hosts").exit_code == 0
    assert sorted(keyring.load_keyring(file).keys) == ["alice"]
    assert (hosts["box1"].reloaded_units, keys("sync").exit_code) == ([], 0)
    assert given_to(hosts["box1"]) == ["alice"]


def test_the_process_at_work_there_is_named(keys, hosts, file, monkeypatch):
    keys("make", "alice")
    monkeypatch.setattr(key_sync, "HOST_LOCK_TIMEOUT_S", 0)
    deploy_lock = Path(hosts["box1"].relocate_script(DEPLOY_LOCK))
    with deploy_lock.open("w") as held:
        words = {"who": "ops@desk", "pid": 12, "since": "noon", "doing": "deploy of rig.py"}
        held.write(json.dumps(words) + "\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        done = keys("revoke", "alice")
    assert done.exit_code == 1
    assert "box1: ops@desk (process 12) holds the deploy lock since noon: deploy of rig.py" in done.stderr
    assert (given_to(hosts["box1"]), given_to(hosts["box2"])) == (["alice"], [])
    assert (keyring.load_keyring(file).keys, keys("sync").exit_code) == ({}, 0)
    assert given_to(hosts["box1"]) == []


def test_a_host_without_a_deploy_and_one_whose_gateway_is_down(keys, hosts):
    hosts["box1"].credentials.rmdir()
    hosts["box2"].set_unit_state(ROUTER, "inactive")
    done = keys("make", "alice")
    assert done.exit_code == 0
    assert "box1: nothing is deployed yet" in done.stderr
    assert "box2: the keys are updated, for when its gateway starts" in done.stderr


def test_a_host_that_does_not_take_it_is_named_with_its_words(keys, hosts):
    hosts["box1"].systemctl.with_name(f"systemctl.reload.{ROUTER_UNIT}").write_text("echo '\33[2Jno room' >&2; false\n")
    done = keys("make", "alice")
    assert done.exit_code == 1
    assert "box1: the keys were not updated: \N{REPLACEMENT CHARACTER}[2Jno room" in done.stderr
    assert "box2: the keys are updated" in done.stderr


def test_a_revoked_key_ends_on_a_host_before_others_are_connected(keys, hosts, monkeypatch):
    alice = keys("make", "alice").stdout.strip()
    revoked: list[bool] = []

    def connect_slowly(boxes: list[Any], gone: dict[str, str]) -> Any:
        def look_at_all(_inventory: str, _limit: str | None, look: Callable[[Any], Any]) -> Any:
            found = []
            for box in boxes:
                found.append((box, look(box)))
                revoked.append(not accepts_key(hosts["box1"], alice))
            return found, {}

        return look_at_all

    monkeypatch.setattr(keys_world, "map_given_hosts", connect_slowly)
    assert keys("revoke", "alice").exit_code == 0
    assert revoked[0]


def lose_connection(monkeypatch: pytest.MonkeyPatch, error: OSError, *, before: int) -> None:
    """Every host loses its connection after so many commands."""
    answer, commands = GatewayFolderHost.answer_command, Counter[int]()

    def answer_or_lose(host: GatewayFolderHost, *rest: Any) -> Any:
        commands[id(host)] += 1
        if commands[id(host)] > before:
            raise error
        return answer(host, *rest)

    monkeypatch.setattr(GatewayFolderHost, "answer_command", answer_or_lose)


@pytest.mark.parametrize(("words", "status"), [(("revoke", "alice"), 0), (("sync",), 1)])
def test_keys_that_a_host_has_are_updated_though_the_connection_is_lost_after_them(
    keys, hosts, monkeypatch, words, status
):
    keys("make", "alice")
    keys("make", "bob", "--no-wake")
    lose_connection(monkeypatch, root_shell.ConnectionGone("Socket is closed"), before=1)
    done = keys(*words)
    said = " ".join(done.stderr.split())
    assert done.exit_code == status, said
    unknown = (
        "whether its gateway follows `wake` and `evict` of bob is unknown: the connection was lost: Socket is closed"
    )
    assert f"box1: the keys are updated; {unknown}; `key sync` asks again" in said
    assert given_to(hosts["box1"]) == (["bob"] if status == 0 else ["alice", "bob"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            root_shell.ConnectionGone("Socket is closed"),
            "whether the keys are updated is unknown: the connection was lost: Socket is closed; "
            "`key sync` sends them again",
        ),
        (
            root_shell.RootDenied("a password is required", "ops"),
            "the keys were not updated: cannot become root (a pass",
        ),
    ],
)
def test_a_lost_delivery_leaves_it_open_whether_a_host_has_the_keys(keys, hosts, monkeypatch, error, message):
    keys("make", "alice")
    lose_connection(monkeypatch, error, before=0)
    done = keys("revoke", "alice")
    assert (done.exit_code, f"box1: {message}" in " ".join(done.stderr.split())) == (1, True), done.stderr


def test_an_interrupt_names_the_hosts_without_a_result(keys, hosts, monkeypatch):
    keys("make", "alice")
    send = key_sync._send_keys

    def interrupt_second(box: Any, *rest: Any) -> Any:
        if box.name == "box2":
            raise KeyboardInterrupt
        return send(box, *rest)

    monkeypatch.setattr(key_sync, "_send_keys", interrupt_second)
    done = keys("revoke", "alice")
    assert done.exit_code == 1
    assert "box1: the keys are updated\nbox2: without a result; `key sync` sends the keys again\n" in done.stderr
    assert (given_to(hosts["box1"]), given_to(hosts["box2"])) == ([], ["alice"])


def test_an_error_of_the_file_names_the_hosts_without_a_result(keys, monkeypatch):
    keys("make", "alice")
    send, newer = key_sync._send_keys, DeployedKeys((), True)

    def diverge(box: Any, *rest: Any) -> Any:
        return KeyDelivery(newer=newer) if box.name == "box2" else send(box, *rest)

    def refuse(*_: object) -> None:
        raise key_sync.FileAccessFailed("the file is gone")
        yield

    monkeypatch.setattr(key_sync, "_send_keys", diverge)
    monkeypatch.setattr(key_sync, "_send_again", refuse)
    done = keys("sync", gone=("box9",))
    assert done.exit_code == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith(("box", "Error"))]
    assert lines[0] == "box1: the keys are updated"
    assert lines[1].startswith("box9: cannot be reached; ")
    assert lines[2:] == ["box2: without a result; `key sync` sends the keys again", "Error: the file is gone"]


class SimulatedKill(BaseException):
    """As by a signal."""


def test_a_run_that_was_killed_before_it_reached_a_host_is_finished_by_bring(keys, hosts, file, monkeypatch):
    def killed(*_: object, **__: object) -> None:
        raise SimulatedKill

    with monkeypatch.context() as patched, pytest.raises(SimulatedKill):
        patched.setattr(verb, "sync_keys", killed)
        keys("make", "alice")
    assert sorted(keyring.load_keyring(file).keys) == ["alice"]
    assert (hosts["box1"].reloaded_units, keys("sync").exit_code) == ([], 0)
    assert given_to(hosts["box1"]) == given_to(hosts["box2"]) == ["alice"]


def test_two_runs_at_once_lose_nothing(file: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from cli import keys; from cli.key_sync import KeyTargets;"
        "keys.load_targets = lambda *_: KeyTargets('rig.py', None, Path(sys.argv[1]), {});"
        "[keys.make.callback('rig.py', f'{sys.argv[2]}-{n}', *[None] * 7, False, False, True) for n in range(20)]"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", program, str(file), name], cwd=ROOT, stdout=subprocess.PIPE)
        for name in ("one", "two")
    ]
    for run in runs:
        out, _ = run.communicate()
        assert (run.returncode, len(out.splitlines())) == (0, 20)
    assert len(keyring.load_keyring(file).keys) == 40


def test_a_list_without_keys_says_how_to_make_one(keys: RunKeys) -> None:
    for words, status in ((["list"], 0), (["list", "--no-hosts"], 0)):
        done = keys(*words)
        assert (done.exit_code, done.stdout) == (status, "")
        assert "no keys yet: `rigwright key make " in done.stderr
        assert "serial" not in done.stderr
        assert "differ" not in done.stderr


def test_keys_are_listed_with_their_rights_and_hosts(keys, hosts, monkeypatch):
    keys("make", "alice", "--models", "qwen3,llama", "--requests-per-minute", "60", "--streams", "1")
    keys("make", "bob")
    held = (hosts["box2"].credentials / "gateway-keys.json").read_text()
    keys("revoke", "bob")
    keys("make", "carol")
    (hosts["box2"].credentials / "gateway-keys.json").write_text(held)
    hosts["box2"].run_program("give-keys")
    done = keys("list", gone=("box9",))
    assert done.exit_code == 3
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in done.stdout.splitlines()}
    today = datetime.now(timezone.utc).date().isoformat()
    assert rows["alice"] == f"qwen3, llama 60/min, 1 stream {today} all"
    assert (rows["carol"], rows["bob"]) == (f"all none {today} box1", "not in the file box2")
    assert "box2: keys differ from the file" in done.stderr
    # an empty file is the first version; each change is one more
    assert "gateway-keys.toml: serial 5; serial 3 on box2; serial 5 on box1" in done.stderr
    assert "box9: cannot be reached" in done.stderr
    assert "sha" not in done.stdout


def test_a_list_fits_whatever_is_in_it_and_hosts_may_lie(keys: RunKeys, hosts: dict[str, GatewayFolderHost]) -> None:
    keys("make", "a" * 48, "--models", ",".join(LONG))
    rows = [{"name": "\33[2J" * 40, "sha256": 5}, 7, {"sha256": [1]}, {}]
    (hosts["box1"].credentials / "gateway-keys.json").write_text(json.dumps({"keys": rows}))
    done = keys("list")
    assert done.exit_code == 0, done.output
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\33" not in done.output


@pytest.mark.parametrize("content", ["nonsense", "[]", '{"keys": 5}', "[" * 5000])
def test_a_host_with_something_else_is_named(keys: RunKeys, hosts: dict[str, GatewayFolderHost], content: str) -> None:
    (hosts["box1"].credentials / "gateway-keys.json").write_text(content)
    done = keys("list")
    assert (done.exit_code, "box1: the gateway's keys file is invalid" in done.stderr) == (1, True)


def test_a_file_that_is_refused_is_not_written_over(keys: RunKeys, file: Path) -> None:
    file.write_text("[keys.alice]\n")
    for words in (["make", "bob"], ["list"], ["sync"], ["revoke", "alice"]):
        done = keys(*words)
        assert (done.exit_code, done.stdout, file.read_text()) == (1, "", "[keys.alice]\n")
        assert f"{file}: keys.alice.sha256: missing" in done.stderr


def test_hosts_with_other_files_are_distinguished_first(keys: RunKeys, tmp_path: Path) -> None:
    done = keys("list", files={"box2": "other.toml"})
    assert done.exit_code == 1
    assert "choose a keys file with --limit" in done.stderr
    done = keys("list", files={"box1": "", "box2": ""})
    assert "no host has a gateway" in done.stderr


def test_a_folder_that_cannot_be_written_is_named(keys: RunKeys, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = keys("make", "alice")
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{file} cannot be written: No space left on device" in done.stderr
