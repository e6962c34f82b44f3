"""`rigwright switch`: another variant for an instance, in the inventory and on the box, with a way back."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from checks.connections import ConnectedHost, connect_inventory
from cli import shell_completion
from cli.check_serving import find_proof_fault, verify_box
from cli.deploy_verbs import RunRequest, run_request
from cli.exit_codes import HostUnreached, NotAsDeclared, exit_if_unreached
from cli.instance_access import INTERRUPTED, ClientAccess, InterruptHandler
from cli.inventory_edit import edit_inventory_text, print_diff, replace_file, restore_file
from cli.inventory_loading import INVENTORY_ARGUMENT, load_hosts, require_deployable
from cli.plan import plan_box
from cli.prog_name import prog_name
from cli.shell_completion import LIMIT_OPTION
from cli.show_variants import card_names
from cli.tables import format_size, print_prose, print_table
from cli.verdict_report import print_finding
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.declaration.variant_selection import (
    ANY,
    VariantQuery,
    VariantSwitch,
    apply_switch,
    choose_variants,
    instances_sharing_name,
    select_addressed_variants,
)
from rigwright.inventory import layer_folders, load_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.problems import Invalid, describe_unknown, format_count, format_value
from rigwright.serving import takeover
from rigwright.serving.activation import goal_for, plan_activation
from rigwright.serving.serving_state import ObservedServing
from rigwright.serving.standby import (
    describe_downtime,
    describe_standby_refusal,
    is_gateway_changed,
    parse_free_memory,
    render_memory_query,
)
from rigwright.serving.takeover import RULE, ExistingService, ExistingServiceFacts, parse_existing_service

COLUMNS = ("variant", "cards", "context", "evidence", "state")


@click.command()
@INVENTORY_ARGUMENT
@click.argument("instance", shell_complete=shell_completion.complete_instances)
@click.argument("variant", metavar="[ENGINE/NAME]", required=False, shell_complete=shell_completion.complete_variants)
@LIMIT_OPTION
@click.option("--once", is_flag=True, help="Keep INVENTORY: the next deploy serves its variant again.")
@click.option("--list", "listing", is_flag=True, help="List the variants that fit, and the current one.")
@click.option("--dry", is_flag=True, help="Print the changes without making them.")
@click.option(
    "--from",
    "took",
    metavar="UNIT|CONTAINER",
    help="Take over from this service, such as vllm.service; it is restored if that fails.",
)
@click.option("--yes", is_flag=True, help="With --from: do not ask.")
@click.option("--unverified", is_flag=True, help="Test one completion only, as a deploy does.")
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
    """Serve another variant.

    Edits INVENTORY and deploys INSTANCE. The new variant is installed next to the running one, replaces it, and is
    tested as by `rigwright check --serving`; if it fails, the previous variant and the file are restored. Instances
    that share a gateway's name switch together. After Ctrl-C during the tests, the new variant keeps serving.
    Exit status: 0, switched. 1, restored, or not tested to the end. 2, the command or the inventory is refused. 3, the
    host was not reached.
    Example: rigwright switch rig.py chat llamacpp/65k --limit box1
    """
    theirs = _confirm_takeover(took, yes)
    host, data = _find_instance_host(inventory, instance, limit)
    try:
        catalog = load_catalog(layer_folders(Path(inventory), "catalog"))
        rig = load_rig(data["rig"])
    except Invalid as error:
        raise click.ClickException(f"{host}: {error}") from None
    now = next(one for one in rig.instances if one.name == instance)
    if listing:
        if variant or once or dry or unverified or theirs:
            raise click.UsageError("--list conflicts with all other arguments")
        _print_variants(inventory, host, data, catalog, rig, now)
        return
    if variant is None and theirs is None:
        raise click.UsageError("name a VARIANT, or use --list")
    variant = variant or now.variant_name
    members = instances_sharing_name(data["rig"], instance)
    order = plan_switch(catalog, rig, now, variant, fixed=len(members) > 1)
    wanted = _load_switched_rig(inventory, host, data, order, catalog, rig)
    content = Path(inventory).read_bytes()
    text = (
        content if once or variant == now.variant_name else edit_inventory_text(inventory, content, host, data, order)
    )
    print_diff(inventory, content, text)
    if members[1:]:
        print_prose(f"{host}: also switched, because they share its name: {', '.join(members[1:])}")
    box = _connect_box(inventory, host, wanted)
    found = _read_existing_service(box, order, theirs) if theirs else None
    before = _preview_switch(box, order, now, found)
    if dry:
        return
    if theirs and not yes:
        click.confirm(f"Stop {theirs.name} on {host} for good, and have {instance} come in its place?", abort=True)
    if text != content:
        replace_file(Path(inventory), content, text)
    # the one word of a run's that its inventory does not say
    try:
        _deploy_switch(inventory, host, order, theirs)
    except (NotAsDeclared, HostUnreached) as error:
        print_prose(error.message, err=True)
        _undo_failed_switch(inventory, host, order, content, text)
    if not unverified and (failed := find_verification_fault(_connect_box(inventory, host, wanted), members)):
        if text != content:
            restore_file(Path(inventory), content, text, f"{host}: {failed}")
        if theirs:
            run_request(
                RunRequest(inventory, host, "rollback", dry=False, verbose=0, orders={"existing_service": str(theirs)})
            )
            raise NotAsDeclared(f"{host}: {failed}; {theirs.name} is back, and {inventory} is as it was")
        _deploy_switch(inventory, host, before)
        raise NotAsDeclared(f"{host}: {failed}; {instance} serves {before.variant} again, and {inventory} is as it was")
    if theirs:
        print_prose(f"{host}: {instance} replaces {theirs.name}; `rigwright remove` prints how to restore it")
    done = f"{host}: {instance} serves {variant}"
    back = shlex.join([inventory, *([] if once else [instance, before.variant]), "--limit", host])
    if once:
        print_prose(f"{done} until the next deploy. To return now: `{prog_name()} deploy {back}`")
    elif not theirs and variant != before.variant:
        print_prose(f"{done}. To return: `{prog_name()} switch {back}`")


def _deploy_switch(inventory: str, host: str, order: VariantSwitch, theirs: ExistingService | None = None) -> None:
    orders = {"switch": str(order)} | ({"existing_service": str(theirs)} if theirs else {})
    run_request(RunRequest(inventory, host, "deploy", dry=False, verbose=0, orders=orders))


def _confirm_takeover(took: str | None, yes: bool) -> ExistingService | None:
    """The name of the service to take over."""
    if took is None:
        if yes:
            raise click.UsageError("--yes goes with --from")
        return None
    theirs = parse_existing_service(took)
    if theirs is None:
        raise click.BadParameter(f"{format_value(took)} is refused: must be {RULE}", param_hint="--from")
    return theirs


def _read_existing_service(box: ConnectedHost, order: VariantSwitch, theirs: ExistingService) -> ExistingServiceFacts:
    """The host's report of it, once nothing of it is refused."""
    found = box.run_and_parse(
        takeover.parse_existing_facts,
        takeover.render_takeover_query(box.rig.roots, box.rig.instances, box.rig.gateway, theirs),
    )
    if reasons := takeover.find_takeover_refusals(box.rig.instances, box.rig.gateway, order.instance, found):
        raise click.ClickException("\n".join(f"{box.name}: refused: {one}" for one in reasons))
    return found


