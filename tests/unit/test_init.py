"""`rigwright init` from the command line: its refusals, its questions, and its files."""

import runpy
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import roles.first_contact
from cli import main
from cli.init import init as init_verb
from rigwright.declaration.connection import parse_host_key
from rigwright.host.basic_facts import ListeningSocket
from rigwright.survey.box_survey import BoxSurvey
from roles.first_contact import ProbedHostKey
from tests.unit.samples import OperatorFolder
from tests.unit.test_suggest import OPEN_LOCK
from tests.unit.test_survey import capture

init_module = sys.modules["cli.init"]  # the package has the command under the module's name
Init = Callable[..., Result]
KEY = parse_host_key("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f")


def add_known_host(name: str, data: object) -> ProbedHostKey:
    """A host that known_hosts knows."""
    return ProbedHostKey(KEY, KEY)


@pytest.fixture
def surveyed_connections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, object], bool]]:
    """Every connection that was asked for; each finds the box that serves already."""
    seen: list[tuple[dict[str, object], bool]] = []

    def look(name: str, connection: dict[str, object], *, sudo: bool) -> BoxSurvey:
        seen.append((connection, sudo))
        return capture("two-sockets")

    monkeypatch.setattr(roles.first_contact, "survey_host", look)
    monkeypatch.setattr(roles.first_contact, "probe_host_key", add_known_host)
    return seen


@pytest.fixture
def init(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch) -> Init:
    box.write("locks/box.lock.toml", OPEN_LOCK)
    box.write("key", "-----BEGIN OPENSSH PRIVATE KEY-----\n").chmod(0o600)
    monkeypatch.chdir(box.folder)

    def run(*words: str, answer: str | None = None) -> Result:
        monkeypatch.setattr(init_module, "_is_interactive", lambda: answer is not None)
        return CliRunner().invoke(main, ["init", *words], input=answer, env={"COLUMNS": "200"})

    return run


def load_written(path: Path) -> dict[str, Any]:
    ((_, data),) = runpy.run_path(str(path))["rigs"]
    return data


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box"], "'box' is refused: must be user@host or user@host:port"),
        (["ops@"], "ssh_hostname '' is refused"),
        (["ops@-oProxyCommand=id"], "ssh_hostname '-oProxyCommand=id' is refused"),
        (["--", "-x@box"], "ssh_user '-x' is refused"),
        (["@box"], "ssh_user '' is refused"),
        (["ops@box\nx"], "ssh_hostname 'box\\nx' is refused"),
        (["ops@box\n"], "ssh_hostname 'box\\n' is refused"),
        (["o\np@box"], "ssh_user 'o\\np' is refused"),
        (["ops@a@b"], "is refused: must be user@host"),
        (["ops@box:"], "ssh_port '' is refused: must be a whole number"),
        (["ops@box:0"], "ssh_port 0 is refused"),
        (["ops@box:65536"], "ssh_port 65536 is refused"),
        (["ops@box:22x"], "ssh_port '22x' is refused"),
        (["ops@box:22\n"], "ssh_port '22\\n' is refused"),
        (["ops@box", "--name", "../x"], "--name '../x' is refused: must be at most 48 lowercase letters"),
        (["ops@box", "--name", "a\nb"], "--name 'a\\nb' is refused"),
        (["ops@box", "--name", ""], "--name '' is refused"),
        (["ops@box", "--key", "gone"], "--key: gone does not exist"),
        (["ops@box", "--key", "-gone"], "ssh_key '-gone' is refused: must be a path"),
        (["ops@box", "--variant", "../x"], "--variant '../x' is refused: must be engine/name"),
        (["ops@box", "--variant", "llamacpp/tow"], 'there is no variant "llamacpp/tow"; did you mean "llamacpp/two"?'),
        (["ops@box", "--output", "gone/rig.py"], "there is no folder gone"),
        (["ops@box", "--output", "key"], "key already exists"),
        (["ops@box", "--output", "a\nb.py"], "--output 'a\\nb.py' is refused"),
    ],
)
def test_problems_are_refused_in_one_line_before_connecting(init, surveyed_connections, words, said):
    done = init(*words)
    assert (done.exit_code, surveyed_connections) == (2, []), done.output
    assert said in done.output
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1


def test_a_mistake_in_the_catalogue_beside_the_inventory_is_reported_before_connecting(init, surveyed_connections, box):
    box.write("catalog/box.toml", "[crads]\n")
    done = init("ops@box")
    assert (done.exit_code, surveyed_connections) == (2, [])
    assert 'did you mean "cards"?' in done.output


