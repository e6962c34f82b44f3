"""What a deploy does for a host's containers, in words."""

from __future__ import annotations

from collections.abc import Iterator

from rigwright.containers import daemon
from rigwright.containers.container_facts import ContainerFacts
from rigwright.containers.container_plan import ContainerPlan, find_missing_packages, find_unheld_packages
from rigwright.containers.daemon import UnreadableDaemonConfig
from rigwright.model.containers.archive_tables import TOOLKIT_ARCHIVE


def describe_container_changes(facts: ContainerFacts, plan: ContainerPlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What it would do, each with why.

    Args:
        facts: The host.
        plan: Its own.
    """
    named = [f"{one.name} {one.version}" for one in plan.groups] + list(plan.distribution)
    if missing := find_missing_packages(plan, facts):
        yield f"install {', '.join(named)}", tuple(missing)
    elif loose := find_unheld_packages(plan, facts):
        yield f"hold {', '.join(named)}", tuple(loose)
    if plan.leftovers:
        yield (
            f"set {', '.join(plan.leftovers)} aside",
            ("they name the same archive with another key",),
        )
    if plan.options is not None and (facts.options is None or not _is_unchanged(facts.options, plan)):
        yield f"merge options into {daemon.PATH}", ("they differ from the declared ones",)
    if plan.step or plan.restarting:
        how = "reload the Docker daemon" if plan.step == "reload" else "restart the Docker daemon"
        yield how, (plan.restarting or "its options have changed",)
    idle = tuple(f"{unit} is {state}" for unit, state in facts.refresh if state != "enabled")
    if any(one.name == TOOLKIT_ARCHIVE for one in plan.groups) and (facts.stale or idle) and not missing:
        yield "write the CDI spec", (*facts.stale, *idle)


def _is_unchanged(text: str, plan: ContainerPlan) -> bool:
    try:
        return daemon.parse_options(text) == plan.options
    except UnreadableDaemonConfig:
        return False
