"""`rigwright verify`: whether instances can do what their variants declare, asked as a client would."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import click

from checks.looking import Box, each
from cli.clients import INSTANCE, Door, Interrupt, chosen, door, door_of, reach
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.judged import Host, Judged, finish, line
from rigwright.engines import kind_of
from rigwright.model.rig import Instance
from rigwright.operate.place import at_instance
from rigwright.operate.verify import Finding
from rigwright.problems import printable
from rigwright.serving.units import unit
from roles.client import Failed, Lost
from roles.client.verify import patched
from roles.client.verify import verify as verify_one
from roles.unreached import away


@click.command()
@INVENTORY
@LIMIT
@INSTANCE
@door
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON instead of text.")
@click.option("--junit", type=click.Path(dir_okay=False), help="Also write a JUnit XML report to this file.")
def verify(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    gateway: bool,
    listener: str | None,
    key_file: str | None,
    as_json: bool,
    junit: str | None,
) -> None:
    """Ask every instance of INVENTORY for all that its variant declares: answers, tools, thoughts, images, streams.

    Requests come from a job on the box, at the instance's own socket, or with --gateway at the front door. What is not
    declared is n/a; what is and cannot be judged is a skip, and no pass. Exit status 0: all pass. 1: something fails,
    or is a skip. 2: refused. 3: a host cannot be reached, or was lost on the way.
    Example: rigwright verify ~/boxes/rig.py --limit box1 --instance chat
    """
    way = door_of(gateway, listener, key_file)
    found, gone = reach(inventory, limit, instance, way.place)
    by_box: dict[str, list[Instance]] = {}
    for box, one in chosen(found, instance):
        by_box.setdefault(box.name, []).append(one)
    interrupt = Interrupt()

    def tell(box: Box, one: Instance, finding: Finding) -> None:
        if not as_json:
            line(box.name, one.name, finding)

    hosts = each(found, lambda box: Host.of(box.name, verified(box, by_box.get(box.name, []), way, interrupt, tell)))
    hosts += [Host(name, "not reached", why=away(why)) for name, why in gone.items()]
    words = ("verified", "not verified")
    finish(inventory, hosts, interrupted=interrupt.asked, as_json=as_json, junit=junit, words=words)


def verified(
    box: Box,
    instances: list[Instance],
    way: Door,
    interrupt: Interrupt,
    tell: Callable[[Box, Instance, Finding], None],
) -> list[Judged]:
    """What came of a box's instances, one after the other."""
    found = [Judged(one.name, one.variant_name, way.gateway) for one in instances]
    if not instances:
        return found
    try:
        box = box.ahead("served", "facts")
        served, desired = box.served(), box.desired()
    except click.ClickException as error:
        for told in found:
            told.ended = printable(error.message)
        return found
    for one, told in zip(instances, found, strict=True):
        if interrupt.asked:
            told.ended = "interrupted"
            continue
        made = desired.installations[one.installed_as]
        service = kind_of(one).service(box.rig, one, made)
        names = tuple(map(str, (*one.patches, *box.rig.patches.get(one.installed_as, ()))))
        patches = patched(served, one, unit(box.rig, one, made).unit_state, tuple(dict.fromkeys(names)))
        checks: list[Finding] = []
        told.checks = checks
        try:
            counting = interrupt.client(box, at_instance(box.rig, one)) if way.gateway else nullcontext()
            with interrupt.client(box, way.place(box.name, box.rig, one)) as client, counting as own:
                for finding in verify_one(client, one, service, patches, lambda what: None, own):
                    checks.append(finding)
                    tell(box, one, finding)
        except (Lost, Failed) as error:
            told.ended = interrupt.why(error)
    return found
