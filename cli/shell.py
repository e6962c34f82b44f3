"""`rigwright shell`: a command, or a shell, in an environment of a host, or as one of its instances."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
import gevent
from paramiko import Channel

from checks.looking import Box, Rigs, alone, boxes
from cli import interrupts, terminal
from cli.asked import Runs
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Failed, Unreached, leave
from rigwright.engines import kind_of
from rigwright.envs import env
from rigwright.model.instance import Instance
from rigwright.problems import printable, unknown
from rigwright.render import render
from rigwright.serving import inside
from rigwright.serving.activation import goal
from roles import root

BEAT = 15.0  # seconds between two signs of life
SILENCE = 120  # seconds without one after which the host ends the command; TCP itself gives up after 75


@click.command(cls=Runs)
@LIMIT
@click.option("--instance", "as_instance", is_flag=True, help="NAME is an instance, even if an environment has it too.")
@INVENTORY
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def shell(inventory: str, name: str, words: tuple[str, ...], limit: str | None, as_instance: bool) -> None:
    """Run COMMAND, or a shell, in the environment or as the instance NAME, on the one host of INVENTORY that --limit
    names.

    In an environment it runs as a user who exists for as long as that and owns nothing: it sees cards and network, and
    has a /tmp and a /dev/shm of its own to write to. As an instance it has that one's user, variables, sandbox and
    cards, beside it. Ends with the command's exit status; an interrupt, or the end of this command, ends it, too.
    Options stand before COMMAND; one that COMMAND has too needs `--` before COMMAND.
    Example: rigwright shell --limit box1 ~/boxes/rig.py vllm python -c 'import vllm; print(vllm.__version__)'
    """

    def judge(rigs: Rigs) -> None:
        alone(inventory, rigs)
        for host, rig in rigs.items():
            names = {one.name for one in rig.instances} | (set() if as_instance else {one.name for one in rig.envs})
            if name not in names:
                noun = "instance" if as_instance else "environment or instance"
                raise click.UsageError(f"{host}: {unknown(noun, name, names)}")

    interrupts.end_at_once(lambda: "\n")
    found, gone = boxes(inventory, limit, judge)
    leave(gone)
    (box,) = found
    typed = terminal.interactive()
    unit = f"rigwright_shell-{secrets.token_hex(4)}.service"
    instance = next((one for one in box.rig.instances if one.name == name), None)
    if instance and (as_instance or name not in {one.name for one in box.rig.envs}):
        command = _beside(box, instance, words, unit, typed)
    else:
        command = _within(box, name, words, unit, typed)
    sys.exit(_run(box, command, unit, typed))


def _within(box: Box, name: str, words: tuple[str, ...], unit: str, typed: bool) -> tuple[str, ...]:
    """What runs a command in an environment.

    Raises:
        Failed: it is not installed.
    """
    facts, made = box.facts(), box.desired().installations[name]
    if made.folder not in facts.built_engines:
        raise Failed(f"{box.name}: {name} is not installed as declared: run deploy first")
    return env.entering(box.rig, box.rig.installed(made.folder), words, unit, terminal=typed)


def _beside(box: Box, instance: Instance, words: tuple[str, ...], unit: str, typed: bool) -> tuple[str, ...]:
    """What runs a command as an instance.

    Raises:
        Failed: it runs in a container, or the host serves something else.
    """
    if kind_of(instance).contained_by:
        raise Failed(f"{box.name}: {instance.name} runs in a container, which no shell of ours enters")
    box = box.ahead("served", "facts")
    found, wanted = box.served(), box.desired().generation
    if found.current is None or goal(found, wanted).number != found.current:
        raise Failed(f"{box.name}: {instance.name} is not served as declared: run deploy first")
    made = next(one for one in wanted.units if one.instance == instance.name)
    return inside.entering(box.rig, made, words, unit, terminal=typed)


def _run(box: Box, command: tuple[str, ...], unit: str, typed: bool) -> int:
    try:
        with _held(box, unit):
            words = f"exec {shlex.join(command)}"
            channel = root.start(box.target, words, terminal=terminal.terminal() if typed else None)
            return terminal.attach(channel, typed)
    except root.BROKEN as error:
        raise Unreached(f"{box.name}: the connection was lost: {printable(str(error))}") from None


@contextmanager
def _held(box: Box, unit: str) -> Iterator[None]:
    """Have the host end a unit when the block ends, and when this process does, however that comes: it would go on by
    itself, with whatever it holds of the cards.
    """
    channel = root.start(box.target, render("shell/hold.sh.j2", unit=unit, silence=SILENCE))
    beating = gevent.spawn(_beat, channel)
    try:
        yield
    finally:
        beating.kill(block=False)
        with suppress(root.Gone):
            root.run(box.target, f"systemctl stop {shlex.quote(unit)} 2>/dev/null || true")
        channel.close()


def _beat(channel: Channel) -> None:
    # a connection that is gone is told by the command's own channel
    with suppress(*root.BROKEN):
        while True:
            channel.sendall(b".")
            gevent.sleep(BEAT)