def _print_instance_finding(box: ConnectedHost, instance: Instance, finding: ProbeFinding) -> None:
    print_finding(box.name, instance.name, finding)


def find_verification_fault(
    box: ConnectedHost,
    names: Sequence[str],
    tell: Callable[[ConnectedHost, Instance, ProbeFinding], None] = _print_instance_finding,
) -> str:
    """Why switched instances are not verified: a check fails, one is not ready, or no check can be judged. Empty where
    all of them are; a check that a model cannot be judged by is a skip. Those on demand are loaded once instead.

    Raises:
        NotAsDeclared: an interrupt ends the verification, and the new variant keeps serving.
    """
    if fault := find_proof_fault(box, names, tell):
        return fault
    instances = [one for one in box.rig.instances if one.name in names and not one.is_on_demand]
    unproven = ""
    for found in verify_box(box, instances, ClientAccess(), InterruptHandler(), tell, box.rig.inventory):
        if failed := ", ".join(one.title for one in found.checks if one.verdict == "fail"):
            return f"{found.variant} fails: {failed}"
        if not unproven and found.verdict != "as declared":
            reason = found.ended or found.state or "no check could test it"
            if found.ended == INTERRUPTED:
                raise NotAsDeclared(f"{box.name}: {found.instance} serves {found.variant}, unverified: {reason}")
            unproven = f"{found.variant} is not verified: {reason} (--unverified accepts that)"
    return unproven


def _find_instance_host(inventory: str, instance: str, limit: str | None) -> tuple[str, dict[str, Any]]:
    """The one host that has the instance, and its data."""
    hosts = load_hosts(inventory, limit)
    declared = {name: _declared_instances(data) for name, data in hosts.items()}
    having = [name for name, found in declared.items() if instance in found]
    if not having:
        raise click.ClickException(
            describe_unknown("instance", instance, {one for found in declared.values() for one in found})
        )
    if len(having) > 1:
        raise click.ClickException(f"{instance} is on {', '.join(sorted(having))}: choose one with --limit HOST")
    return having[0], hosts[having[0]]


