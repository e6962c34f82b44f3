"""`rigwright ssh`: logins, commands and tunnels to an inventory's hosts, connected as a deploy connects."""

from __future__ import annotations

import shlex
import socket
import sys
from collections.abc import Callable, Collection

import click
import gevent
from gevent.server import StreamServer
from paramiko import Channel

from checks.connections import (
    ConnectedHost,
    LoginHost,
    RigsByHost,
    connect_inventory,
    connect_logins,
    require_single_host,
)
from cli import exit_codes, remote_terminal
from cli.exit_codes import HostUnreached, exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import WholeNumber
from cli.remote_terminal import PassthroughCommand
from cli.shell_completion import LIMIT_OPTION, complete_environments, complete_instances
from cli.tables import print_prose
from rigwright.model.instance import Instance
from rigwright.problems import describe_unknown, printable
from roles import root_shell

CHUNK_BYTES = 1 << 15  # bytes
LIMIT = 3600  # seconds of a command on one of several hosts
TIMED_OUT = 124
"""The exit status of a command that was given up, as timeout(1) has it."""
GIVEN_UP = "the connection was closed, for the command has not ended within"


@click.command(cls=PassthroughCommand)
@LIMIT_OPTION
@click.option("--sudo", is_flag=True, help="Run COMMAND as root, as a deploy does; default: the SSH user.")
@click.option(
    "--in",
    "within",
    metavar="NAME",
    help="Run COMMAND, or a shell, in this environment or as this instance.",
    shell_complete=complete_environments,
)
@click.option("--as-instance", is_flag=True, help="With --in: an instance, even if an environment has its name.")
@click.option(
    "--tunnel",
    metavar="INSTANCE",
    help="Forward a port of this machine to the instance.",
    shell_complete=complete_instances,
)
@click.option("--port", type=WholeNumber(1, 65535), help="With --tunnel: this machine's port; default: the instance's.")
@click.option(
    "--timeout",
    type=WholeNumber(1, 604800),
    metavar="SECONDS",
    help="Give COMMAND up after this; default: an hour, on one host never.",
)
@INVENTORY_ARGUMENT
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def ssh(
    inventory: str,
    words: tuple[str, ...],
    limit: str | None,
    sudo: bool,
    within: str | None,
    as_instance: bool,
    tunnel: str | None,
    port: int | None,
    timeout: int | None,
) -> None:
    """Log in, or run a command.

    COMMAND runs on all hosts that --limit leaves, each line with its host if there are several. A login, --in and
    --tunnel need one host. One word is a shell line; several words are a program and its arguments. Options go before
    COMMAND, or put `--` before COMMAND. A login and COMMAND also work if only the connection is valid in INVENTORY.
    Exit status: on one host the command's own. On several: 0, it succeeded on all. 1, it failed on one. 2, the command
    or the inventory is refused. 3, a host was not reached.
    Example: rigwright ssh rig.py --limit box1 nvidia-smi
    """
    for name, used, fits, needed in (
        ("--port", port, tunnel, "needs --tunnel"),
        ("--as-instance", as_instance, within, "needs --in"),
        ("--sudo", sudo, words and not within, "needs COMMAND, without --in"),
        ("--timeout", timeout, words and not within, "needs COMMAND, without --in"),
        ("--tunnel", tunnel, not words and not within, "conflicts with COMMAND and --in"),
    ):
        if used and not fits:
            raise click.UsageError(f"{name} {needed}")
    if tunnel:
        forward_port(inventory, limit, tunnel, port)
    elif within:
        from cli.shell import run_in_environment

        sys.exit(run_in_environment(inventory, limit, within, words, as_instance=as_instance))
    else:
        _run_command(inventory, limit, words, sudo=sudo, timeout=timeout)


def _run_command(inventory: str, limit: str | None, words: tuple[str, ...], *, sudo: bool, timeout: int | None) -> None:
    several = False

    def judge(rigs: Collection[str]) -> None:
        nonlocal several
        several = len(rigs) > 1
        if not words:
            require_single_host(inventory, rigs)

    running: dict[str, gevent.Greenlet] = {}

    def begin(box: LoginHost) -> None:
        # a host that does not answer delays no other one
        if several:
            running[box.name] = gevent.spawn(_run_and_print, box, words, sudo=sudo, timeout=timeout or LIMIT)

    exit_codes.exit_on_interrupt()
    found, gone = connect_logins(inventory, limit, judge, begin)
    if not several:
        exit_if_unreached(gone)
        sys.exit(_attach_command(found[0], words, sudo=sudo, timeout=timeout))
    failed = False
    for box in found:
        if status := running[box.name].get():
            failed = True
            print_prose(f"{box.name}: exit status {status}", err=True)
    exit_if_unreached(gone)
    if failed:
        raise click.exceptions.Exit(1)


