"""`rigwright chat`: a conversation with a model of a rig, in the terminal."""

from __future__ import annotations

import http.client
import io
import json
import os
import shlex
import ssl
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from paramiko import Channel

from checks.connections import ConnectedHost, connect_inventory
from cli import exit_codes, safe_output, shell_completion
from cli.exit_codes import HostUnreached, NotAsDeclared, exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.observed_box import describe_unanswered
from cli.shell_completion import LIMIT_OPTION
from cli.show_declared import find_access_paths
from cli.ssh import instance_selector, open_port_channel
from cli.tables import print_prose
from rigwright.gateway import certificate_authority
from rigwright.gateway.client_setup import NO_KEY, VARIABLE, ClientEndpoint
from rigwright.model.instance import Instance
from rigwright.problems import printable
from rigwright.serving.instance_units import credential_path
from roles import root_shell

LONGEST = 1 << 20  # bytes of a line of an answer
MOST = 16 << 20  # bytes of an answer
PATIENCE = 600.0  # seconds without one
ConnectFunction = Callable[[], http.client.HTTPConnection]


class _ChannelReader(io.RawIOBase):
    """The data that comes over a channel of SSH's: paramiko's own files lack the methods by which http.client reads
    chunks."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self.channel = channel

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Take what there is, at least a byte; none at the end."""
        found = self.channel.recv(len(buffer))
        buffer[: len(found)] = found
        return len(found)


class _ChannelSocket:
    """A channel of SSH's as http.client has a socket: its readers keep it open, as a socket's file does."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.sendall = channel, channel.sendall

    def makefile(self, mode: str) -> io.BufferedReader:
        """The file that answers are read from."""
        return io.BufferedReader(_ChannelReader(self.channel))

    def close(self) -> None:
        """Leave it to the reader: an answer may end with its connection. paramiko closes an unreferenced channel."""


class _ChannelHTTPConnection(http.client.HTTPConnection):
    """HTTP over a channel of SSH's."""

    def __init__(self, box: ConnectedHost, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self.box = box

    def connect(self) -> None:
        """Open the channel."""
        channel = open_port_channel(self.box, self.port)
        channel.settimeout(PATIENCE)
        self.sock: Any = _ChannelSocket(channel)


@click.command()
@INVENTORY_ARGUMENT
@click.argument("model", required=False, shell_complete=shell_completion.complete_instances)
@click.option("--message", "-m", help="Ask this, print the answer and end; without it, standard input if it is a file.")
@click.option("--gateway", is_flag=True, help="Ask at the gateway's address, with the key in RIGWRIGHT_API_KEY.")
@LIMIT_OPTION
def chat(inventory: str, model: str | None, message: str | None, gateway: bool, limit: str | None) -> None:
    """Talk to a model.

    MODEL is an instance, reached over SSH with its own key; with --gateway it is a model's name or alias. An empty line
    or Ctrl-D ends the chat.
    Exit status: 0, answered. 1, no answer. 2, the command or the inventory is refused. 3, the host was not reached.
    Example: rigwright chat ~/boxes/rig.py chat -m 'Are you there?'
    """
    exit_codes.exit_on_interrupt(lambda: "\n")
    explain: Callable[[], str] = str
    if gateway:
        found = [one for one in find_access_paths(inventory, limit, model) if one.listener]
        if not found:
            raise click.ClickException(f"{inventory}: no gateway offers that: declare one, or leave --gateway out")
        way, key = found[0], os.environ.get(VARIABLE, NO_KEY)
        if way.keyed and key == NO_KEY:
            raise click.UsageError(f"{way.base} needs a key: export {VARIABLE}=...")
        name, connect = way.model, lambda: _connect_gateway(way, inventory)
        if not (key.isascii() and key.isprintable()):
            # http.client would say so with the key in its words
            raise click.UsageError(f"{VARIABLE} must be one line of printable ASCII")
    else:
        judge, meant = instance_selector(inventory, model)
        reached, gone = connect_inventory(inventory, limit, judge)
        exit_if_unreached(gone)
        (box,) = reached
        instance = meant(box)
        key, name, port = _read_instance_key(box, instance, inventory), instance.model_name, instance.port
        connect = lambda: _ChannelHTTPConnection(box, port)  # noqa: E731 (as the other one)
        explain = lambda: (state := describe_unanswered(box, instance, inventory)) and f"{box.name}: {state}"  # noqa: E731
    _run_conversation(connect, key, name, message, explain)


def _read_instance_key(box: ConnectedHost, instance: Instance, inventory: str) -> str:
    command = f"cat {shlex.quote(credential_path(box.rig.roots, instance))}"
    try:
        answer = root_shell.run_command(box.target, command, most=1 << 16)
    except root_shell.ConnectionGone as error:
        raise HostUnreached(f"{box.name}: {printable(str(error))}") from None
    if answer.status or not (lines := answer.lines):
        state = describe_unanswered(box, instance, inventory, asleep=False)
        raise NotAsDeclared(f"{box.name}: {state or f'{instance.name} has no API key: run deploy'}")
    if not (lines[0].isascii() and lines[0].isprintable()):
        raise NotAsDeclared(f"{box.name}: {instance.name} has no valid API key: run deploy")
    return lines[0]


def _connect_gateway(way: ClientEndpoint, inventory: str) -> http.client.HTTPConnection:
    parts = urlsplit(way.base)
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    trusted = ssl.create_default_context()
    ours = Path(inventory).resolve().parent / certificate_authority.FOLDER / certificate_authority.CERTIFICATE
    if ours.is_file():
        trusted.load_verify_locations(ours)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=PATIENCE, context=trusted)