def _declared_instances(data: dict[str, Any]) -> list[str]:
    rig = data.get("rig")
    return list(rig["entry"].get("instances", {})) if isinstance(rig, dict) and "entry" in rig else []


def _load_switched_rig(
    inventory: str, host: str, data: dict[str, Any], order: VariantSwitch, catalog: Catalog, rig: Rig
) -> Rig:
    """The rig with the other variant, once nothing of it is refused."""
    try:
        wanted = require_deployable(load_rig(apply_switch(data["rig"], order)))
    except Invalid as error:
        raise click.ClickException(str(error)) from None
    new = next(one for one in wanted.instances if one.name == order.instance)
    if why := _card_mismatch(catalog, wanted, new, order.variant):
        listed = f"rigwright switch {shlex.quote(inventory)} {order.instance} --list"
        raise click.ClickException(f"{host}: {order.variant} {why}; `{listed}` lists those that are")
    return wanted


def _card_mismatch(catalog: Catalog, rig: Rig, instance: Instance, variant: str) -> str:
    """Why a variant is not for the cards of an instance; empty where it is."""
    cards = tuple(card_names(rig.cards[index], catalog) for index in instance.cards)
    if variant in choose_variants(catalog, VariantQuery(cards=cards)):
        return ""
    purpose = catalog.variants[variant].purpose
    made_for = ", ".join(purpose.cards) if purpose else ""
    here = ", ".join(sorted({rig.cards[index].name for index in instance.cards})) or "no card"
    return f"is made for {made_for}, and {instance.name} has {here}"


def _connect_box(inventory: str, host: str, wanted: Rig) -> ConnectedHost:
    """The host, connected, and the rig that it is to be."""
    found, gone = connect_inventory(inventory, host)
    exit_if_unreached(gone)
    return replace(found[0], rig=wanted)


def reverse_switch(order: VariantSwitch, declared: Instance, served: ObservedServing) -> VariantSwitch:
    """The switch back to what an instance serves now, which differs from its declaration after `--once`.

    Args:
        order: The switch that it takes back.
        declared: The instance, as the inventory has it; of one that is not served yet, this comes back.
        served: The serving state of its host.
    """
    cards = served.cards_by_instance.get(declared.name, declared.cards)
    named_cards = cards if order.cards is not None or cards != declared.cards else None
    return VariantSwitch(declared.name, served.served_variants.get(declared.name, declared.variant_name), named_cards)


def _preview_switch(
    box: ConnectedHost, order: VariantSwitch, declared: Instance, theirs: ExistingServiceFacts | None
) -> VariantSwitch:
    """Print changes, interruption and reasons of a deploy, or refuse it; returns the switch that takes it back."""
    box = box.prefetch("facts", "served", "written", "use")
    made, found = plan_box(box, theirs), box.read_serving_state()
    if made.refused:
        raise click.ClickException("\n".join(f"{box.name}: refused: {reason}" for reason in made.refused))
    instance = next(one for one in box.rig.instances if one.name == order.instance)
    back = reverse_switch(order, declared, found)
    print_prose(f"{box.name}: {order.instance}: {back.variant} -> {order.variant}")
    for text in (*made.changed, *made.warnings, *(f"evidence: {one}" for one in made.evidence)):
        print_prose(f"{box.name}: {text}")
    if made.plan.fetched_bytes:
        print_prose(f"{box.name}: {format_size(made.plan.fetched_bytes)} are fetched before anything is stopped")
    others = [unit for unit in made.plan.interrupted if unit != instance.unit]
    if others:
        print_prose(f"{box.name}: interrupted with it: {', '.join(others)}")
    if theirs:
        before = box.read_resource_usage().get(instance.unit)
        for sentence in takeover.describe_takeover(
            box.rig.gateway, instance, theirs, before.start_seconds if before else None
        ):
            print_prose(f"{box.name}: {sentence}")
    if instance.unit in made.plan.interrupted:
        use, room = (
            box.read_resource_usage().get(instance.unit),
            box.run_and_parse(parse_free_memory, render_memory_query(instance)),
        )
        way = plan_activation(found, box.rig.roots.config, goal_for(found, box.resolve_desired().generation))
        why = describe_standby_refusal(box.rig, instance, room, renamed=way is not None and is_gateway_changed(way))
        for sentence in describe_downtime(box.rig.gateway, instance, use.start_seconds if use else None, why):
            print_prose(f"{box.name}: {sentence}")
    elif not made.plan.steps:
        print_prose(f"{box.name}: {order.instance} serves it already")
    return back


