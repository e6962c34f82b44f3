"""Verbs that reach hosts by hand, on a server of this machine: `ssh`, `doctor`; and a chat's answer."""

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.chat import stream_completion
from rigwright.project_root import ROOT
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry
from tests.unit.ssh_server import StandInSshd, run_sshd
from tests.unit.test_clients import SeenRequests, server  # noqa: F401 (a fixture)

LIMIT = 120  # seconds
Verb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[StandInSshd]:
    with run_sshd(tmp_path / "host") as found:
        yield found


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def verb(box: OperatorFolder, host: StandInSshd, tmp_path: Path) -> Verb:
    """A verb over an inventory of two hosts: a server that is there, and one that is not."""
    (tmp_path / "home").mkdir()

    def run(*words: str, both: bool = False, **keys: object) -> subprocess.CompletedProcess[str]:
        one = {**sample_entry(cards=[], instances=chat_instances()), **host.connection, **keys}
        away = {**one, "ssh_port": free_port(), "instances": {}}
        rigs = {"box": one} | ({"away": away} if both else {})
        box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({rigs!r})\n")
        environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
        environment.pop("SSH_AUTH_SOCK", None)
        command = [sys.executable, "-m", "cli", *(word.format(box.inventory) for word in words)]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=LIMIT, stdin=subprocess.DEVNULL
        )

    return run


def test_a_command_runs_on_all_hosts_and_each_line_has_its_host(verb: Verb) -> None:
    done = verb("ssh", "{}", "echo one; printf 'two\\033[31m'", both=True)
    assert (done.returncode, done.stdout) == (3, "box  one\nbox  two\\x1b[31m\n"), done.stderr


def test_a_command_that_fails_and_a_host_out_of_reach_are_distinguished(verb: Verb) -> None:
    assert verb("ssh", "{}", "exit 5").returncode == 5
    done = verb("ssh", "{}", "exit 5", both=True)
    assert (done.returncode, "box: exit status 5" in done.stderr) == (3, True), done.stderr
    assert "away: cannot be reached" in done.stderr


@pytest.mark.parametrize("both", [False, True])
def test_a_command_that_hangs_is_given_up(verb: Verb, both: bool) -> None:
    done = verb("ssh", "{}", "--timeout", "1", "timeout 30 tail -f /dev/null", both=both)
    assert done.returncode == (3 if both else 124)
    assert "box: the connection was closed, for the command has not ended within 1 s" in done.stderr


def test_several_words_are_a_command_and_its_arguments(verb: Verb) -> None:
    assert verb("ssh", "{}", "printf", "%s.", "a b", "$HOME").stdout == "a b.$HOME."


def test_ssh_runs_a_command_as_the_login_user_and_ends_as_it_does(verb: Verb, host: StandInSshd) -> None:
    done = verb("ssh", "{}", "echo hello; exit 7", _sudo=True)
    assert (done.returncode, done.stdout) == (7, "hello\n"), done.stderr
    assert host.run_commands == ["echo hello; exit 7"]


def test_a_command_is_roots_with_sudo_alone(verb: Verb, host: StandInSshd) -> None:
    host.add_program("sudo", "echo as root")
    assert verb("ssh", "{}", "--sudo", "id", _sudo=True).stdout == "as root\n"
    assert verb("ssh", "{}", "echo", "plain", _sudo=True).stdout == "plain\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "80", "{}"], "--port needs --tunnel"),
        (["--as-instance", "{}"], "--as-instance needs --in"),
        (["--sudo", "{}"], "--sudo needs COMMAND, without --in"),
        (["--tunnel", "chat", "{}", "id"], "--tunnel conflicts with COMMAND and --in"),
        (["--tunnel", "chat", "--in", "chat", "{}"], "--tunnel conflicts with COMMAND and --in"),
    ],
)
def test_options_of_ssh_that_do_not_fit_are_refused(verb: Verb, host: StandInSshd, words: list[str], said: str) -> None:
    done = verb("ssh", *words)
    assert (done.returncode, host.login_count) == (2, 0)
    assert said in " ".join(done.stderr.split())


def test_a_login_is_to_one_host(verb: Verb, host: StandInSshd) -> None:
    done = verb("ssh", "{}", both=True)
    assert (done.returncode, host.login_count) == (2, 0)
    assert "name one with --limit: away, box" in done.stderr


def test_a_doctor_names_what_keeps_a_host_from_being_reached(verb: Verb) -> None:
    done = verb("doctor", "{}", both=True, _sudo=True)
    assert done.returncode == 3, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "this machine: no fault found" in lines
    assert any(line.startswith("away: cannot be reached: ") for line in lines)
    assert any("fix: ssh -v -p" in line and "root@127.0.0.1 shows where it stops" in line for line in lines)


def test_a_doctor_names_another_host_key_and_does_not_log_in(verb: Verb, host: StandInSshd) -> None:
    import paramiko

    key = paramiko.ECDSAKey.generate()
    done = verb("doctor", "{}", ssh_host_key=f"{key.get_name()} {key.get_base64()}")
    assert (done.returncode, host.login_count) == (3, 0)
    assert "box: it shows the host key SHA256:" in done.stdout
    assert "rigwright key host" in done.stdout


