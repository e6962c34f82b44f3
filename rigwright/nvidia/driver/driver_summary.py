"""A driver's plan in words, and for programs."""

from __future__ import annotations

from dataclasses import asdict

from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import WORDS, DriverPlan, DriverRefusal
from rigwright.nvidia.driver.installed_driver import find_installed_driver

ADVICE = {"install": "would be installed", "adopt": "would stay unchanged", "migrate": "would replace it"}
WILL = {"install": "will be installed", "adopt": "stays unchanged, and is held", "migrate": "will replace it"}


def describe_installed_driver(driver_supply: DriverSupply, facts: DriverFacts) -> str:
    """The driver of a host."""
    there = find_installed_driver(driver_supply, facts)
    parts = [str(there) if there else "none"]
    if facts.module:
        parts.append(f"module {facts.module} ({'open' if facts.module_open else 'proprietary'}) is loaded")
    elif facts.nouveau:
        parts.append("nouveau is loaded")
    return "; ".join(parts)


def describe_driver(made: DriverPlan, version: str = "") -> str:
    """A driver and where it is from; without its version by its branch."""
    return f"{version or made.branch} with {made.flavour} modules from {WORDS[made.source]}"


def describe_driver_plan(
    driver_entry: DriverEntry, driver_supply: DriverSupply, facts: DriverFacts, made: DriverPlan | DriverRefusal
) -> list[str]:
    """A short paragraph: the installed driver, and its changes by a deploy; or advice, where the driver is the
    operator's.

    A managed one that is refused is reported with the other refusals of the host, and not here.
    """
    managed, said = driver_entry.managed, [f"there now: {describe_installed_driver(driver_supply, facts)}"]
    if isinstance(made, DriverRefusal):
        return said + [f"a managed driver would be refused: {reason}" for reason in made.reasons if not managed]
    what = describe_driver(made)
    said.append(
        f"{what} {WILL[made.action]}" if managed else f"a managed driver would be {what}, and {ADVICE[made.action]}"
    )
    there = {one.name for one in facts.packages}
    lists = (
        ("installed first", made.before),
        ("packages", tuple(name for name in made.packages if made.action != "adopt" or name not in there)),
        ("removed", made.removed),
        ("held", tuple(name for name in made.holds if name not in made.packages)),
    )
    said += [f"{what}: {', '.join(which)}" for what, which in lists if which]
    if made.component:
        said.append(f"needs the component {made.component} of the distribution's archive")
    if made.reboot:
        said.append(f"needs a reboot: {made.reboot}")
    return said + [f"why: {reason}" for reason in made.why] + [f"note: {text}" for text in made.warnings]


def driver_plan_record(
    driver_entry: DriverEntry, driver_supply: DriverSupply, facts: DriverFacts, made: DriverPlan | DriverRefusal
) -> dict[str, object]:
    """For programs."""
    refused = list(made.reasons) if isinstance(made, DriverRefusal) else []
    plan = None if refused else asdict(made)
    return {
        "found": describe_installed_driver(driver_supply, facts),
        "managed": driver_entry.managed,
        "refused": refused,
        "plan": plan,
    }