def _undo_failed_switch(inventory: str, host: str, order: VariantSwitch, content: bytes, text: bytes) -> NoReturn:
    """After a deploy that failed: the file says what the host serves."""
    said = f"{order.instance} does not serve {order.variant} (see above)"
    found, gone = connect_inventory(inventory, host)
    served = None if gone else found[0].read_serving_state()
    if served is None:
        from roles.connection_failures import describe_unreachable_host

        unknown = describe_unreachable_host("its state is unknown; run the same command again")
        raise HostUnreached(f"{host} {unknown}")
    if served.job or served.served_variants.get(order.instance) == order.variant:
        raise NotAsDeclared(f"{host}: the switch is incomplete (see above); run the same command again to continue")
    if text != content:
        restore_file(Path(inventory), content, text, said)
        said += f". {inventory} is as it was"
    raise NotAsDeclared(f"{host}: {said}")


def _print_variants(inventory: str, host: str, data: dict[str, Any], catalog: Catalog, rig: Rig, now: Instance) -> None:
    """Which variants an instance could serve, and why it could not serve the others for its cards."""
    found, gone = connect_inventory(inventory, host)
    served = found[0].read_serving_state().served_variants.get(now.name) if found else None
    rows: list[tuple[str, ...]] = []
    for name, refusal_ in collect_targets(catalog, rig, data, now).items():
        one = catalog.variants[name]
        word = ", ".join(what for what, which in (("served", served), ("declared", now.variant_name)) if which == name)
        evidence = one.evidence.kind if one.evidence else "none given"
        takes = format_count(one.cards, "card") if one.cards else "CPU"
        rows.append((name, takes, one.capacity_text, evidence, word or refusal_))
    rows.sort(key=lambda row: row[-1] not in ("", "served", "declared", "served, declared"))
    print_table(COLUMNS, rows, broken=COLUMNS[-1])
    if served and served not in (row[0] for row in rows):
        print_prose(f"{host}: {now.name} serves {served}, which the catalogue lacks, or lacks for these cards")
    exit_if_unreached(gone)


def collect_targets(catalog: Catalog, rig: Rig, data: dict[str, Any], instance: Instance) -> dict[str, str]:
    """Variants for the cards of an instance, the best first, each with the reason for its refusal, or an empty text."""
    cards = tuple(card_names(rig.cards[index], catalog) for index in available_cards(rig, instance))
    fixed = len(instances_sharing_name(data["rig"], instance.name)) > 1
    addressed = catalog if rig.bundle_folder else select_addressed_variants(catalog, rig.network.mirrors)
    return {
        name: _refusal_reason(data, plan_switch(catalog, rig, instance, name, fixed=fixed))
        for name in choose_variants(addressed, VariantQuery(cards=cards))
    }


def available_cards(rig: Rig, instance: Instance) -> tuple[int, ...]:
    """GPU indexes that an instance has, then those that no instance has and that are not reserved."""
    others = {index for one in rig.instances for index in one.cards} | {*rig.reserved_gpus}
    return (*instance.cards, *(index for index in range(len(rig.cards)) if index not in others))


def plan_switch(catalog: Catalog, rig: Rig, instance: Instance, variant: str, *, fixed: bool) -> VariantSwitch:
    """A switch to a variant, with other cards where that takes another number of them, or is made for others.

    Args:
        catalog: Where the variant is.
        rig: As it is declared.
        instance: The instance.
        variant: The variant's name.
        fixed: Whether it keeps its cards, as each of several that are switched together does.
    """
    if fixed or (keys := catalog.variants.get(variant)) is None:
        return VariantSwitch(instance.name, variant)
    made_for = frozenset(keys.purpose.cards if keys.purpose else ())
    cards = available_cards(rig, instance)
    fitting = tuple(one for one in cards if not made_for or _fits_card(card_names(rig.cards[one], catalog), made_for))
    chosen_cards = (fitting if len(fitting) >= keys.cards else cards)[: keys.cards]
    return VariantSwitch(instance.name, variant, chosen_cards if chosen_cards != instance.cards else None)


def _fits_card(card: frozenset[str], made_for: frozenset[str]) -> bool:
    return card == ANY or bool(card & made_for)


def _refusal_reason(data: dict[str, Any], order: VariantSwitch) -> str:
    """Why an instance cannot be switched to a variant; empty where it can."""
    try:
        load_rig(apply_switch(data["rig"], order))
    except Invalid as error:
        return "; ".join(problem.text.removeprefix(f"{order.variant}: ") for problem in error.problems)
    return ""
