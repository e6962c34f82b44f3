"""The serving state of hosts on which a deploy failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from rigwright.gateway.secrets_distribution import RESIDENCY_UNIT
from rigwright.model.instance import instance_of
from rigwright.model.roots import Roots
from rigwright.serving import serving_state
from roles import root_shell
from roles.host_pool import HostThreads

STATE_TIMEOUT_S = 10.0  # seconds within which a host on which something failed has to say what it serves


def describe_serving_states(hosts: Collection[Any], roots: Mapping[str, Roots]) -> dict[str, str]:
    """Host -> its serving state, in words."""
    with HostThreads(len(hosts)) as pool:
        described = pool.map(lambda one: _describe_serving(one, roots[one.name]), hosts)
        return dict(zip([one.name for one in hosts], described, strict=True))


def _describe_serving(target: Any, roots: Roots) -> str:
    """The serving state of a host after a failure, in words; empty where it does not answer."""
    try:
        script = serving_state.render_state_query(
            roots.config, roots.software, roots.startup_records, roots.builds, roots.ledger
        )
        found = serving_state.parse(
            root_shell.run_command(target, script, limit=STATE_TIMEOUT_S, whole=STATE_TIMEOUT_S).lines
        )
    except (ValueError, *root_shell.BROKEN):
        return ""
    return describe_observed_serving(found)


def describe_observed_serving(found: serving_state.ObservedServing) -> str:
    """The generation and the instances of a host, and those on demand that requests load."""
    if found.current is None:
        return "nothing is served there"
    up = sorted(
        instance_of(name)
        for name, process in found.processes.items()
        if process.running and name.startswith("rigwright-")
    )
    sleeping = sorted(
        name
        for kept in found.generations
        for one in kept.unit_states
        if kept.number == found.current and one.on_demand and found.is_running(RESIDENCY_UNIT)
        if (name := instance_of(one.unit)) not in up
    )
    text = f"generation {found.current} is served ({', '.join(up)})" if up else "no instance runs there"
    # the query does not tell which of them an operator has stopped: requests to those are refused
    return text + (f"; requests load {', '.join(sleeping)}, unless stopped by hand" if sleeping else "")
