"""Interruption by `rigwright rollback`, printed by a dry run before pyinfra's steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from checks.connections import ConnectedHost, map_inventory
from cli.tables import print_prose
from rigwright.model.instance import instance_of
from rigwright.problems import printable
from rigwright.serving.activation import Activation, find_displaceable, goal_of, plan_activation
from rigwright.serving.serving_state import ObservedServing, UnitUsage
from rigwright.serving.unit_diff import describe_downtime_seconds
from roles.rollback import describe_rollback_refusal, find_rollback_target

VERBS = {
    "stopped": "stop (not in that generation)",
    "started": "start",
    "reloaded": "reload (no interruption)",
    "proven": "load once, as a proof that it serves; then it sleeps, unless it has keep_warm or clients wait",
}


def print_rollback(inventory: str, limit: str | None, to: int | None) -> None:
    """Print the interruption on every host that is reached; the run itself reports the others and refusals."""

    def describe(box: ConnectedHost) -> list[str]:
        looked = box.prefetch("served", "use")
        served, use = looked.read_serving_state(), looked.read_resource_usage()
        number = to if to is not None else find_rollback_target(served)
        if describe_rollback_refusal(served, number, box.rig.reserved_gpus):
            return []
        return list(describe_rollback(served, use, box.rig.roots.config, number))

    found, _ = map_inventory(inventory, limit, describe)
    for box, lines in found:
        for line in lines:
            print_prose(f"{box.name}: {printable(line)}")


def describe_rollback(
    served: ObservedServing, use: Mapping[str, UnitUsage], config: str, number: int | None
) -> Iterator[str]:
    """Services that a return to a generation stops, starts, restarts or reloads, a line each.

    Args:
        served: The host's serving state.
        use: Unit -> its last start.
        config: The configuration's folder.
        number: The generation's.
    """
    kept = next(one for one in served.generations if one.number == number)
    way = plan_activation(served, config, goal_of(kept)) or Activation()
    changes = way.service_changes(served.processes)
    interrupts = not {"stopped", "restarted"}.isdisjoint(changes.values())
    for name, change in changes.items():
        unit = f"rigwright-{name}.service"
        if change == "restarted" and unit not in served.processes:
            yield f"{name}: restart"  # of the gateway's services: none is loaded
        elif change == "restarted":
            usage = use.get(unit)
            yield f"{name}: restart ({describe_downtime_seconds(usage.start_seconds if usage else None)})"
        elif change == "proven" and served.is_running(unit):
            interrupts = True
            yield f"{name}: stop; {VERBS[change]}"
        else:
            yield f"{name}: {VERBS[change]}"
    for unit, proven in find_displaceable(served, way, kept.unit_states):
        interrupts = True
        need = f"if the proof of {instance_of(proven)} needs its memory"
        yield f"{instance_of(unit)}: may be stopped {need}, unless it has keep_warm"
    if not interrupts:
        yield f"generation {number} interrupts nothing that is served now"
