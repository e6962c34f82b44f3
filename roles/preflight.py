"""Role preflight: refuse a host that cannot become the rig, before anything on it is touched."""

from __future__ import annotations

import time
from functools import partial

from pyinfra import host, logger, state

from rigwright.containers.container_plan import ContainerRefusal
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_plan import DriverRefusal
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import describe_variant_evidence, find_refusals, find_warnings
from rigwright.plan.state_digests import render_question
from rigwright.serving.takeover import find_takeover_refusals, without_ports_of
from roles.container_toolkit import ContainerChoice, choose_containers, packages_for_containers
from roles.host_probe import probe_host
from roles.nvidia_driver import DriverSelection, choose_driver, packages_for_driver
from roles.operations.facts import prefetch_facts
from roles.operations.owned_state import keep_generation, observe_owned_state
from roles.rig_lookup import DeployContext, HostRun
from roles.takeover import read_existing_service
from roles.trees import describe_changed_trees, read_trees
from roles.weights import weights_verified


def preflight(run: HostRun) -> DeployContext | None:
    """Probe the host of the running deploy and compare it with what the rig asks of it.

    No operation: a plan must say the same, and end the same way, as a run.

    Returns:
        The target state that its roles need; None after failing this host, and only this one.
    """
    rig, options = run.rig, run.options
    upgrading = options.verb == "upgrade"
    asked = render_question(rig)
    # every fact that the decisions below depend on, in one command
    prefetch_facts(
        partial(probe_host, rig),
        partial(choose_driver, rig, upgrading),
        partial(choose_containers, rig),
        partial(weights_verified, rig),
        partial(read_trees, rig),
        partial(client_key_problems, rig),
        partial(observe_owned_state, asked),
    )
    observe_owned_state(asked)
    facts = probe_host(rig)
    if not facts:
        return None
    existing = read_existing_service(rig, options.existing_service) if options.existing_service else None
    facts = without_ports_of(facts, existing) if existing else facts
    driver, containers = choose_driver(rig, upgrading), choose_containers(rig)
    target = build_target_state(rig, facts, packages_for_driver(driver), packages_for_containers(containers))
    keep_generation(target.generation.digest)
    context = DeployContext(target, options, existing)
    return context if _accept_host(context, driver, containers) else None


def _accept_host(context: DeployContext, driver: DriverSelection, containers: ContainerChoice) -> bool:
    """Log evidence, warnings and refusals; False after failing this host.

    Args:
        context: The host and what it is to be.
        driver: The chosen driver.
        containers: The choice for containers.
    """
    rig, switch, existing = context.rig, context.options.switch, context.existing
    # a switch prints it before it begins
    for known in () if switch else describe_variant_evidence(rig.cards, rig.instances):
        logger.info(f"{host.print_prefix}evidence: {known}")
    for warning in find_warnings(rig, context.facts):
        logger.warning(f"{host.print_prefix}{warning}")
    reasons = [
        *(find_takeover_refusals(rig.instances, rig.gateway, switch.instance, existing) if switch and existing else []),
        *find_refusals(context.target, time.time(), context.options.accept_older),
        *describe_changed_trees(rig),
        *client_key_problems(rig),
    ]
    if isinstance(driver.plan, DriverRefusal):
        reasons += driver.plan.reasons
    if isinstance(containers.plan, ContainerRefusal):
        reasons += containers.plan.reasons
    elif containers.plan:
        for note in containers.plan.notes:
            logger.warning(f"{host.print_prefix}{note}")
    if rig.bundle:
        from roles.bundle_files import find_changed_packages

        reasons += find_changed_packages(context.target, upgrading=context.options.verb == "upgrade")
    for reason in reasons:
        logger.error(f"{host.print_prefix}refused: {reason}")
    if reasons:
        state.fail_hosts({host})
    return not reasons


def client_key_problems(rig: Rig) -> list[str]:
    """Why the host does not take the operator's keys, of which it has newer ones; empty if it takes them."""
    if not (rig.gateway and rig.gateway.serves_clients):
        return []
    # certificates take a library that hosts without a gateway do not need
    from roles import gateway

    return gateway.host_key_file_problems(rig)