def _run_conversation(
    connect: ConnectFunction, key: str, model: str, message: str | None, explain: Callable[[], str] = str
) -> None:
    """Ask and print until there is no question.

    Args:
        connect: Opens a connection.
        key: The API key.
        model: The model's name.
        message: The only question; None to read questions.
        explain: Why there is no answer, where that is known.
    """
    said: list[dict[str, str]] = []
    alone = message is not None or not sys.stdin.isatty()
    if not alone:
        print_prose(f"{model}; an empty line or Ctrl-D ends it", err=True)
    while question := (message or sys.stdin.read() if alone else _read_question()).strip():
        said.append({"role": "user", "content": question})
        begun, answer, pieces = time.monotonic(), "", 0
        try:
            asked = {"model": model, "messages": said, "stream": True}
            with closing(connect()) as connection, closing(stream_completion(connection, key, asked)) as told:
                for piece in told:
                    pieces += 1
                    answer += piece
                    safe_output.print_model_text(piece)
        except (*root_shell.BROKEN, http.client.HTTPException, ValueError, TypeError, RecursionError) as error:
            if answer:
                click.echo(err=True)
            print_prose(explain() or f"no answer: {printable(str(error)) or type(error).__name__}", err=True)
            raise click.exceptions.Exit(1) from None
        click.echo()
        if alone:
            return
        said.append({"role": "assistant", "content": answer})
        click.echo(f"{pieces / max(time.monotonic() - begun, 1e-3):.0f} pieces/s", err=True)


def _read_question() -> str:
    """The next question of a terminal; empty at Ctrl-D."""
    try:
        return input("> ")
    except EOFError:
        click.echo(err=True)
        return ""


def stream_completion(
    connection: http.client.HTTPConnection, key: str, asked: dict[str, object]
) -> Generator[str, None, None]:
    """Ask for a completion of a chat; yields the pieces of the answer as they come.

    Raises:
        OSError, http.client.HTTPException: there is no answer.
        ValueError: it is outside of OpenAI's protocol, or a refusal; the text is the answer.
    """
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(asked), headers)
    with connection.getresponse() as response:
        if response.status != 200:
            raise ValueError(f"{response.status} {response.reason}: {response.read(2000).decode(errors='replace')}")
        taken = 0
        while line := response.readline(LONGEST):
            if (taken := taken + len(line)) > MOST:
                raise ValueError(f"an answer of more than {MOST >> 20} MiB")
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            told = json.loads(line[5:])
            if "error" in told:
                raise ValueError(str(told["error"]))
            for choice in told.get("choices") or ():
                delta = choice.get("delta") or {}
                # some call what a model thinks by one name, some by the other
                if piece := delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
                    yield str(piece)
