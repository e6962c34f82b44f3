"""The part of `rigwright check` that asks instances for what their variants declare, as clients do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext

import click

from checks.connections import ConnectedHost
from cli.instance_access import (
    INTERRUPTED,
    ClientAccess,
    InterruptHandler,
    map_boxes,
    select_instances,
)
from cli.observed_box import describe_state, observe_box
from cli.verdict_report import HostVerdict, InstanceVerdict, finish_report, print_finding
from rigwright.engines import kind_of
from rigwright.model.instance import Instance, patches_by_target
from rigwright.operate.capability_probes import ProbeFinding
from rigwright.operate.client_target import instance_target
from rigwright.problems import printable
from rigwright.serving.instance_units import build_unit
from rigwright.serving.residency import parse_proof, render_proof_script
from roles.client import ClientJobFailed, ClientJobLost
from roles.client.instance_probes import check_patches, verify_instance
from roles.connection_failures import describe_unreachable_host

PROOF_SLACK = 60.0  # seconds for a connection, beyond those of a proof


def check_instances(
    inventory: str, limit: str | None, instance: tuple[str, ...], way: ClientAccess, *, as_json: bool, junit: str | None
) -> None:
    """Ask instances for all that their variants declare, print the findings, and exit.

    Requests come from a job on the host. Undeclared abilities are n/a; declared ones that the model is too small to
    show are skipped.

    Args:
        inventory: The file.
        limit: Which hosts of it.
        instance: The instances; none for all.
        way: Their own sockets, or the gateway.
        as_json: Whether a JSON report is printed instead of lines.
        junit: Where a JUnit report is written; None for nowhere.

    Raises:
        click.ClickException: the inventory, a name or the access is refused.
        SystemExit: with 0 if all passed and all instances are ready, 1 if not, 2 if refused, 3 if a host was not
            reached or was lost.
    """
    interrupt = InterruptHandler()

    def tell(box: ConnectedHost, one: Instance, finding: ProbeFinding) -> None:
        if not as_json:
            print_finding(box.name, one.name, finding)

    def verify(box: ConnectedHost) -> HostVerdict:
        mine = [one for _, one in select_instances([box], instance)]
        return HostVerdict.from_instances(box.name, verify_box(box, mine, way, interrupt, tell, inventory))

    hosts, gone = map_boxes(inventory, limit, instance, verify, way.resolve_endpoint)
    hosts += [HostVerdict(name, "not reached", why=describe_unreachable_host(why)) for name, why in gone.items()]
    words = ("verified", "not verified")
    finish_report(inventory, hosts, interrupted=interrupt.asked, as_json=as_json, junit=junit, words=words)


def verify_box(
    box: ConnectedHost,
    instances: list[Instance],
    way: ClientAccess,
    interrupt: InterruptHandler,
    tell: Callable[[ConnectedHost, Instance, ProbeFinding], None],
    inventory: str,
) -> list[InstanceVerdict]:
    """The results of a box's instances, one after the other."""
    found = [InstanceVerdict(one.name, one.variant_name, way.gateway) for one in instances]
    if interrupt.asked:
        for told in found:
            told.ended = INTERRUPTED
    if not instances or interrupt.asked:
        return found
    try:
        observed = observe_box(box, "served")
        box = observed.box
        served, desired = box.read_serving_state(), box.resolve_desired()
    except click.ClickException as error:
        for told in found:
            told.ended = printable(error.message)
        return found
    for one, told in zip(instances, found, strict=True):
        if interrupt.asked:
            told.ended = INTERRUPTED
            continue
        state = observed.assess_state(one)
        told.state = "" if state.is_ready else describe_state(state, inventory, box.name)
        if state.is_ready and not way.gateway:
            told.state = observed.describe_unloaded(one, inventory)
        if not state.may_answer or (told.state and state.is_ready):
            continue
        made = desired.installations[one.installed_as]
        service = kind_of(one).service(box.rig, one, made)
        names = tuple(
            map(
                str,
                (
                    *one.patches,
                    *patches_by_target(box.rig.instances, box.rig.envs, box.rig.toolkit.patches).get(
                        one.installed_as, ()
                    ),
                ),
            )
        )
        patches = check_patches(served, one, build_unit(box.rig, one, made).unit_state, tuple(dict.fromkeys(names)))
        checks: list[ProbeFinding] = []
        told.checks = checks
        try:
            counting = (
                interrupt.open_client(box, instance_target(box.rig.roots, box.rig.accounts, box.rig.gateway, one))
                if way.gateway
                else nullcontext()
            )
            with interrupt.open_client(box, way.resolve_endpoint(box.name, box.rig, one)) as client, counting as own:
                for finding in verify_instance(client, one, service, patches, lambda what: None, own):
                    checks.append(finding)
                    tell(box, one, finding)
        except (ClientJobLost, ClientJobFailed) as error:
            told.ended = interrupt.describe_error(error)
    return found


def find_proof_fault(
    box: ConnectedHost, names: Collection[str], tell: Callable[[ConnectedHost, Instance, ProbeFinding], None]
) -> str:
    """Why one of these instances on demand cannot be loaded; empty if each of them answers once, as at an activation.

    The residency service loads them one after the other and lets them sleep again. Requests to an instance's own socket
    neither wake it nor keep it awake.
    """
    for one in (one for one in box.rig.instances if one.name in names and one.is_on_demand):
        seconds = 2 * one.variant.ready_timeout
        try:
            script = render_proof_script(box.rig.roots, one.name, seconds)
            fault = box.run_and_parse(parse_proof, script, seconds + PROOF_SLACK)
        except click.ClickException as error:
            fault = error.message
        title = "it is loaded on demand and answers"
        proof = ProbeFinding("on-demand", title, "fail" if fault else "ok", printable(fault))
        tell(box, one, proof)
        if fault:
            return f"{one.variant_name} fails: {title}: {proof.detail}"
    return ""
