"""An SSH server of this machine in place of a host: its commands run in a shell here, with programs of a test's."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import paramiko
from paramiko.common import cMSG_CHANNEL_SUCCESS


class StandInSshd:
    """The server's process, as a test sees it."""

    def __init__(self, folder: Path, port: int, pid: int) -> None:
        self.folder, self.port, self.pid = folder, port, pid

    @property
    def connection(self) -> dict[str, object]:
        """An inventory's keys that lead here."""
        return {
            "ssh_hostname": "127.0.0.1",
            "ssh_port": self.port,
            "ssh_user": "root",
            "ssh_key": str(self.folder / "key"),
            "ssh_host_key": self.host_key,
        }

    @property
    def host_key(self) -> str:
        """Its public key, as an inventory has it."""
        return (self.folder / "key.pub").read_text()

    @property
    def login_count(self) -> int:
        """The number of logins that have begun."""
        log = self.folder / "logins"
        return len(log.read_text().splitlines()) if log.exists() else 0

    @property
    def run_commands(self) -> list[str]:
        """The commands that were run, in their order."""
        return [path.read_text() for path in sorted((self.folder / "told").iterdir())]

    def add_program(self, name: str, script: str) -> None:
        """Have a program of this name do what a shell script says."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@contextmanager
def run_sshd(folder: Path, **variables: str) -> Iterator[StandInSshd]:
    """A server that runs while the block does: in a process of its own, for a test's has gevent's threads.

    Args:
        folder: The folder of its key, its programs and its record. **variables: More of its environment.
    """
    for name in ("bin", "told"):
        (folder / name).mkdir(parents=True)
    key = paramiko.RSAKey.generate(2048)
    key.write_private_key_file(str(folder / "key"))
    (folder / "key.pub").write_text(f"{key.get_name()} {key.get_base64()}")
    environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"} | variables
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        try:
            port = int(process.stdout.readline())
            yield StandInSshd(folder, port, process.pid)
        finally:
            process.terminate()


# As roles/login_shell.py has it.
SCRIPT = re.compile(rb"sh -c 'x=\$\(dd bs=([0-9]+) count=1 ")


class SshServerInterface(paramiko.ServerInterface):
    """One connection, let in with any key."""

    accepted: threading.Thread | None = None
    """The thread that runs an accepted command, once its client knows so."""

    def __init__(self, told: Path) -> None:
        self.told = told
        self.forwarded: dict[int, tuple[str, int]] = {}
        """Channel -> the port of this machine that it is to lead to."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        with (self.told.parent / "logins").open("a") as log:
            log.write(f"{username}\n")
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_direct_tcpip_request(self, chanid: int, origin: object, destination: tuple[str, int]) -> int:
        self.forwarded[chanid] = destination
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        note = self.told / f"{len(list(self.told.iterdir())):04}"
        note.write_bytes(command)
        self.accepted = threading.Thread(target=self.run_command, args=(channel, command, note), daemon=True)
        return True

    def run_command(self, channel: Any, command: bytes, note: Path) -> None:
        if first := SCRIPT.match(command):
            # a script on standard input was the command
            command = b""
            while len(command) < int(first[1]) and (part := channel.recv(int(first[1]) - len(command))):
                command += part
            command = command.rpartition(b"\n")[0]
            note.write_bytes(command)
        # a job of ours gets its orders
        listens = b"systemd-run" in command
        quiet = {"stdin": subprocess.PIPE if listens else subprocess.DEVNULL}
        quiet |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with (
            subprocess.Popen(["sh", "-c", self.relocate_paths(command)], bufsize=0, **quiet) as process,
            suppress(OSError),
        ):  # type: ignore[call-overload]
            if listens:
                threading.Thread(target=self.send_input, args=(channel, process), daemon=True).start()
            complaints = threading.Thread(target=self.send_stderr, args=(channel, process.stderr), daemon=True)
            complaints.start()
            while part := process.stdout.read(65536):
                channel.sendall(part)
            complaints.join()
            channel.send_exit_status(process.wait())
        channel.close()

    def send_stderr(self, channel: Any, said: Any) -> None:
        with suppress(OSError):
            while part := said.read(65536):
                channel.sendall_stderr(part)

    def relocate_paths(self, text: bytes) -> bytes:
        """Root's records of instances, and their sockets, lie in the test's folder."""
        return text.replace(b"/run/rigwright", bytes(self.told.parent / "run"))

    def send_input(self, channel: Any, process: Any) -> None:
        """Pass on what is sent, until it ends."""
        with suppress(OSError):
            while part := channel.recv(1 << 20):
                process.stdin.write(self.relocate_paths(part))
            process.stdin.close()


def forward_ports(transport: paramiko.Transport, server: SshServerInterface) -> None:
    """Carry what is asked for of this machine's ports, for as long as the connection is up."""
    while transport.is_active():
        channel = transport.accept(1)
        if channel is None or channel.get_id() not in server.forwarded:
            continue
        there = socket.create_connection(server.forwarded[channel.get_id()])
        for read, write in ((channel.recv, there.sendall), (there.recv, channel.sendall)):
            threading.Thread(target=copy_stream, args=(read, write, channel), daemon=True).start()


def copy_stream(read: Any, write: Any, channel: Any) -> None:
    """Pass on what is read, until it ends."""
    with suppress(OSError):
        while part := read(65536):
            write(part)
        channel.close()


class DelayedTransport(paramiko.Transport):
    """A connection whose commands begin after they were let in, as OpenSSH's do: a quick one would end before that."""

    def _send_user_message(self, data: paramiko.Message) -> None:
        super()._send_user_message(data)  # type: ignore[misc]
        server = self.server_object
        if data.asbytes()[:1] == cMSG_CHANNEL_SUCCESS and isinstance(server, SshServerInterface) and server.accepted:
            server.accepted.start()
            server.accepted = None


def serve_forever(folder: Path) -> None:
    """Serve for ever; the port is printed first."""
    key = paramiko.RSAKey.from_private_key_file(str(folder / "key"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connections = []
        while True:
            transport = DelayedTransport(listener.accept()[0])
            transport.add_server_key(key)
            # a client that only asks for the host's key leaves in the middle of it
            with suppress(EOFError, OSError, paramiko.SSHException):
                transport.start_server(server=(server := SshServerInterface(folder / "told")))
                threading.Thread(target=forward_ports, args=(transport, server), daemon=True).start()
            connections.append(transport)


if __name__ == "__main__":
    serve_forever(Path(sys.argv[1]))
