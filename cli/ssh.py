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

from checks.connections import ConnectedHost, RigsByHost, connect_inventory, map_hosts, require_single_host
from cli import exit_codes, remote_terminal, shell_completion
from cli.exit_codes import HostUnreached, exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import WholeNumber
from cli.remote_terminal import PassthroughCommand
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.model.instance import Instance
from rigwright.problems import describe_unknown, printable
from roles import root_shell

COMMAND_ARGUMENT = click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
CHUNK_BYTES = 1 << 15  # bytes


@click.command(cls=PassthroughCommand)
@LIMIT_OPTION
@INVENTORY_ARGUMENT
@COMMAND_ARGUMENT
def ssh(inventory: str, words: tuple[str, ...], limit: str | None) -> None:
    """Log in to the one host of INVENTORY that --limit names, or run COMMAND there, as the inventory's SSH user.

    By the inventory's own address, key and host key. Ends with the command's exit status; 3: it cannot be reached.
    Options stand before COMMAND; one that COMMAND has too needs `--` before COMMAND.
    Example: rigwright ssh --limit box1 ~/boxes/rig.py nvidia-smi
    """
    found, gone = connect_inventory(inventory, limit, lambda rigs: require_single_host(inventory, rigs))
    exit_if_unreached(gone)
    (box,) = found
    typed = remote_terminal.is_interactive()
    try:
        channel = box.target.connector.client.get_transport().open_session()
        if typed:
            here = remote_terminal.describe_terminal()
            channel.get_pty(here.kind, here.columns, here.lines)
        if words:
            channel.exec_command(_shell_line(words))
        else:
            channel.invoke_shell()
        sys.exit(remote_terminal.attach_channel(channel, typed))
    except root_shell.BROKEN as error:
        raise HostUnreached(f"{box.name}: the connection is gone: {printable(str(error))}") from None


@click.command(cls=PassthroughCommand)
@LIMIT_OPTION
@INVENTORY_ARGUMENT
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
def run(inventory: str, words: tuple[str, ...], limit: str | None) -> None:
    """Run COMMAND on all hosts of INVENTORY at once, each line with its host before it; with `_sudo` as root.

    One word is a line for the shell, several are a command and its arguments. Options stand before COMMAND; one that
    COMMAND has too needs `--` before COMMAND.
    Exit status 0: it has succeeded everywhere. 1: it has failed on a host. 3: a host cannot be reached.
    Example: rigwright run ~/boxes/rig.py 'df -h / | tail -n 1'
    """
    exit_codes.exit_on_interrupt()
    found, gone = connect_inventory(inventory, limit)
    failed = False
    for box, status in zip(found, map_hosts(found, lambda box: _run_and_print(box, _shell_line(words))), strict=True):
        if status:
            failed = True
            print_prose(f"{box.name}: exit status {status}", err=True)
    exit_if_unreached(gone)
    if failed:
        raise click.exceptions.Exit(1)


def _shell_line(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else shlex.join(words)


def _run_and_print(box: ConnectedHost, command: str) -> int:
    """Run a command on a host, and show its lines as they come; returns its exit status, 255 for a lost connection."""
    try:
        channel = root_shell.start_command(box.target, command)
        channel.settimeout(None)
        channel.shutdown_write()
        errors = gevent.spawn(_print_lines, box, channel.makefile_stderr("rb"), True)
        _print_lines(box, channel.makefile("rb"), False)
        errors.join()
        return channel.recv_exit_status() & 0xFF
    except root_shell.BROKEN as error:
        print_prose(f"{box.name}: the connection is gone: {printable(str(error))}", err=True)
        return 255


def _print_lines(box: ConnectedHost, lines: object, err: bool) -> None:
    for line in root_shell.read_bounded_lines(lines):
        click.echo(f"{box.name}  {printable(line.decode(errors='replace').rstrip(chr(10)))}", err=err)


def instance_selector(
    inventory: str, name: str | None
) -> tuple[Callable[[RigsByHost], object], Callable[[ConnectedHost], Instance]]:
    """What judges that one host and one of its instances is meant, and what finds that one."""

    def judge(rigs: RigsByHost) -> None:
        require_single_host(inventory, rigs)
        for host, rig in rigs.items():
            there = [one.name for one in rig.instances]
            if name is not None and name not in there:
                raise click.UsageError(f"{host}: {describe_unknown('instance', name, there)}")
            if name is None and len(there) != 1:
                raise click.UsageError(f"{host}: name one of its instances: {', '.join(there) or 'it has none'}")

    return judge, lambda box: next(one for one in box.rig.instances if name in (None, one.name))


@click.command()
@INVENTORY_ARGUMENT
@click.argument("instance", required=False, shell_complete=shell_completion.complete_instances)
@click.option("--port", type=WholeNumber(1, 65535), help="The port here; the instance's own without it.")
@LIMIT_OPTION
def tunnel(inventory: str, instance: str | None, port: int | None, limit: str | None) -> None:
    """Reach INSTANCE's API at a port of this machine, through SSH, until interrupted.

    Whoever is on this machine reaches it then, with the instance's key.
    Example: rigwright tunnel ~/boxes/rig.py chat
    """
    judge, meant = instance_selector(inventory, instance)
    found, gone = connect_inventory(inventory, limit, judge)
    exit_if_unreached(gone)
    (box,) = found
    wanted = meant(box)
    here = port or wanted.port
    server = StreamServer(("127.0.0.1", here), lambda taken, _: _forward_connection(taken, box, wanted.port))
    try:
        server.start()
    except OSError as error:
        raise click.ClickException(
            f"port {here} of this machine: {error.strerror}: choose another with --port"
        ) from None
    print_prose(f"http://127.0.0.1:{here}/v1 leads to {wanted.name} on {box.name} until Ctrl-C")
    exit_codes.exit_on_interrupt(lambda: "\n")
    while root_shell.is_connected(box.target):
        gevent.sleep(1)
    print_prose(f"{box.name}: the connection is gone", err=True)
    sys.exit(3)


def open_port_channel(box: ConnectedHost, port: int) -> Channel:
    """A connection to a port of a host's loopback interface, over SSH.

    Raises:
        roles.root_shell.BROKEN: there is none.
    """
    transport = box.target.connector.client.get_transport()
    channel: Channel = transport.open_channel("direct-tcpip", ("127.0.0.1", port), ("127.0.0.1", 0))
    return channel


def _forward_connection(taken: socket.socket, box: ConnectedHost, port: int) -> None:
    try:
        channel = open_port_channel(box, port)
    except root_shell.BROKEN as error:
        taken.close()
        print_prose(f"{box.name}: port {port} takes no connection: {printable(str(error))}", err=True)
        return
    _copy_both_ways(taken, channel)


def _copy_both_ways(taken: socket.socket, channel: Channel) -> None:
    def pump(read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]) -> None:
        try:
            while part := read(CHUNK_BYTES):
                write(part)
            end()
        except root_shell.BROKEN:
            channel.close()

    back = gevent.spawn(pump, channel.recv, taken.sendall, lambda: taken.shutdown(socket.SHUT_WR))
    pump(taken.recv, channel.sendall, channel.shutdown_write)
    back.join()
    channel.close()
    taken.close()
