"""`rigwright ssh`, `run` and `tunnel`: an inventory's hosts, reached as a deploy reaches them."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Callable

import click
import gevent
from gevent.server import StreamServer
from paramiko import Channel

from checks.looking import Box, Rigs, alone, boxes, each
from cli import completing, interrupts, terminal
from cli.asked import Runs
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Unreached, leave
from cli.tables import say
from rigwright.model.instance import Instance
from rigwright.problems import printable, unknown
from roles import root

WORDS = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
PART = 1 << 15  # bytes


@click.command(cls=Runs)
@LIMIT
@INVENTORY
@WORDS
def ssh(inventory: str, words: tuple[str, ...], limit: str | None) -> None:
    """Log in to the one host of INVENTORY that --limit names, or run COMMAND there, as the inventory's SSH user.

    By the inventory's own address, key and host key. Ends with the command's exit status; 3: it cannot be reached.
    Options stand before COMMAND; one that COMMAND has too needs `--` before COMMAND.
    Example: rigwright ssh --limit box1 ~/boxes/rig.py nvidia-smi
    """
    found, gone = boxes(inventory, limit, lambda rigs: alone(inventory, rigs))
    leave(gone)
    (box,) = found
    typed = terminal.interactive()
    try:
        channel = box.target.connector.client.get_transport().open_session()
        if typed:
            here = terminal.terminal()
            channel.get_pty(here.kind, here.columns, here.lines)
        if words:
            channel.exec_command(_line(words))
        else:
            channel.invoke_shell()
        sys.exit(terminal.attach(channel, typed))
    except root.BROKEN as error:
        raise Unreached(f"{box.name}: the connection is gone: {printable(str(error))}") from None


@click.command(cls=Runs)
@LIMIT
@INVENTORY
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def run(inventory: str, words: tuple[str, ...], limit: str | None) -> None:
    """Run COMMAND on all hosts of INVENTORY at once, each line with its host before it; with `_sudo` as root.

    One word is a line for the shell, several are a command and its arguments. Options stand before COMMAND; one that
    COMMAND has too needs `--` before COMMAND.
    Exit status 0: it has succeeded everywhere. 1: it has failed on a host. 3: a host cannot be reached.
    Example: rigwright run ~/boxes/rig.py 'df -h / | tail -n 1'
    """
    interrupts.end_at_once()
    found, gone = boxes(inventory, limit)
    failed = False
    for box, status in zip(found, each(found, lambda box: _told(box, _line(words))), strict=True):
        if status:
            failed = True
            say(f"{box.name}: exit status {status}", err=True)
    leave(gone)
    if failed:
        raise click.exceptions.Exit(1)


def _line(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else shlex.join(words)


def _told(box: Box, command: str) -> int:
    """Run a command on a host, and show its lines as they come; returns its exit status, 255 for a lost connection."""
    try:
        channel = root.start(box.target, command)
        channel.settimeout(None)
        channel.shutdown_write()
        errors = gevent.spawn(_show, box, channel.makefile_stderr("rb"), True)
        _show(box, channel.makefile("rb"), False)
        errors.join()
        return channel.recv_exit_status() & 0xFF
    except root.BROKEN as error:
        say(f"{box.name}: the connection is gone: {printable(str(error))}", err=True)
        return 255


def _show(box: Box, lines: object, err: bool) -> None:
    for line in root.parts(lines):
        click.echo(f"{box.name}  {printable(line.decode(errors='replace').rstrip(chr(10)))}", err=err)


def of_instance(inventory: str, name: str | None) -> tuple[Callable[[Rigs], object], Callable[[Box], Instance]]:
    """What judges that one host and one of its instances is meant, and what finds that one."""

    def judge(rigs: Rigs) -> None:
        alone(inventory, rigs)
        for host, rig in rigs.items():
            there = [one.name for one in rig.instances]
            if name is not None and name not in there:
                raise click.UsageError(f"{host}: {unknown('instance', name, there)}")
            if name is None and len(there) != 1:
                raise click.UsageError(f"{host}: name one of its instances: {', '.join(there) or 'it has none'}")

    return judge, lambda box: next(one for one in box.rig.instances if name in (None, one.name))


@click.command()
@INVENTORY
@click.argument("instance", required=False, shell_complete=completing.instances)
@click.option("--port", type=click.IntRange(1, 65535), help="The port here; the instance's own without it.")
@LIMIT
def tunnel(inventory: str, instance: str | None, port: int | None, limit: str | None) -> None:
    """Reach INSTANCE's API at a port of this machine, through SSH, until interrupted.

    Whoever is on this machine reaches it then, with the instance's key.
    Example: rigwright tunnel ~/boxes/rig.py chat
    """
    judge, meant = of_instance(inventory, instance)
    found, gone = boxes(inventory, limit, judge)
    leave(gone)
    (box,) = found
    wanted = meant(box)
    here = port or wanted.port
    server = StreamServer(("127.0.0.1", here), lambda taken, _: _carried(taken, box, wanted.port))
    try:
        server.start()
    except OSError as error:
        raise click.ClickException(
            f"port {here} of this machine: {error.strerror}: choose another with --port"
        ) from None
    say(f"http://127.0.0.1:{here}/v1 leads to {wanted.name} on {box.name} until Ctrl-C")
    interrupts.end_at_once(lambda: "\n")
    while root.connected(box.target):
        gevent.sleep(1)
    say(f"{box.name}: the connection is gone", err=True)
    sys.exit(3)


def to_port(box: Box, port: int) -> Channel:
    """A connection to a port of a host's loopback interface, over SSH.

    Raises:
        roles.root.BROKEN: there is none.
    """
    transport = box.target.connector.client.get_transport()
    channel: Channel = transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
    return channel


def _carried(taken: socket.socket, box: Box, port: int) -> None:
    try:
        channel = to_port(box, port)
    except root.BROKEN as error:
        taken.close()
        say(f"{box.name}: port {port} takes no connection: {printable(str(error))}", err=True)
        return
    _carry(taken, channel)


def _carry(taken: socket.socket, channel: Channel) -> None:
    def pump(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
        try:
            while part := read(PART):
                write(part)
            end()
        except root.BROKEN:
            channel.close()

    back = gevent.spawn(pump, channel.recv, taken.sendall, lambda: taken.shutdown(socket.SHUT_WR))
    pump(taken.recv, channel.sendall, channel.shutdown_write)
    back.join()
    channel.close()
    taken.close()
