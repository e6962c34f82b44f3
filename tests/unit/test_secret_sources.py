"""Secrets from commands: run once, without a terminal, bounded, and never repeated in a text. The commands are stand-in
scripts; the last tests run the real `age` and `pass` where this machine has them.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.declaration.entry_validation import list_secret_sources
from rigwright.gateway import certificate_authority
from rigwright.inventory import load_rig
from rigwright.local_files import SecretUnavailable
from rigwright.model import secret_sources
from rigwright.model.api_keys import load_api_key, load_key_line
from rigwright.model.rig import Rig
from rigwright.model.secret_sources import CommandSource, read_secret, run_secret_commands
from roles import secret_commands
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.test_invalid_inventories import KnockedPort

KEY = "sk-0123456789.abcdefghijklmnop"
MOST = 4096  # bytes


class ScriptFolder:
    """A folder with a stand-in for `pass`, which counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"

    def write(self, body: str, name: str = "stand-in-pass") -> dict[str, list[str]]:
        """The declared command of a script with this body."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\necho run >> {self.runs}\n{body}\n")
        path.chmod(0o755)
        return {"command": [f"./{name}", "hf/token"]}

    def source(self, body: str) -> CommandSource:
        """The source of such a script."""
        return CommandSource(tuple(self.write(body)["command"]), str(self.folder))

    @property
    def count(self) -> int:
        """How often scripts of this folder ran."""
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


@pytest.fixture(autouse=True)
def _forget_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_sources, "_OUTPUTS", {})


@pytest.fixture
def scripts(tmp_path: Path) -> ScriptFolder:
    return ScriptFolder(tmp_path)


@pytest.mark.parametrize("end", ["", "\\n"])
def test_the_only_line_of_the_output_is_the_secret(scripts: ScriptFolder, end: str) -> None:
    assert load_api_key(scripts.source(f"printf '{KEY}{end}'; echo of a warning >&2")) == KEY


def test_a_command_runs_once_and_in_the_folder_of_its_inventory(scripts: ScriptFolder) -> None:
    source = scripts.source("pwd")
    assert [load_key_line(source) for _ in range(3)] == [str(scripts.folder)] * 3
    assert scripts.count == 1


def test_a_failed_command_is_not_run_again(scripts: ScriptFolder) -> None:
    source = scripts.source("exit 2")
    for _ in range(2):
        with pytest.raises(SecretUnavailable, match="exit status 2"):
            read_secret(source, MOST)
    assert scripts.count == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"echo {KEY}; echo {KEY}", "contains no key: must be one line of at least 16"),
        ("echo short", "contains no key: must be one line of at least 16"),
        ("true", "prints nothing"),
        ("echo no such entry >&2", "prints nothing: no such entry"),
        ("echo hf/token is not in the store >&2; exit 3", "ends with exit status 3: hf/token is not in the store"),
        (f"echo {KEY}; echo bad {KEY}. >&2; exit 1", "ends with exit status 1: bad (hidden)"),
        (f"echo {KEY[:12]}; echo bad {KEY} >&2; exit 1", "ends with exit status 1: bad (hidden)"),
        ("echo hf_abcdefghijklmnopqrst >&2; exit 1", "ends with exit status 1: (hidden)"),
        ("printf '\\033[31mred\\007' >&2; exit 1", "ends with exit status 1: \\x1b[31mred\\x07"),
        ("yes long | head -c 100000 >&2; exit 1", "ends with exit status 1: ..."),
        ("yes", "prints more than 4097 bytes"),
        ("kill -9 $$", "ends by signal 9"),
        ("read line && echo $line", "ends with exit status 1"),
        (": < /dev/tty", "ends with exit status"),
    ],
)
def test_another_output_is_refused_without_the_secret(scripts: ScriptFolder, body: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        load_api_key(scripts.source(body))
    assert str(caught.value).startswith(message), caught.value
    assert KEY[:12] not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("pipes", "end"), [("", "wait"), ("", "exit"), (">&- 2>&-", f"echo {KEY}; exec >&- 2>&-; wait")]
)
def test_a_command_that_does_not_end_is_ended_with_its_children(
    scripts: ScriptFolder, monkeypatch: pytest.MonkeyPatch, pipes: str, end: str
) -> None:
    monkeypatch.setattr(secret_commands, "TIMEOUT_S", 0.3)
    pid = scripts.folder / "pid"
    began = time.monotonic()
    with pytest.raises(SecretUnavailable, match=r"does not end within 0\.\d+ s; it has no terminal to ask on: unlock"):
        read_secret(scripts.source(f"sleep 600 {pipes} & echo $! > {pid}; {end}"), MOST)
    assert time.monotonic() - began < 5
    child = Path("/proc", pid.read_text().strip(), "stat")
    while time.monotonic() - began < 5:
        # a zombie of a container whose first process collects none
        if not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    pytest.fail("its child runs on")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["no-such-program", "x"], "the command no-such-program is not installed: no such program in PATH"),
        (
            ["true x y"],
            "the command true x y is not installed: no such program in PATH; each argument is an item of its",
        ),
        (["./gone"], "the command ./gone does not exist"),
        (["./plain"], "the command ./plain is not executable: chmod +x"),
        (["./folder/"], "the command ./folder/ is not a file: a folder"),
    ],
)
def test_a_program_that_cannot_run_is_refused_while_the_inventory_loads(
    box: OperatorFolder, command: list[str], message: str
) -> None:
    box.write("plain", "x")
    (box.folder / "folder").mkdir()
    (line,) = box.refusal_lines(hub_token_file={"command": command})
    assert line.startswith(f"{box.inventory}: box.hub_token_file: {message}"), line


HIDDEN = "a hidden value (it may be a secret) is refused: must be an argument without the secret"
LIST = "is refused: must be a list with the program and each argument"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["pass", "show"], ": ['pass', 'show'] is refused: must be the path of a file, or a command: {\"command\": ["),
        ({"command": "pass show x"}, f".command: 'pass show x' {LIST}"),
        ({"command": []}, ".command: [] is refused: must be a non-empty list"),
        ({"comand": ["true"]}, '.comand: unknown key; did you mean "command"?'),
        ({"command": ["echo", "hf_abcdefghijklmnopqrst"]}, f".command[1]: {HIDDEN}"),
    ],
)
def test_another_form_is_refused_with_the_right_one(box: OperatorFolder, value: object, message: str) -> None:
    line = box.refusal_lines(hub_token_file=value)[0]
    assert line.startswith(f"{box.inventory}: box.hub_token_file{message}"), line


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("true show hf/token", '; a command is a list of arguments: {"command": ["true", "show", "hf/token"]}'),
        ("true there/token", ""),
        ("no-such-program show", ""),
        ("token", ""),
    ],
)
def test_a_command_in_the_place_of_a_path_is_refused_with_its_form(box: OperatorFolder, path: str, hint: str) -> None:
    (box.folder / "true there").mkdir()
    (line,) = box.refusal_lines(hub_token_file=path)
    assert "does not exist" in line
    assert line.endswith(hint) if hint else "a command is" not in line


def with_api_key(source: object) -> dict[str, Any]:
    """An entry of which an instance has this key."""
    return sample_entry(instances=chat_instances(api_key_file=source))


def load_box(box: OperatorFolder, entry: dict[str, Any]) -> Rig:
    """The rig of an entry."""
    ((_, data),) = box.load_group({"box": entry})
    return load_rig(data["rig"])


def test_a_key_of_a_command_has_the_name_of_the_same_key_of_a_file(box: OperatorFolder) -> None:
    scripts = ScriptFolder(box.folder)
    box.write("chat.key", f"{KEY}\n").chmod(0o600)
    of_file = load_box(box, with_api_key("chat.key"))
    of_command = load_box(box, with_api_key(scripts.write(f"echo {KEY}")))
    assert scripts.count == 0
    names = [[one.key_name for one in rig.instances] for rig in (of_file, of_command)]
    assert names[0] == names[1]
    assert KEY not in repr(of_command)
    assert scripts.count == 1


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (lambda one: {"hub_token_file": one}, "hub_token_file"),
        (lambda one: {"instances": chat_instances(api_key_file=one)}, "instances.chat.api_key_file"),
        (lambda one: {"registries": {"ghcr": {"login_file": one}}}, "registries.ghcr.login_file"),
        (lambda one: {"monitoring": monitoring_with(token_file=one)}, "monitoring.server.receivers.hook.token_file"),
        (lambda one: {"monitoring": monitoring_with(url_file=one)}, "monitoring.server.receivers.hook.url_file"),
        (lambda one: {"gateway": gateway_with(one)}, "gateway.listeners.net.key_file"),
    ],
)
def test_each_key_of_a_secret_takes_a_command_which_only_a_deploy_runs(
    box: OperatorFolder, changes: Callable[[object], dict[str, Any]], key: str
) -> None:
    scripts = ScriptFolder(box.folder)
    authority = certificate_authority.ensure_authority(box.folder / "ca", certificate_authority.certificate_now())
    box.write("net.pem", authority.issue(("192.0.2.7",), certificate_authority.certificate_now()).certificates)
    entry = sample_entry(**changes(scripts.write("echo not in the store >&2; exit 1")))
    rig = load_box(box, entry)
    assert [*map(str, list_secret_sources(rig))] == ["the command ./stand-in-pass"]
    assert scripts.count == 0
    with run_secret_commands():
        (line,) = box.refusal_lines(**changes(scripts.write("echo not in the store >&2; exit 1")))
    message = "the command ./stand-in-pass ends with exit status 1: not in the store"
    assert line.startswith(f"{box.inventory}: box.{key}: {message}"), line
    assert scripts.count == 1


def monitoring_with(**keys: object) -> dict[str, Any]:
    """A box that sends alerts to one receiver."""
    receiver = keys if "url_file" in keys else {"url": "https://hook.example.org/", **keys}
    return {"address": "192.0.2.7", "server": {"receivers": {"hook": receiver}}}


def gateway_with(key: object) -> dict[str, Any]:
    """A gateway with a certificate of the operator's."""
    listener = {"address": "192.0.2.7", "port": 8443, "tls": True, "cert_file": "net.pem", "key_file": key}
    return {"listeners": {"net": listener}, "models": {"small": {"instances": ["chat"]}}}


