"""Ports of this machine that lead through SSH to instances of hosts."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

import click
import gevent
from gevent.server import StreamServer
from paramiko import Channel

from checks.connections import ConnectedHost, RigsByHost, connect_inventory, require_single_host
from cli import exit_codes
from cli.exit_codes import exit_if_unreached
from cli.tables import print_prose
from rigwright.model.instance import Instance
from rigwright.problems import describe_unknown, printable
from roles import root_shell

CHUNK_BYTES = 1 << 15  # bytes


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
