"""Role preflight: refuse a host that cannot become the rig, before anything on it is touched."""

from __future__ import annotations

import time

from pyinfra import host, logger, state

from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build
from rigwright.host.facts import HostFacts
from rigwright.host.preflight import refusals, warnings
from rigwright.nvidia.driver.choice import DriverPlan, Refused


def preflight(rig: Rig, facts: HostFacts, builds: list[Build], driver: DriverPlan | Refused | None) -> bool:
    """Compare the probed host with what the rig asks of it; False after failing this host, and only this one.

    No operation: a plan must say the same, and end the same way, as a run.
    """
    for warning in warnings(facts):
        logger.warning(f"{host.print_prefix}{warning}")
    reasons = refusals(rig, facts, builds, time.time())
    if isinstance(driver, Refused):
        reasons += driver.reasons
    for reason in reasons:
        logger.error(f"{host.print_prefix}refused: {reason}")
    if reasons:
        state.fail_hosts({host})
    return not reasons
