"""`rigwright switch`: another variant for an instance, in the inventory and on the box, with a way back."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from checks.looking import Box, boxes
from cli import completing
from cli.clients import Door, Interrupt
from cli.completing import LIMIT
from cli.declared import INVENTORY, named, whole
from cli.ending import Failed, Unreached, leave
from cli.hosts import Wanted, perform
from cli.judged import line
from cli.plan import Planned, planned
from cli.rewriting import difference, edit, restore, write
from cli.tables import say, show, size
from cli.variants import names
from cli.verify import verified
from rigwright.declaration.catalog import load_catalog
from rigwright.declaration.choice import ANY, Asked, choices
from rigwright.declaration.edit import Switch, sharing, switched
from rigwright.inventory import layers, load
from rigwright.model.catalog import Catalog
from rigwright.model.rig import Instance, Rig
from rigwright.model.theirs import RULE, Theirs, theirs_of
from rigwright.problems import Invalid, counted, unknown
from rigwright.serving import theirs as taking
from rigwright.serving.activation import activation, goal
from rigwright.serving.beside import parse, refusal, renamed, room_script
from rigwright.serving.live import Served
from rigwright.serving.outage import sentences
from rigwright.serving.theirs import Found

COLUMNS = ("variant", "cards", "context", "evidence", "")


@click.command()
@INVENTORY
@click.argument("instance", shell_complete=completing.instances)
@click.argument("variant", metavar="[ENGINE/NAME]", required=False, shell_complete=completing.variants)
@LIMIT
@click.option("--once", is_flag=True, help="Leave INVENTORY as it is: the next deploy serves what it declares again.")
@click.option("--list", "listing", is_flag=True, help="Which variants it could serve, and which one it does.")
@click.option("--dry", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--from",
    "took",
    metavar="UNIT|CONTAINER",
    help="What has served there until now, such as vllm.service: it is stopped for good, and is back where that fails.",
)
@click.option("--yes", is_flag=True, help="With --from: do not ask.")
@click.option("--unverified", is_flag=True, help="Ask for no more than the one completion that a deploy asks for.")
def switch(
    inventory: str,
    instance: str,
    variant: str | None,
    limit: str | None,
    once: bool,
    listing: bool,
    dry: bool,
    took: str | None,
    yes: bool,
    unverified: bool,
) -> None:
    """Have INSTANCE of INVENTORY serve another variant: in the file, and on its box.

    A variant for fewer cards gets the first of the instance's, one for more gets those too that no instance has and
    that are not lent. Instances that share a name of the gateway's are switched together, each on its own cards.
    All that the new one needs is brought beside the one that serves; then it takes its place, and is asked for all that
    it declares, as by `rigwright verify`. Where it does not answer, or answers wrongly, the old one comes back, and the
    file is as it was. Exit status 1, too, where something declared could not be judged.
    Example: rigwright switch ~/boxes/rig.py chat llamacpp/65k --limit box1
    """
    theirs = _theirs(took, yes)
    host, data = _host(inventory, instance, limit)
    try:
        catalog = load_catalog(layers(Path(inventory), "catalog"))
        rig = load(data["rig"])
    except Invalid as error:
        raise click.ClickException(f"{host}: {error}") from None
    now = next(one for one in rig.instances if one.name == instance)
    if listing:
        if variant or once or dry or unverified or theirs:
            raise click.UsageError("--list goes alone")
        _list(inventory, host, data, catalog, rig, now)
        return
    if variant is None and theirs is None:
        raise click.UsageError("say which variant, or --list")
    variant = variant or now.variant_name
    members = sharing(data["rig"], instance)
    order = target(catalog, rig, now, variant, fixed=len(members) > 1)
    wanted = _wanted(inventory, host, data, order, catalog, rig)
    content = Path(inventory).read_bytes()
    text = content if once or variant == now.variant_name else edit(inventory, content, host, data, order)
    difference(inventory, content, text)
    if members[1:]:
        say(f"{host}: switched with it, for they share its name: {', '.join(members[1:])}")
    box = _box(inventory, host, wanted)
    found = _look(box, order, theirs) if theirs else None
    before = _expect(box, order, now, found)
    if dry:
        return
    if theirs and not yes:
        click.confirm(f"Stop {theirs.name} on {host} for good, and have {instance} come in its place?", abort=True)
    if text != content:
        write(Path(inventory), content, text)
    # the one word of a run's that its inventory does not say
    try:
        _deploy(inventory, host, order, theirs)
    except (Failed, Unreached) as error:
        say(error.message, err=True)
        _undone(inventory, host, order, content, text)
    if not unverified and (failed := _failed(_box(inventory, host, wanted), members)):
        if text != content:
            restore(Path(inventory), content, text, f"{host}: {failed}")
        if theirs:
            perform(Wanted(inventory, host, "rollback", dry=False, verbose=0, orders={"theirs": str(theirs)}))
            raise Failed(f"{host}: {failed}; {theirs.name} is back, and {inventory} is as it was")
        _deploy(inventory, host, before)
        raise Failed(f"{host}: {failed}; {instance} serves {before.variant} again, and {inventory} is as it was")
    if theirs:
        say(f"{host}: {instance} serves in the place of {theirs.name}; `rigwright remove` says how that comes back")
    if once:
        say(f"{host}: {instance} serves {variant} until the next deploy: {inventory} is as it was")


def _deploy(inventory: str, host: str, order: Switch, theirs: Theirs | None = None) -> None:
    orders = {"switch": str(order)} | ({"theirs": str(theirs)} if theirs else {})
    perform(Wanted(inventory, host, "deploy", dry=False, verbose=0, orders=orders))


def _theirs(took: str | None, yes: bool) -> Theirs | None:
    """What is to be taken over, by its name."""
    if took is None:
        if yes:
            raise click.UsageError("--yes goes with --from")
        return None
    theirs = theirs_of(took)
    if theirs is None:
        raise click.BadParameter(f"{took!r} is refused: must be {RULE}", param_hint="--from")
    return theirs


def _look(box: Box, order: Switch, theirs: Theirs) -> Found:
    """What the host tells of it, once nothing of it is refused."""
    found = box.read(taking.parse, taking.script(box.rig, theirs))
    if reasons := taking.refusals(box.rig, order.instance, found):
        raise click.ClickException("\n".join(f"{box.name}: refused: {one}" for one in reasons))
    return found


def _failed(box: Box, names: Sequence[str]) -> str:
    """What of all that they declare instances cannot do; empty where they can do it all.

    Raises:
        Failed: not all could be judged, which does not count as passed, and is no reason to go back.
    """
    instances = [one for one in box.rig.instances if one.name in names]
    unproven = ""
    for found in verified(
        box, instances, Door(), Interrupt(), lambda box, one, finding: line(box.name, one.name, finding)
    ):
        titles = {
            word: ", ".join(one.title for one in found.checks if one.verdict == word) for word in ("fail", "skip")
        }
        if titles["fail"]:
            return f"{found.variant} fails: {titles['fail']}"
        if not unproven and (unknown_ := found.ended or titles["skip"]):
            unproven = f"{box.name}: {found.instance} serves {found.variant}, and is not proven: {unknown_}"
    if unproven:
        raise Failed(unproven)
    return ""


def _host(inventory: str, instance: str, limit: str | None) -> tuple[str, dict[str, Any]]:
    """The one host that has the instance, and its data."""
    hosts = named(inventory, limit)
    declared = {name: _declared(data) for name, data in hosts.items()}
    having = [name for name, found in declared.items() if instance in found]
    if not having:
        raise click.ClickException(unknown("instance", instance, {one for found in declared.values() for one in found}))
    if len(having) > 1:
        raise click.ClickException(f"{instance} is on {', '.join(sorted(having))}: name one of them, --limit HOST")
    return having[0], hosts[having[0]]


def _declared(data: dict[str, Any]) -> list[str]:
    rig = data.get("rig")
    return list(rig["entry"].get("instances", {})) if isinstance(rig, dict) and "entry" in rig else []


def _wanted(inventory: str, host: str, data: dict[str, Any], order: Switch, catalog: Catalog, rig: Rig) -> Rig:
    """The rig with the other variant, once nothing of it is refused."""
    try:
        wanted = whole(load(switched(data["rig"], order)))
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    new = next(one for one in wanted.instances if one.name == order.instance)
    if why := _not_for(catalog, wanted, new, order.variant):
        listed = f"rigwright switch {shlex.quote(inventory)} {order.instance} --list"
        raise click.ClickException(f"{host}: {order.variant} {why}; `{listed}` says which are")
    return wanted


def _not_for(catalog: Catalog, rig: Rig, instance: Instance, variant: str) -> str:
    """Why a variant is not for the cards of an instance; empty where it is."""
    cards = tuple(names(rig.cards[index], catalog) for index in instance.cards)
    if variant in choices(catalog, Asked(cards=cards)):
        return ""
    purpose = catalog.variants[variant].purpose
    made_for = ", ".join(purpose.cards) if purpose else ""
    here = ", ".join(sorted({rig.cards[index].name for index in instance.cards})) or "no card"
    return f"is made for {made_for}, and {instance.name} has {here}"


def _box(inventory: str, host: str, wanted: Rig) -> Box:
    """The host, connected, and the rig that it is to be."""
    found, gone = boxes(inventory, host)
    leave(gone)
    return replace(found[0], rig=wanted)


def undo(order: Switch, declared: Instance, served: Served) -> Switch:
    """The switch back to what an instance serves now, which differs from its declaration after `--once`.

    Args:
        order: The switch that it takes back.
        declared: The instance, as the inventory has it; of one that is not served yet, this comes back.
        served: What its host serves.
    """
    cards = served.cards.get(declared.name, declared.cards)
    named_cards = cards if order.cards is not None or cards != declared.cards else None
    return Switch(declared.name, served.serving.get(declared.name, declared.variant_name), named_cards)


def _expect(box: Box, order: Switch, declared: Instance, theirs: Found | None) -> Switch:
    """Say what a deploy will do, how long nobody answers, and why; what would be refused is refused.

    Returns the switch that takes it back.
    """
    box = box.ahead("facts", "served", "written", "use")
    made, found = planned(box, theirs), box.served()
    _refuse(box.name, made)
    instance = next(one for one in box.rig.instances if one.name == order.instance)
    back = undo(order, declared, found)
    say(f"{box.name}: {order.instance}: {back.variant} -> {order.variant}")
    for text in (*made.changed, *made.warnings, *(f"evidence: {one}" for one in made.evidence)):
        say(f"{box.name}: {text}")
    if made.plan.fetched_bytes:
        say(f"{box.name}: {size(made.plan.fetched_bytes)} are fetched before anything is stopped")
    others = [unit for unit in made.plan.interrupted if unit != instance.unit]
    if others:
        say(f"{box.name}: interrupted with it: {', '.join(others)}")
    if theirs:
        before = box.use().get(instance.unit)
        for sentence in taking.sentences(box.rig, instance, theirs, before.start_seconds if before else None):
            say(f"{box.name}: {sentence}")
    if instance.unit in made.plan.interrupted:
        use, room = box.use().get(instance.unit), box.read(parse, room_script(instance))
        way = activation(found, box.rig.roots.config, goal(found, box.desired().generation))
        why = refusal(box.rig, instance, room, renamed=way is not None and renamed(way))
        for sentence in sentences(box.rig, instance, use.start_seconds if use else None, why):
            say(f"{box.name}: {sentence}")
    elif not made.plan.steps:
        say(f"{box.name}: {order.instance} serves it already")
    return back


def _refuse(host: str, made: Planned) -> None:
    if made.refused:
        raise click.ClickException("\n".join(f"{host}: refused: {reason}" for reason in made.refused))


def _undone(inventory: str, host: str, order: Switch, content: bytes, text: bytes) -> NoReturn:
    """After a deploy that failed: the file says what the host serves."""
    said = f"{order.instance} does not serve {order.variant}; as said above"
    found, gone = boxes(inventory, host)
    served = None if gone else found[0].served()
    if served is None:
        raise Unreached(f"{host} cannot be reached: what it serves is not known; run the same command again")
    if served.job or served.serving.get(order.instance) == order.variant:
        raise Failed(f"{host}: not all is done, as said above; run the same command again to continue")
    if text != content:
        restore(Path(inventory), content, text, said)
        said += f". {inventory} is as it was"
    raise Failed(f"{host}: {said}")


def _list(inventory: str, host: str, data: dict[str, Any], catalog: Catalog, rig: Rig, now: Instance) -> None:
    """Which variants an instance could serve, and why it could not serve the others for its cards."""
    found, gone = boxes(inventory, host)
    served = found[0].served().serving.get(now.name) if found else None
    rows: list[tuple[str, ...]] = []
    for name, refusal_ in collect_targets(catalog, rig, data, now).items():
        one = catalog.variants[name]
        word = ", ".join(what for what, which in (("served", served), ("declared", now.variant_name)) if which == name)
        evidence = one.evidence.kind if one.evidence else "none given"
        takes = counted(one.cards, "card") if one.cards else "CPU"
        rows.append((name, takes, one.sized, evidence, word or refusal_))
    show(COLUMNS, sorted(rows, key=lambda row: row[-1] not in ("", "served", "declared", "served, declared")))
    if served and served not in (row[0] for row in rows):
        say(f"{host}: {now.name} serves {served}, which the catalogue has not, or not for these cards")
    leave(gone)


def collect_targets(catalog: Catalog, rig: Rig, data: dict[str, Any], instance: Instance) -> dict[str, str]:
    """Variants for the cards of an instance, the best first, each with the reason for its refusal, or an empty text."""
    cards = tuple(names(rig.cards[index], catalog) for index in available_cards(rig, instance))
    fixed = len(sharing(data["rig"], instance.name)) > 1
    return {
        name: _refusal(data, target(catalog, rig, instance, name, fixed=fixed))
        for name in choices(catalog, Asked(cards=cards))
    }


def available_cards(rig: Rig, instance: Instance) -> tuple[int, ...]:
    """GPU indexes that an instance has, then those that no instance has and that are not lent."""
    others = {index for one in rig.instances for index in one.cards} | {*rig.lent}
    return (*instance.cards, *(index for index in range(len(rig.cards)) if index not in others))


def target(catalog: Catalog, rig: Rig, instance: Instance, variant: str, *, fixed: bool) -> Switch:
    """A switch to a variant, with other cards where that takes another number of them, or is made for others.

    Args:
        catalog: Where the variant is.
        rig: As it is declared.
        instance: The instance.
        variant: The variant's name.
        fixed: Whether it keeps its cards, as each of several that are switched together does.
    """
    if fixed or (keys := catalog.variants.get(variant)) is None:
        return Switch(instance.name, variant)
    made_for = frozenset(keys.purpose.cards if keys.purpose else ())
    cards = available_cards(rig, instance)
    fitting = tuple(one for one in cards if not made_for or _is_for(names(rig.cards[one], catalog), made_for))
    chosen_cards = (fitting if len(fitting) >= keys.cards else cards)[: keys.cards]
    return Switch(instance.name, variant, chosen_cards if chosen_cards != instance.cards else None)


def _is_for(card: frozenset[str], made_for: frozenset[str]) -> bool:
    return card == ANY or bool(card & made_for)


def _refusal(data: dict[str, Any], order: Switch) -> str:
    """Why an instance cannot be switched to a variant; empty where it can."""
    try:
        load(switched(data["rig"], order))
    except Invalid as error:
        return "; ".join(problem.text.removeprefix(f"{order.variant}: ") for problem in error.problems)
    return ""
