"""Role preflight: refuse a host that cannot become the rig, before anything on it is touched."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from pyinfra import host, logger
from pyinfra.api import FunctionCommand, deploy, operation

from rigwright.facts import HostFacts
from rigwright.llama_cpp import Build
from rigwright.preflight import refusals, warnings
from rigwright.rig import Rig


@operation()
def refuse(reasons: Sequence[str]) -> Generator[FunctionCommand, None, None]:
    """Fail this host, and only this one, with all reasons.

    + reasons: why it cannot become the rig; none lets it pass
    """
    if not reasons:
        host.noop("nothing stands in the way")
        return
    yield FunctionCommand(_say, (list(reasons),), {})


def _say(state: Any, host: Any, reasons: list[str]) -> bool:
    for reason in reasons:
        logger.error(f"{host.print_prefix}refused: {reason}")
    return False


@deploy("Preflight")
def preflight(rig: Rig, facts: HostFacts, builds: list[Build]) -> None:
    """Compare the probed host with what the rig asks of it."""
    for warning in warnings(facts):
        logger.warning(f"{host.print_prefix}{warning}")
    refuse(name="The host can become the rig", reasons=refusals(rig, facts, builds))
