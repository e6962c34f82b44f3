"""Commands in an environment of a host, or as an instance."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
import gevent
from paramiko import Channel

from checks.connections import ConnectedHost, RigsByHost, connect_inventory, require_single_host
from cli import exit_codes, remote_terminal
from cli.exit_codes import HostUnreached, NotAsDeclared, exit_if_unreached
from rigwright.engines import kind_of
from rigwright.envs import environment
from rigwright.host.systemd import escape_expansions
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.problems import describe_unknown, printable
from rigwright.render import render
from rigwright.serving.activation import goal_for
from rigwright.serving.instance_units import InstanceUnit
from roles import root_shell

# The properties of a unit about its own process: how it is started and ended, where it is counted, and the objects that
# systemd takes away when the unit ends, which the instance goes on using.
NOT_INHERITED = ("Exec", "Type", "Restart", "Timeout", "Slice", "RuntimeDirectory", "RemoveIPC", "EnvironmentFile")


def unit_properties(unit: InstanceUnit) -> Iterator[str]:
    """The properties of an instance's unit that hold for a command next to it too: user, sandbox, limits, cards and
    key."""
    for line in unit.text.partition("[Service]\n")[2].partition("\n[")[0].splitlines():
        key, equals, value = line.partition("=")
        if not equals or line.startswith("#") or key.startswith(NOT_INHERITED):
            continue
        # the folder of its socket is there while it is up
        yield f"{key}=-{value}" if key == "BindPaths" and value.startswith("/run/") else line


def instance_command(
    roots: Roots, unit: InstanceUnit, words: tuple[str, ...], name: str, *, terminal: bool
) -> tuple[str, ...]:
    """The command that runs another one as an instance: its user, its variables and its sandbox.

    Args:
        roots: Directories on the host.
        unit: The instance's.
        words: The program and its arguments; a shell without any.
        name: The unit that it runs as.
        terminal: Whether it has one.
    """
    given = (*unit_properties(unit), f"EnvironmentFile={roots.config}/current/env/{unit.instance}")
    options = (f"--unit={name}", "--quiet", "--wait", "--collect", "--pty" if terminal else "--pipe")
    # systemd-run would look for the program by its own PATH
    within = (*unit.privately, "/bin/sh", "-c", 'exec "$@"', "sh", *(words or ("/bin/bash",)))
    return (
        *("systemd-run", *options, "--service-type=exec", "--setenv=HOME=/tmp", "--property=WorkingDirectory=/tmp"),
        *(f"--property={one}" for one in given),
        *("--", *escape_expansions(within)),
    )


HEARTBEAT_S = 15.0  # seconds between two signs of life
HEARTBEAT_TIMEOUT_S = 120  # seconds without one after which the host ends the command; TCP itself gives up after 75


def run_in_environment(
    inventory: str, limit: str | None, name: str, words: tuple[str, ...], *, as_instance: bool
) -> int:
    """Run a command, or a shell, in an environment or as an instance of one host; returns its exit status.

    In an environment it runs as a temporary user with access to cards and network, and a /tmp and /dev/shm of its own.
    As an instance it has the instance's user, variables, sandbox and cards. The host ends it with this process.

    Args:
        inventory: The file.
        limit: The host of it.
        name: An environment, or an instance.
        words: The program and its arguments; none for a shell.
        as_instance: The name is an instance's even if an environment has it, too.

    Raises:
        click.ClickException: the inventory, the host or the name is refused, or it is not deployed.
    """

    def judge(rigs: RigsByHost) -> None:
        require_single_host(inventory, rigs)
        for host, rig in rigs.items():
            names = {one.name for one in rig.instances} | (set() if as_instance else {one.name for one in rig.envs})
            if name not in names:
                noun = "instance" if as_instance else "environment or instance"
                raise click.UsageError(f"--in: {host}: {describe_unknown(noun, name, names)}")

    exit_codes.exit_on_interrupt(lambda: "\n")
    found, gone = connect_inventory(inventory, limit, judge)
    exit_if_unreached(gone)
    (box,) = found
    typed = remote_terminal.is_interactive()
    unit = f"rigwright_shell-{secrets.token_hex(4)}.service"
    instance = next((one for one in box.rig.instances if one.name == name), None)
    if instance and (as_instance or name not in {one.name for one in box.rig.envs}):
        command = _instance_command(box, instance, words, unit, typed)
    else:
        command = _environment_command(box, name, words, unit, typed)
    return _run_in_unit(box, command, unit, typed)


def _environment_command(
    box: ConnectedHost, name: str, words: tuple[str, ...], unit: str, typed: bool
) -> tuple[str, ...]:
    """The command that runs a command in an environment.

    Raises:
        NotAsDeclared: it is not installed.
    """
    facts, made = box.read_facts(), box.resolve_desired().installations[name]
    if made.folder not in facts.built_engines:
        raise NotAsDeclared(f"{box.name}: {name} is not installed as declared: run deploy first")
    return environment.environment_command(
        box.rig.roots, box.rig.roots.installation_path(made.folder), words, unit, terminal=typed
    )


def _instance_command(
    box: ConnectedHost, instance: Instance, words: tuple[str, ...], unit: str, typed: bool
) -> tuple[str, ...]:
    """The command that runs a command as an instance.

    Raises:
        NotAsDeclared: it runs in a container, or the host serves something else.
    """
    if kind_of(instance).container_engine:
        raise NotAsDeclared(f"{box.name}: {instance.name} runs in a container, which Rigwright has no shell for")
    box = box.prefetch("served", "facts")
    found, wanted = box.read_serving_state(), box.resolve_desired().generation
    if found.current is None or goal_for(found, wanted).number != found.current:
        raise NotAsDeclared(f"{box.name}: {instance.name} is not served as declared: run deploy first")
    made = next(one for one in wanted.units if one.instance == instance.name)
    return instance_command(box.rig.roots, made, words, unit, terminal=typed)


def _run_in_unit(box: ConnectedHost, command: tuple[str, ...], unit: str, typed: bool) -> int:
    try:
        with _stop_unit_on_exit(box, unit):
            words = f"exec {shlex.join(command)}"
            channel = root_shell.start_command(
                box.target, words, terminal=remote_terminal.describe_terminal() if typed else None
            )
            return remote_terminal.attach_channel(channel, typed)
    except root_shell.BROKEN as error:
        raise HostUnreached(f"{box.name}: the connection was lost: {printable(str(error))}") from None


@contextmanager
def _stop_unit_on_exit(box: ConnectedHost, unit: str) -> Iterator[None]:
    """Have the host end a unit when the block ends, and when this process does, however that comes: it would go on by
    itself, with whatever it holds of the cards.
    """
    channel = root_shell.start_command(box.target, render("shell/hold.sh.j2", unit=unit, silence=HEARTBEAT_TIMEOUT_S))
    beating = gevent.spawn(_send_heartbeats, channel)
    try:
        yield
    finally:
        beating.kill(block=False)
        with suppress(root_shell.ConnectionGone):
            root_shell.run_command(box.target, f"systemctl stop {shlex.quote(unit)} 2>/dev/null || true")
        channel.close()


def _send_heartbeats(channel: Channel) -> None:
    # the command's own channel reports a connection that is gone
    with suppress(*root_shell.BROKEN):
        while True:
            channel.sendall(b".")
            gevent.sleep(HEARTBEAT_S)