def test_a_deploy_runs_a_command_once_for_all_hosts_before_it_connects(box: OperatorFolder) -> None:
    scripts, port = ScriptFolder(box.folder), KnockedPort()
    command = scripts.write("echo not in the store >&2; exit 1")
    connection = {"ssh_hostname": "127.0.0.1", "ssh_port": port.port}
    entries = {f"box{number}": sample_entry(hub_token_file=command) | connection for number in (1, 2)}
    entries["box2"]["ssh_port"] = port.port + 1
    box.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    try:
        shown = CliRunner().invoke(main, ["validate", str(box.inventory)])
        assert (shown.exit_code, scripts.count) == (0, 0), shown.output
        assert "box1: the hub's token: the command ./stand-in-pass exists; a deploy runs it" in shown.output
        shown = CliRunner().invoke(main, ["deploy", str(box.inventory)])
        assert shown.exit_code == 2, shown.output
        assert "hub_token_file: the command ./stand-in-pass ends with exit status 1" in shown.output.replace("\n", " ")
        assert (scripts.count, port.knocked) == (1, False)
    finally:
        port.socket.close()


@pytest.mark.skipif(not shutil.which("age"), reason="needs age")
def test_a_secret_of_the_real_age(tmp_path: Path) -> None:
    subprocess.run(["age-keygen", "-o", "key.txt"], cwd=tmp_path, check=True, capture_output=True)
    identity = tmp_path / "key.txt"
    recipient = identity.read_text().partition("public key: ")[2].split()[0]
    subprocess.run(["age", "-r", recipient, "-o", "t.age"], cwd=tmp_path, input=KEY.encode(), check=True)
    source = CommandSource(("age", "-d", "-i", "key.txt", "t.age"), str(tmp_path))
    assert load_api_key(source) == KEY
    with pytest.raises(SecretUnavailable, match=r"exit status 1: age: error: .*other.txt"):
        load_api_key(CommandSource(("age", "-d", "-i", "other.txt", "t.age"), str(tmp_path)))


@pytest.mark.skipif(not shutil.which("pass"), reason="needs pass")
def test_a_secret_of_the_real_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "g"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    monkeypatch.setenv("PASSWORD_STORE_DIR", str(tmp_path / "store"))
    try:
        generate = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "ops@example.org"]
        subprocess.run(generate, check=True, capture_output=True)
        subprocess.run(["pass", "init", "ops@example.org"], check=True, capture_output=True)
        subprocess.run(["pass", "insert", "-m", "box/chat"], input=KEY.encode(), check=True, capture_output=True)
        assert load_api_key(CommandSource(("pass", "show", "box/chat"), str(tmp_path))) == KEY
        with pytest.raises(SecretUnavailable, match="exit status 1: Error: box/cat is not in the password store"):
            load_api_key(CommandSource(("pass", "show", "box/cat"), str(tmp_path)))
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], check=False, env=os.environ)