@pytest.mark.parametrize(
    ("target", "options", "keys", "sudo"),
    [
        ("root@192.0.2.7", [], {"ssh_hostname": "192.0.2.7", "ssh_user": "root"}, False),
        ("ops@h.example.org:2222", [], {"ssh_hostname": "h.example.org", "ssh_user": "ops", "ssh_port": 2222}, True),
        ("ops@[2001:db8::7]:22", [], {"ssh_hostname": "2001:db8::7", "ssh_user": "ops", "ssh_port": 22}, True),
        ("ops@[2001:db8::7]", ["--no-sudo"], {"ssh_hostname": "2001:db8::7", "ssh_user": "ops"}, False),
        ("root@box", ["--sudo"], {"ssh_hostname": "box", "ssh_user": "root"}, True),
    ],
)
def test_a_target_becomes_the_connection_that_is_used_and_written(
    init, surveyed_connections, box, target, options, keys, sudo
):
    done = init(target, "--output", "made.py", *options)
    assert done.exit_code == 0, done.output
    keys["ssh_host_key"] = str(KEY)
    assert surveyed_connections == [(keys, sudo)]
    data = load_written(box.folder / "made.py")
    written = {key: value for key, value in data.items() if key.startswith(("ssh_", "_"))}
    for made in ("ssh_paramiko_connect_kwargs", "ssh_known_hosts_file", "ssh_strict_host_key_checking"):
        written.pop(made)
    assert written == keys | ({"_sudo": True} if sudo else {})


@pytest.mark.usefixtures("surveyed_connections")
@pytest.mark.parametrize(
    ("target", "options", "file", "name"),
    [
        ("root@Rig-1.example.org", [], "rig-1.py", "rig-1"),
        # an address names no rig; the box says that it is called "Box One"
        ("root@192.0.2.7", [], "box-one.py", "box-one"),
        ("root@192.0.2.7", ["--name", "mine"], "mine.py", "mine"),
        ("root@192.0.2.7", ["--output", "x.py"], "x.py", "box-one"),
    ],
)
def test_a_rig_is_named_after_its_host(init, box, target, options, file, name):
    done = init(target, *options)
    assert done.exit_code == 0, done.output
    assert load_written(box.folder / file)["rig"]["name"] == name
    assert f"rigwright deploy {file} " in done.output
    # a second time would overwrite what may have been edited
    again = init(target, *options)
    assert (again.exit_code, again.output.splitlines()[-1]) == (
        2,
        f"Error: {file} already exists: choose another with --output, or move it away",
    )


@pytest.mark.usefixtures("surveyed_connections")
def test_the_key_is_written_with_its_whole_path(init: Init, box: OperatorFolder) -> None:
    assert init("root@box", "--key", "key").exit_code == 0
    assert load_written(box.folder / "box.py")["ssh_key"] == str(box.folder / "key")


@pytest.mark.usefixtures("surveyed_connections")
def test_an_answer_that_is_broken_off_writes_nothing(init: Init, box: OperatorFolder) -> None:
    done = init("root@box", answer="")
    assert done.exit_code == 1
    assert "Aborted" in done.output
    assert not (box.folder / "box.py").exists()


@pytest.mark.usefixtures("surveyed_connections")
def test_a_written_file_is_loaded_before_it_is_called_valid(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'from rigwright.inventory import hosts\n\nrigs = hosts({"box": {"crads": []}})\n'
    monkeypatch.setattr(init_module, "render_inventory", lambda *given: text)
    done = init("root@box")
    assert done.exit_code == 2
    assert "Error: box.py is written, but it does not load: " in done.output
    assert 'box.crads: unknown key; did you mean "cards"?' in done.output
    assert "it is valid" not in done.output


@pytest.mark.usefixtures("surveyed_connections")
def test_a_file_that_appears_in_the_meantime_is_not_overwritten(init, box, monkeypatch):
    monkeypatch.setattr(init_module, "_print_survey", lambda *given: box.write("box.py", "mine"))
    done = init("root@box")
    assert (done.exit_code, done.stderr) == (2, "Error: cannot write box.py: File exists\n")
    assert (box.folder / "box.py").read_text() == "mine"


@pytest.mark.usefixtures("surveyed_connections")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--port", "8020"], "--port 8020 is taken on box; 8021 is free"),
        (["--variant", "llamacpp/demo"], "does not fit this box: tiny-rig 1 has no address"),
    ],
)
def test_a_variant_that_does_not_fit_the_box_is_refused(
    init: Init, box: OperatorFolder, options: list[str], said: str
) -> None:
    done = init("root@box", *options)
    assert done.exit_code == 2
    assert said in done.output.splitlines()[-1]
    assert not (box.folder / "box.py").exists()


