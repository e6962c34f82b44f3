"""`rigwright shell`: a command, or a shell, in an environment of a host."""

from __future__ import annotations

import secrets
import shlex
import sys
from contextlib import suppress

import click

from checks.looking import Box, Rigs, alone, boxes
from cli import terminal
from cli.declared import INVENTORY, LIMIT
from cli.ending import Failed, Unreached, leave
from rigwright.envs.env import entering
from rigwright.problems import printable, unknown
from roles import root


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@LIMIT
@INVENTORY
@click.argument("environment")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
def shell(inventory: str, environment: str, words: tuple[str, ...], limit: str | None) -> None:
    """Run COMMAND, or a shell, in ENVIRONMENT of the one host of INVENTORY that --limit names.

    It runs as a user who exists for as long as that and owns nothing: it sees cards and network, and has a /tmp and a
    /dev/shm of its own to write to. Ends with the command's exit status; an interrupt ends the command, too.
    Example: rigwright shell --limit box1 ~/boxes/rig.py vllm python -c 'import vllm; print(vllm.__version__)'
    """

    def judge(rigs: Rigs) -> None:
        alone(inventory, rigs)
        for name, rig in rigs.items():
            if environment not in (names := {env.name for env in rig.envs}):
                raise click.UsageError(f"{name}: {unknown('environment', environment, names)}")

    found, gone = boxes(inventory, limit, judge)
    leave(gone)
    (box,) = found
    facts = box.facts()
    made = box.desired().installations[environment]
    if made.folder not in facts.built_engines:
        raise Failed(f"{box.name}: {environment} is not installed as declared: run deploy first")
    sys.exit(_run(box, box.rig.installed(made.folder), words))


def _run(box: Box, folder: str, words: tuple[str, ...]) -> int:
    typed = terminal.interactive()
    unit = f"rigwright_shell-{secrets.token_hex(4)}.service"
    command = shlex.join(entering(box.rig, folder, words, unit, terminal=typed))
    try:
        channel = root.start(box.target, f"exec {command}", terminal=terminal.terminal() if typed else None)
        return terminal.attach(channel, typed)
    except root.BROKEN as error:
        raise Unreached(f"{box.name}: the connection was lost: {printable(str(error))}") from None
    finally:
        # it would go on by itself, with whatever it holds of the cards
        with suppress(root.Gone):
            root.run(box.target, f"systemctl stop {shlex.quote(unit)} 2>/dev/null || true")