def _open_command(
    box: LoginHost, words: tuple[str, ...], sudo: bool, terminal: root_shell.OperatorTerminal | None = None
) -> Channel:
    """The channel of a command on a host, or of a login without one.

    Raises:
        roles.root_shell.BROKEN: the connection is lost.
    """
    line = words[0] if len(words) == 1 else shlex.join(words)
    if sudo:
        channel = root_shell.start_command(box.target, line, terminal=terminal)
    else:
        channel = box.target.connector.client.get_transport().open_session()
        if terminal:
            channel.get_pty(terminal.kind, terminal.columns, terminal.lines)
        if words:
            channel.exec_command(line)
        else:
            channel.invoke_shell()
    channel.settimeout(None)
    return channel


def _attach_command(box: LoginHost, words: tuple[str, ...], *, sudo: bool, timeout: int | None) -> int:
    """Run a command with this terminal's input and output; returns its exit status."""
    typed = remote_terminal.is_interactive()
    try:
        with gevent.Timeout(timeout):
            channel = _open_command(box, words, sudo, remote_terminal.describe_terminal() if typed else None)
            return remote_terminal.attach_channel(channel, typed)
    except gevent.Timeout:
        print_prose(f"{box.name}: {GIVEN_UP} {timeout} s", err=True)
        return TIMED_OUT
    except root_shell.BROKEN as error:
        raise HostUnreached(f"{box.name}: lost the connection: {printable(str(error))}") from None


def _run_and_print(box: LoginHost, words: tuple[str, ...], *, sudo: bool, timeout: int) -> int:
    """Run a command and print its lines as they come; returns its exit status, 255 for a lost connection."""
    try:
        with gevent.Timeout(timeout):
            channel = _open_command(box, words, sudo)
            channel.shutdown_write()
            errors = gevent.spawn(_print_lines, box, channel.makefile_stderr("rb"), True)
            _print_lines(box, channel.makefile("rb"), False)
            errors.join()
            return channel.recv_exit_status() & 0xFF
    except gevent.Timeout:
        print_prose(f"{box.name}: {GIVEN_UP} {timeout} s", err=True)
        return TIMED_OUT
    except root_shell.BROKEN as error:
        print_prose(f"{box.name}: lost the connection: {printable(str(error))}", err=True)
        return 255


def _print_lines(box: LoginHost, lines: object, err: bool) -> None:
    for line in root_shell.read_bounded_lines(lines):
        click.echo(f"{box.name}  {printable(line.decode(errors='replace').rstrip(chr(10)))}", err=err)


def instance_selector(
    inventory: str, name: str | None
) -> tuple[Callable[[RigsByHost], object], Callable[[ConnectedHost], Instance]]:
    """The validator that one host and one of its instances is meant, and the lookup of that one."""

    def judge(rigs: RigsByHost) -> None:
        require_single_host(inventory, rigs)
        for host, rig in rigs.items():
            there = [one.name for one in rig.instances]
            if name is not None and name not in there:
                raise click.UsageError(f"{host}: {describe_unknown('instance', name, there)}")
            if name is None and len(there) != 1:
                raise click.UsageError(f"{host}: name one of its instances: {', '.join(there) or 'it has none'}")

    return judge, lambda box: next(one for one in box.rig.instances if name in (None, one.name))


def forward_port(inventory: str, limit: str | None, instance: str, port: int | None) -> None:
    """Forward a port of this machine to an instance's, until an interrupt or until the connection is lost.

    Args:
        inventory: The file.
        limit: The host of it.
        instance: Its name.
        port: Of this machine; None for the instance's own number.

    Raises:
        click.ClickException: the inventory, the host or the instance is refused, or the port is taken.
        SystemExit: with status 3, the host is not reached, or the connection is lost.
    """
    judge, meant = instance_selector(inventory, instance)
    found, gone = connect_inventory(inventory, limit, judge)
    exit_if_unreached(gone)
    (box,) = found
    target = meant(box)
    here = port or target.port
    server = StreamServer(("127.0.0.1", here), lambda taken, _: _forward_connection(taken, box, target.port))
    try:
        server.start()
    except OSError as error:
        raise click.ClickException(
            f"port {here} of this machine: {error.strerror}: choose another with --port"
        ) from None
    print_prose(f"http://127.0.0.1:{here}/v1 leads to {target.name} on {box.name} until Ctrl-C")
    exit_codes.exit_on_interrupt(lambda: "\n")
    while root_shell.is_connected(box.target):
        gevent.sleep(1)
    print_prose(f"{box.name}: lost the connection", err=True)
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
