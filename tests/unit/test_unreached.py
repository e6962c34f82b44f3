"""A host that does not answer: every verb says so once, with the reason, and ends with 3; no library speaks."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gaierror
from types import SimpleNamespace
from typing import Any

import paramiko
import pyinfra
import pytest
from click.testing import CliRunner
from paramiko.ssh_exception import NoValidConnectionsError
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors import ssh

from checks import connections
from cli import main
from cli.exit_codes import print_unreached
from rigwright.project_root import ROOT
from roles import ssh_transport
from roles.connection_failures import describe_connect_error, strip_address
from tests.unit.pseudo_terminal import run_on_terminal
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

LIMIT = 300  # seconds, for a machine with much else to do
# verb -> words after the inventory
VERBS: dict[str, list[str]] = {"status": [], "deploy": [], "check": [], "ssh": ["true"], "key host": []}
MORE: dict[str, list[str]] = {
    **{
        verb: []
        for verb in ("plan", "deploy --upgrade-driver", "rollback", "doctor", "logs", "check --serving", "bench stress")
    },
    **{verb: [] for verb in ("show generations", "show models", "bench load", "show report", "ssh --tunnel chat")},
    "restart": ["chat"],
    "stop": ["chat"],
    "start": ["chat"],
    "chat": ["chat", "--message", "Are you there?"],
    "switch": ["chat", "--list"],
}
HANGS_UP = (
    "it takes the connection, and ends it before it has answered as an SSH server: check the port (inventory: "
    "ssh_port; init: HOST:PORT), and that sshd runs there"
)
REFUSED = (
    "Connection refused (port 1 of 127.0.0.9): check the port (inventory: ssh_port; init: HOST:PORT), and that sshd "
    "runs there"
)


def raised(message: str, cause: BaseException) -> ConnectError:
    """pyinfra's error for paramiko's."""
    try:
        try:
            raise cause
        except type(cause):
            raise ConnectError(message)  # noqa: B904 (as pyinfra does)
    except ConnectError as error:
        return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            raised(
                "Could not connect ([Errno None] Unable to connect to port 1 on 127.0.0.9)",
                NoValidConnectionsError({("127.0.0.9", 1): ConnectionRefusedError(111, "Connection refused")}),
            ),
            REFUSED,
        ),
        (
            raised("Could not connect", NoValidConnectionsError({("::1", 22): OSError(113, "No route to host")})),
            "No route to host (port 22 of ::1): check the address (inventory: ssh_hostname), and that the box is on",
        ),
        (
            raised("Could not connect (timed out)", TimeoutError("timed out")),
            "no answer: the connection timed out: check the address (inventory: ssh_hostname), and that the box is "
            "on, or that no firewall drops its packets",
        ),
        (
            raised("SSH error (No existing session)", paramiko.SSHException("No existing session")),
            "it takes the connection, and does not answer as an SSH server in time: check the port (inventory: "
            "ssh_port; init: HOST:PORT), and that sshd runs there",
        ),
        (raised("SSH error (x)", paramiko.SSHException("Error reading SSH protocol banner")), HANGS_UP),
        (EOFError(), HANGS_UP),
        (
            raised(
                "Authentication error (username=ops, key=/k)",
                paramiko.AuthenticationException("Authentication failed."),
            ),
            "login as ops is refused with /k (Authentication failed.): correct the user or key (inventory: "
            "ssh_user, ssh_key; init: USER@HOST, --key), or allow the key there with ssh-copy-id",
        ),
        (
            raised("Authentication error (username=ops)", paramiko.AuthenticationException("none")),
            "login as ops is refused with every key that was tried (none): correct the user or key (inventory: "
            "ssh_user, ssh_key; init: USER@HOST, --key), or allow the key there with ssh-copy-id",
        ),
        (
            raised("SSH error (x)", paramiko.SSHException("No authentication methods available")),
            "no SSH key to log in with: name one (init: --key FILE; inventory: ssh_key), or add it to ssh-agent",
        ),
        (
            raised("Could not resolve hostname ([Errno -2] Name or service not known)", gaierror(-2, "unknown")),
            "the name box.example has no address (unknown): check the address (inventory: ssh_hostname), and this "
            "machine's resolver",
        ),
        (paramiko.SSHException("a\x1b[31m\nb"), r"a\x1b[31m b"),
        (paramiko.SSHException("x" * 100_000), "x" * 400),
    ],
)
def test_the_reason_is_one_line_of_plain_words(error: BaseException, said: str) -> None:
    assert describe_connect_error(error, "box.example") == said


@pytest.mark.parametrize("before", ["", "cannot be reached: "])
def test_hosts_with_the_same_cause_have_the_same_reason_without_addresses(before: str) -> None:
    unknown = raised("Could not resolve hostname", gaierror(-2, "unknown"))
    said = {strip_address(f"{before}{describe_connect_error(unknown, f'n{one}.lan')}") for one in range(2)}
    assert said == {
        f"{before}its name has no address (unknown): check the address (inventory: ssh_hostname), and this machine's "
        "resolver"
    }
    assert strip_address(f"{before}{REFUSED}") == before + REFUSED.replace(" (port 1 of 127.0.0.9)", "")


def test_many_hosts_out_of_reach_are_named_by_cause(capsys: pytest.CaptureFixture[str]) -> None:
    print_unreached({f"n{one}": f"Connection refused (port 1 of 192.0.2.{one})" for one in range(1, 21)})
    assert capsys.readouterr().err == "n1 to n20 (20 hosts): cannot be reached: Connection refused\n"
    print_unreached({"n1": "no answer", "n2": "no answer"})
    assert capsys.readouterr().err == "".join(f"n{one}: cannot be reached: no answer\n" for one in (1, 2))


@pytest.mark.parametrize("is_cli", [True, False])
def test_a_pipe_gets_no_question_for_a_passphrase(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_cli: bool
) -> None:
    file = tmp_path / "key"
    paramiko.ECDSAKey.generate().write_private_key_file(str(file), password="secret-word")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    monkeypatch.setattr(pyinfra, "is_cli", is_cli)
    host: Any = SimpleNamespace(private_keys={}, cwd=str(tmp_path))
    with pytest.raises(ConnectError) as caught:
        ssh.get_private_key(host, str(file), "")
    assert describe_connect_error(caught.value) == (
        f"the private key {file} has a passphrase: `ssh-add {file}` gives it to your agent; then log in without "
        "ssh_key in the inventory (init: without --key)"
    )


def test_a_host_that_is_gone_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_transport, "PinnedTransport", lambda sock, *rest, **options: SimpleNamespace(sock=sock))
    with socket.socket() as sock:
        ssh_transport.pinned_transport(sock, expected=None, file="", name="box")
        for (level, option), value in ssh_transport.OPTIONS.items():
            assert sock.getsockopt(level, option) == value
    silence = (ssh_transport.OPTIONS[socket.IPPROTO_TCP, one] for one in (socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
    first, count = silence
    assert ssh_transport.OPTIONS[socket.IPPROTO_TCP, socket.TCP_KEEPIDLE] + first * count <= 75


@contextmanager
def hanging_up() -> Iterator[int]:
    """A port of this machine that ends each connection at once."""
    with socket.create_server(("127.0.0.9", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def write_inventory(box: OperatorFolder, port: int) -> Path:
    rig = {**sample_entry(cards=[], instances=chat_instances()), "ssh_hostname": "127.0.0.9", "ssh_port": port}
    box.write("rig.py", f"from rigwright.inventory import hosts\nrigs = hosts({ ({'box': rig})!r})\n")
    return box.inventory


def environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize(
    ("verb", "words"),
    [*VERBS.items(), *(pytest.param(*one, marks=pytest.mark.all_only) for one in MORE.items())],
    ids=[*VERBS, *MORE],
)
def test_every_verb_says_once_why_a_host_is_out_of_reach(
    box: OperatorFolder, tmp_path: Path, verb: str, words: list[str]
) -> None:
    with hanging_up() as port:
        command = [sys.executable, "-m", "cli", *verb.split(), str(write_inventory(box, port)), *words]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
        )
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert said.count(HANGS_UP) == (0 if verb == "show report" else 1), said
    assert "Traceback" not in said
    assert "[Errno" not in said
    assert "\x1b" not in said
    lines = [line for line in said.splitlines() if line.strip()]
    assert len(lines) <= (12 if verb in ("doctor", "report", "switch") else 2), said


def test_a_terminal_has_it_in_lines_that_fit(box: OperatorFolder, tmp_path: Path) -> None:
    for verb in ("status", "deploy"):
        command = [sys.executable, "-m", "cli", *verb.split(), str(write_inventory(box, 1))]
        status, said = run_on_terminal(command, environment(tmp_path) | {"NO_COLOR": "1"})
        lines = said.splitlines()
        assert (status, [line for line in lines if len(line) > 80]) == (3, []), said
        assert REFUSED in " ".join(line.strip() for line in lines), said
        assert "\x1b" not in said


@pytest.mark.parametrize("verb", ["plan", "show models", "show generations"])
def test_programs_learn_of_it_too(box: OperatorFolder, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(connections, "connect_targets", lambda _, targets, *_more: dict.fromkeys(targets, REFUSED))
    done = CliRunner().invoke(main, [*verb.split(), str(write_inventory(box, 1)), "--json"])
    assert done.exit_code == 3, done.output
    told = [{"host": "box", "reached": False, "why": f"cannot be reached: {REFUSED}"}]
    assert json.loads(done.stdout) == told