def test_a_port_that_an_instance_of_ours_has_can_be_asked_for(init: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = replace(capture("lab"), listeners=(ListeningSocket(8020, "llama-server", "rigwright-chat.service"),))
    monkeypatch.setattr(roles.first_contact, "survey_host", lambda *given, **options: ours)
    monkeypatch.setattr(roles.first_contact, "probe_host_key", add_known_host)
    assert init("root@box", "--port", "8020").exit_code == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"os_id": "fedora", "os_version": "43"}, "fedora 43 is not supported: install one of debian 12"),
        ({"os_id": "debian", "os_version": "11"}, "debian 11 is not supported"),
        ({"os_id": "arch", "os_version": ""}, "arch is not supported"),
        ({"kernel": "6.6.87.2-microsoft-standard-WSL2"}, "Windows Subsystem for Linux"),
    ],
)
def test_a_system_that_cannot_become_a_rig_is_refused_before_a_file_is_written(init, box, monkeypatch, changes, words):
    found = replace(capture("lab"), **changes)  # type: ignore[arg-type]
    monkeypatch.setattr(roles.first_contact, "survey_host", lambda *given, **options: found)
    monkeypatch.setattr(roles.first_contact, "probe_host_key", add_known_host)
    done = init("root@box")
    assert done.exit_code == 2
    assert words in done.output
    assert not (box.folder / "box.py").exists()


@pytest.mark.usefixtures("surveyed_connections")
def test_findings_are_shown(init: Init) -> None:
    shown = " ".join(init("root@box").output.split())
    for words in (
        "system debian 13, 64 CPUs in 2 NUMA nodes, 251 GiB of memory",
        "card 3 0000:c1:00.0 10de:2204, NVIDIA GeForce RTX 3090",
        "driver 580.95.05",
        "in use process 4343 ollama of ollama, ollama.service: card 0",
        "unit ollama.service (active)",
        "disk /data: 3482 GiB free",
        "models /data/models",
        "ports taken 22, 8020, 11434",
        "record the rig old",
        "This box is a rig already, called old: go on with the inventory that it was deployed from.",
        "Wrote box.py, and it is valid.",
    ):
        assert words in shown


def test_next_commands_are_verbs_that_there_are(init: Init, surveyed_connections: list[object]) -> None:
    shown = init("root@box").output.partition("Read it; then\n")[2].splitlines()
    verbs = [line.split()[1] for line in shown]
    # a variant is chosen first, where none is yet, and what it needs is locked
    assert verbs == ["show", *(words.split()[0] for words, _ in init_module.NEXT_STEPS)]
    assert set(verbs) <= set(main.commands)
    assert {"deploy", "check"} <= set(verbs)
    assert main.commands["init"] is init_verb


def test_a_box_that_cannot_be_reached_is_one_line(init, box, monkeypatch, capfd):
    monkeypatch.setenv("HOME", str(box.folder))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = init(f"root@127.0.0.1:{port}")
    assert done.exit_code == 3
    assert done.output.startswith(f"Error: cannot survey root@127.0.0.1:{port}: Connection refused (")
    assert done.output.count("\n") == 1
    assert "Traceback" not in capfd.readouterr().err
    assert not list(box.folder.glob("*.py"))


def test_a_box_without_cards_is_asked_for_nothing_that_only_cards_have(init, box, monkeypatch):
    monkeypatch.setattr(roles.first_contact, "survey_host", lambda *given, **options: replace(capture("lab"), cards=()))
    monkeypatch.setattr(roles.first_contact, "probe_host_key", add_known_host)
    done = init("root@box", answer="\n" * 5)
    assert done.exit_code == 0, done.output
    assert "Priority?" not in done.output
    assert "Variant to serve?" in done.output
    text = (box.folder / "box.py").read_text()
    # the first that fits is the default, and no text speaks of a card
    assert '"chat": {"variant": "llamacpp/qwen2.5-1.5b-cpu", "port": 8020},' in text
    assert "the card stays" not in done.output
    # variants whose files only a mirror has that no inventory declares
    assert "demo" not in done.output
    assert "does not fit" not in done.output


def test_output_has_no_escape_codes(init, monkeypatch):
    monkeypatch.setattr(roles.first_contact, "survey_host", lambda *given, **options: capture("lab"))
    monkeypatch.setattr(roles.first_contact, "probe_host_key", add_known_host)
    monkeypatch.setattr(init_module, "Console", partial(Console, force_terminal=True))
    done = init("root@box")
    assert "box: hardware and system\n" in done.output
    assert "\x1b" not in done.output
    assert "u001b" not in done.output
