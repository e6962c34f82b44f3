"""`rigwright stress`: whether instances bear long prompts, long answers and many turns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import click

from checks import Drift
from checks.looking import Box, each
from checks.survey.health import look
from cli.clients import INSTANCE, Interrupt, alone, chosen, reach
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import Refused
from cli.judged import Host, Judged, finish, line
from cli.measured import ours
from rigwright.engines import kind_of
from rigwright.model.rig import Instance
from rigwright.operate import health
from rigwright.operate.place import at_instance
from rigwright.operate.stress import Probed, total
from rigwright.operate.verify import Finding
from roles import root
from roles.client import Failed, Lost
from roles.client.stress import Stressed
from roles.unreached import away


@click.command()
@INVENTORY
@LIMIT
@INSTANCE
@click.option("--up-to", type=click.IntRange(1000), metavar="TOKENS", help="No prompt is longer than that.")
@click.option("--soak", is_flag=True, help="Twenty conversations of five turns in place of the probes; half an hour.")
@click.option("--grow", is_flag=True, help="With --soak: five conversations that grow to 24,000 tokens.")
@click.option("--beside-others", is_flag=True, help="Run even if others are using the instance; slows them down.")
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON instead of text.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
def stress(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    up_to: int | None,
    soak: bool,
    grow: bool,
    beside_others: bool,
    as_json: bool,
    junit: str | None,
) -> None:
    """Load every instance of INVENTORY: long prompts and tool returns, ten tools, long answers, an image, turns.

    It takes minutes, and deploys are kept out meanwhile. A box on which others have requests is left alone without
    --beside-others. Exit status 0: all passed. 1: something failed under load. 2: refused. 3: a host cannot be reached,
    or was lost on the way.
    Example: rigwright stress ~/boxes/rig.py --limit box1 --instance chat --up-to 40000
    """
    if grow and not soak:
        raise Refused("--grow goes with --soak")
    found, gone = reach(inventory, limit, instance)
    wanted = chosen(found, instance)
    interrupt = Interrupt()

    def run(box: Box) -> Host:
        mine = [one for of, one in wanted if of is box]
        told = [Judged(one.name, one.variant_name) for one in mine]
        try:
            with alone(box, f"stress of {inventory}"):
                for one, judged in zip(mine, told, strict=True):
                    _one(box, one, judged)
        except Refused as error:
            for judged in told:
                judged.ended, judged.refused = error.message, True
        return Host.of(box.name, told)

    def _one(box: Box, one: Instance, judged: Judged) -> None:
        if interrupt.asked:
            judged.ended = "interrupted"
            return
        checks: list[Finding] = []
        judged.checks = checks
        try:
            service = kind_of(one).service(box.rig, one, box.desired().installations[one.installed_as])
            with interrupt.client(box, at_instance(box.rig, one)) as client:
                ours(box, one, client)
                say = _progress(box.name, one.name)
                context = (one.variant.capacity or (0, None))[1]
                stressed = Stressed(client, one, service, context, lambda: _memory(box, one), say, up_to)
                if (why := stressed.begin()) and not beside_others:
                    judged.ended, judged.refused = f"{why}: --beside-others loads it all the same", True
                    return
                for probed in _probes(stressed, box, one):
                    checks.append(probed)
                    if not as_json:
                        line(box.name, one.name, _worded(probed))
                judged.foreign_tokens = stressed.foreign_tokens
        except Refused as error:
            judged.ended, judged.refused = error.message, True
        except (Lost, Failed) as error:
            judged.ended = interrupt.why(error)
        except click.ClickException as error:
            judged.ended = error.message

    def _probes(stressed: Stressed, box: Box, one: Instance) -> Iterator[Probed]:
        return stressed.soak(grow, lambda: _restarts(box, one)) if soak else stressed.probes()

    hosts = each(found, run) + [Host(name, "not reached", why=away(why)) for name, why in gone.items()]
    words = ("passed", "failed under load")
    finish(inventory, hosts, interrupted=interrupt.asked, as_json=as_json, junit=junit, words=words)


def _progress(host: str, instance: str) -> Callable[[str], None]:
    """Tells what is under way, where somebody watches."""
    shown = sys.stderr.isatty()
    return lambda what: click.echo(f"{host}  {instance}: {what} ...", err=True) if shown else None


def _worded(probed: Probed) -> Probed:
    """With its figures in its words."""
    parts = [probed.detail] if probed.detail else []
    if probed.prompt_tokens and probed.first_s:
        rate = probed.prompt_tokens / probed.first_s
        parts.append(f"{probed.prompt_tokens:,} tokens read in {probed.first_s:.2f} s, {rate:.0f} a second")
    if probed.tokens_a_second:
        parts.append(f"{probed.tokens_a_second:.1f} tokens a second")
    if probed.growth_mib is not None:
        parts.append(f"memory {probed.growth_mib:+.0f} MiB")
    return replace(probed, detail="; ".join(parts))


def _look(box: Box) -> health.Look | None:
    try:
        return look(box.target, box.rig, ask=False)
    except (ValueError, Drift, root.Gone):
        return None


def _memory(box: Box, one: Instance) -> float | None:
    """MiB that its cards have in use; of one without cards, its service."""
    found = _look(box)
    if found is None:
        return None
    if one.cards:
        cards, _ = health.cards(found.cards)
        return total(card.used_mib for card in cards if card.index in one.cards)
    unit = found.units.get(one.unit)
    return unit.memory / (1 << 20) if unit and unit.memory is not None else None


def _restarts(box: Box, one: Instance) -> int | None:
    found = _look(box)
    unit = found.units.get(one.unit) if found else None
    return unit.restarts if unit else None
