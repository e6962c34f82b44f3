"""Role preflight: refuse a host that cannot become the rig, before anything on it is touched."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pyinfra import host, logger, state

from rigwright.containers import container_plan
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_plan import DriverRefusal
from rigwright.plan.plan_inputs import TargetState
from rigwright.plan.preflight import describe_variant_evidence, find_refusals, find_warnings
from roles import container_toolkit
from roles.nvidia_driver import DriverSelection
from roles.trees import describe_changed_trees


def preflight(
    wanted: TargetState,
    driver: DriverSelection,
    containers: container_toolkit.ContainerChoice,
    unfit: Sequence[str] = (),
) -> bool:
    """Compare the probed host with what the rig asks of it; False after failing this host, and only this one.

    No operation: a plan must say the same, and end the same way, as a run.

    Args:
        wanted: What the host is to be.
        driver: What was chosen of a driver.
        containers: What was chosen for containers.
        unfit: Why what is to be taken over cannot be.
    """
    for known in describe_variant_evidence(wanted.rig.cards, wanted.rig.instances):
        logger.info(f"{host.print_prefix}{known}")
    for warning in find_warnings(wanted.rig, wanted.facts):
        logger.warning(f"{host.print_prefix}{warning}")
    reasons = [
        *unfit,
        *find_refusals(wanted, time.time()),
        *describe_changed_trees(wanted.rig),
        *client_key_problems(wanted.rig),
    ]
    if isinstance(driver.plan, DriverRefusal):
        reasons += driver.plan.reasons
    if isinstance(containers.plan, container_plan.ContainerRefusal):
        reasons += containers.plan.reasons
    elif containers.plan:
        for note in containers.plan.notes:
            logger.warning(f"{host.print_prefix}{note}")
    for reason in reasons:
        logger.error(f"{host.print_prefix}refused: {reason}")
    if reasons:
        state.fail_hosts({host})
    return not reasons


def client_key_problems(rig: Rig) -> list[str]:
    """Why the host does not take the operator's keys, of which it has newer ones; empty if it takes them."""
    if not rig.gateway:
        return []
    # certificates take a library that hosts without a gateway do not need
    from roles import gateway

    return gateway.host_key_file_problems(rig)
