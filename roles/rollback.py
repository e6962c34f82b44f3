"""Rollback: back to an earlier generation, driver or service that lies on the host, without its inventory."""

from __future__ import annotations

from collections.abc import Collection

from pyinfra import host, logger, state
from pyinfra.api import deploy

from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_facts import format_card_list
from rigwright.serving.generation import UNIT
from rigwright.serving.serving_state import ObservedServing
from roles.nvidia_driver import restore_previous_driver
from roles.operations.generations import TIMEOUT, read_serving_state, return_to_generation
from roles.rig_lookup import HostRun
from roles.takeover import restore_previous_service


def rollback(run: HostRun) -> None:
    """Bring back the previous driver, the service that was taken over, or a generation, as the options say."""
    options = run.options
    if options.driver:
        restore_previous_driver(rig=run.rig, reboot=options.reboot, version=options.driver_version)
    elif options.existing_service:
        restore_previous_service(rig=run.rig, named=options.existing_service)
    else:
        restore_generation(rig=run.rig, to=options.to)


@deploy("Rollback")
def restore_generation(rig: Rig, to: int | None) -> None:
    """Serve generation `to`, or the newest one before the current."""
    found = read_serving_state(rig)
    number = to if to is not None else find_rollback_target(found)
    kept = next((one for one in found.generations if one.number == number), None)
    reason = describe_rollback_refusal(found, number, rig.reserved_gpus)
    if kept is None or reason:
        logger.error(f"{host.print_prefix}refused: {reason}")
        state.fail_hosts({host})
        return
    return_to_generation(name=f"Roll back to generation {kept.number}", rig=rig, kept=kept, timeout=TIMEOUT)


def find_rollback_target(found: ObservedServing) -> int | None:
    """The newest unchanged generation before the current one that has served."""
    return max(
        (k.number for k in found.generations if k.is_intact and k.proven and k.number < (found.current or 0)),
        default=None,
    )


def describe_rollback_refusal(found: ObservedServing, number: int | None, reserved_gpus: Collection[int]) -> str:
    """Why a host cannot go back to a generation; empty where it can.

    Args:
        found: The host.
        number: The generation's; None where there is none before the current one.
        reserved_gpus: GPU indexes of the cards that are reserved now.
    """
    there = ", ".join(str(kept.number) for kept in found.generations) or "none"
    if number is None:
        return f"no earlier generation has served (available: {there}): a deploy of other settings adds one"
    kept = next((one for one in found.generations if one.number == number), None)
    if kept is None:
        return f"generation {number} does not exist; available: {there}"
    if not kept.is_intact:
        return f"the files of generation {number} were changed since they were written"
    unknown = [
        name for name in kept.unit_files if UNIT.fullmatch(name) and name not in {s.unit for s in kept.unit_states}
    ]
    if unknown:
        return f"the manifest of generation {number} does not describe {', '.join(unknown)}"
    for unit_state in kept.unit_states:
        if gone := unit_state.cards.intersection(reserved_gpus):
            which = f"{format_card_list(gone)}, which {'is' if len(gone) == 1 else 'are'} reserved"
            return (
                f"generation {number} has {unit_state.unit} on {which}: remove it from reserved_gpus, or choose "
                "another generation"
            )
    return ""