def test_a_doctor_names_what_keeps_commands_from_being_roots(verb: Verb, host: StandInSshd) -> None:
    host.add_program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    done = verb("doctor", "{}", _sudo=True)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "box: cannot become root (" in done.stdout
    assert "NOPASSWD: ALL' > /etc/sudoers.d/rigwright" in done.stdout
    host.add_program("id", "echo 1000")
    assert 'fix: put "_sudo": True among its keys' in verb("doctor", "{}").stdout


def test_a_doctor_goes_on_with_an_inventory_that_is_refused(verb: Verb, host: StandInSshd) -> None:
    host.add_program("id", "echo 1000")
    done = verb("doctor", "{}", instances=chat_instances(variant="llamacpp/cpuu"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert 'did you mean "llamacpp/cpu"?' in done.stderr
    assert "this machine: " in done.stdout
    assert 'fix: put "_sudo": True among its keys' in done.stdout
    host.add_program("id", "echo 0")
    done = verb("doctor", "{}", instances=chat_instances(variant="llamacpp/cpuu"))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "box: its inventory entry is invalid: its state was not examined" in done.stdout


def test_a_doctor_looks_at_this_machine_where_an_inventory_is_no_program(
    verb: Verb, box: OperatorFolder, host: StandInSshd
) -> None:
    done = verb("doctor", str(box.write("broken.py", "rigs = hosts(")))
    assert (done.returncode, host.login_count) == (2, 0)
    assert "broken.py: " in done.stderr
    assert done.stdout.startswith("this machine: ")


def test_a_doctor_without_an_inventory_looks_at_this_machine_alone(verb: Verb, host: StandInSshd) -> None:
    done = verb("doctor")
    assert (done.returncode in (0, 1), done.stderr, host.login_count) == (True, "", 0)
    assert {line.partition(":")[0] for line in done.stdout.splitlines() if line[0] != " "} == {"this machine"}


def test_a_doctor_names_secrets_that_others_can_read(verb: Verb, box: OperatorFolder, host: StandInSshd) -> None:
    host.add_program("id", "echo 1000")
    box.write("chat.key", "0123456789abcdef\n").chmod(0o644)
    done = verb("doctor", "{}", instances=chat_instances(api_key_file="chat.key"))
    assert f"this machine: the API key in {box.folder}/chat.key is readable by others (mode 0644)" in done.stdout
    assert f"fix: chmod 600 {box.folder}/chat.key" in done.stdout


@pytest.fixture
def speaks(verb: Verb, server: SeenRequests, host: StandInSshd) -> dict[str, object]:  # noqa: F811 (the fixture)
    """Keys of a rig whose instance is a server of this machine."""
    host.add_program("cat", "echo the-key-of-the-instance")
    return {"instances": chat_instances(port=server.server_port)}


def test_a_chat_goes_over_ssh_with_the_instances_own_key(
    verb: Verb,
    server: SeenRequests,  # noqa: F811 (the fixture)
    speaks: dict[str, object],
    host: StandInSshd,
) -> None:
    done = verb("chat", "{}", "chat", "-m", "Are you there?", **speaks)
    assert (done.returncode, done.stdout) == (0, "I am here.\n"), done.stderr
    assert server.headers == "Bearer the-key-of-the-instance"
    assert server.body["messages"] == [{"role": "user", "content": "Are you there?"}]
    assert not any("the-key" in command for command in host.run_commands)


def test_a_tunnel_leads_to_an_instances_port(
    box: OperatorFolder,
    verb: Verb,
    server: SeenRequests,  # noqa: F811 (the fixture)
    speaks: dict[str, object],
    tmp_path: Path,
) -> None:
    verb("validate", "{}", **speaks)
    here = free_port()
    command = [sys.executable, "-m", "cli", "ssh", "--tunnel", "chat", str(box.inventory), "--port", str(here)]
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith(f"http://127.0.0.1:{here}/v1 leads to chat on box")
            asked = {"model": "m", "messages": [], "stream": True}
            for _ in range(2):
                connection = http.client.HTTPConnection("127.0.0.1", here, timeout=30)
                assert "".join(stream_completion(connection, "any", asked)) == "I am here."
        finally:
            process.terminate()


def test_an_answer_comes_piece_by_piece(server: SeenRequests) -> None:  # noqa: F811 (the fixture)
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    pieces = list(stream_completion(connection, "a-key", {"model": "m", "messages": [], "stream": True}))
    assert pieces == ["I am", " here."]
    assert server.headers == "Bearer a-key"


AS_ROOT = "status;plan;check;doctor --no-checks;show generations;check --serving;deploy --dry;start chat;bench load"
MORE = (
    "logs;show models;stop chat;restart chat;bench stress;bench speed;deploy;rollback;remove --yes;ssh --in chat"
    ";chat -m hi;check --history;check --accept --yes;show report;show advisories --installed"
)


@pytest.mark.parametrize(
    "words", [*AS_ROOT.split(";"), *(pytest.param(one, marks=pytest.mark.all_only) for one in MORE.split(";"))]
)
def test_a_host_that_refuses_root_is_not_reached_for_any_verb(verb: Verb, host: StandInSshd, words: str) -> None:
    host.add_program("sudo", "echo 'sudo: a password is required' >&2; exit 1")
    name, *rest = words.split()
    topics, options = (rest[:1], rest[1:]) if name in ("show", "bench") else ([], rest)
    done = verb(name, *topics, "{}", *options, _sudo=True)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
