"""What a deploy will do to a host, why, how much of it, and who notices: a pure function of rig, lock and host."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import Build
from rigwright.host.facts import HostFacts
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.existing import existing
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.driver.told import named
from rigwright.nvidia.packages.locked import locked
from rigwright.nvidia.packages.wanted import lacking, transaction, unheld, unloaded
from rigwright.nvidia.packages.wanted import wanted as driver_wanted
from rigwright.serving.generation import Generation
from rigwright.serving.live import Served, activation, goal, surplus
from rigwright.supply.tools import Tools
from rigwright.weights.sharing import endpoint, reason

REBOOT = "reboot"
# What a driver lacks is told in one line: a count stands for what is beyond this
LISTED = 2


@dataclass(frozen=True)
class Step:
    """One thing that will be done."""

    role: str
    what: str
    why: str
    fetched_bytes: int = 0
    """From outside the host, as far as the lock knows."""


@dataclass(frozen=True)
class Plan:
    """Everything that will be done, and what clients notice."""

    steps: tuple[Step, ...]
    interrupted: tuple[str, ...]
    """Instances that run now and will be stopped or started again."""
    bundle_folder: str | None = None
    """Where all that is fetched comes from instead, on the operator's machine."""

    @property
    def fetched_bytes(self) -> int:
        """From outside the host."""
        return sum(step.fetched_bytes for step in self.steps)


def plan(
    rig: Rig,
    facts: HostFacts,
    found: Served,
    builds: dict[str, Build],
    tools: Tools,
    wanted: Generation,
    driver: tuple[DriverFacts, DriverPlan] | None = None,
) -> Plan:
    """What a deploy of a rig will do to a host as it is now.

    Args:
        rig: What the host is to be.
        facts: The host.
        found: What it serves.
        builds: The engines it is to have.
        tools: Those of the host itself.
        wanted: What it is to serve.
        driver: The host's, and the one that it is to have; None where the driver is the operator's, or refused.
    """
    steps = []
    whose = "in the bundle" if rig.bundle else "versions are apt's"
    if facts.missing_packages:
        steps.append(Step("base", f"packages {', '.join(facts.missing_packages)}", f"not installed; {whose}"))
    if tools.folder not in found.folders:
        steps.append(Step("tools", "host tools", f"{tools.folder} is not there"))
    steps += _driver(rig, *driver) if driver else []
    if facts.driver_ours and not rig.driver.managed:
        steps.append(Step("nvidia_driver", "let go of the driver", "it is not managed any more; its packages stay"))
    for cuda in {build.toolkit for build in builds.values() if build.toolkit}:
        if cuda.folder and cuda.folder not in found.folders:
            fetched = sum(wheel.size for wheel in rig.cuda)
            steps.append(Step("cuda_toolkit", f"CUDA toolkit {cuda.version}", f"{cuda.folder} is not there", fetched))
    for build in builds.values():
        if build.folder not in facts.built_engines:
            for_ = f"cards sm {build.options['CMAKE_CUDA_ARCHITECTURES']}" if build.cuda else "the CPU"
            why = f"no build with these inputs ({build.digest}) is there"
            steps.append(Step("llama_cpp", f"compile {build.source} for {for_}", why, build.source.size))
    if rig.share and (why := reason(rig, facts.sharing)):
        steps.append(Step("sharing", f"share weights on {endpoint(rig.share)}", why))
    elif not rig.share and facts.sharing.there:
        steps.append(Step("sharing", "stop sharing weights", "it is not declared any more; nginx's package stays"))
    for artefact in rig.weights:
        there = facts.weight_bytes.get(rig.weight_path(artefact), 0)
        if there < artefact.size:
            why = f"{there:,} of {artefact.size:,} bytes are there" if there else "not there"
            steps.append(Step("weights", artefact.file, why, artefact.size - there))
    aim = goal(found, wanted)
    way = activation(found, rig.roots.config, aim)
    if aim.number is None:
        why = "the first one" if found.current is None else f"generation {found.current} serves something else"
        steps.append(Step("serving", f"write generation {found.next_number}", why))
    if way is not None:
        number = aim.number or found.next_number
        parts = [f"stop {_names(way.stop)}"] if way.stop else []
        parts += [f"start {_names(way.restart)}"] if way.restart else []
        parts += [f"wait for {_names(way.await_)}"] if way.await_ else []
        steps.append(Step("serving", f"activate generation {number}", "; ".join(parts) or "systemd has to read it"))
    gone = surplus(found, rig, wanted)
    if gone.generations or gone.paths:
        numbers = [f"generation {number}" for number in gone.generations]
        why = f"{rig.keep_generations} generations are kept"
        steps.append(Step("serving", f"remove {', '.join([*numbers, *gone.paths])}", why))
    up = {name for name, process in found.processes.items() if process.pid}
    touched = {*way.stop, *way.restart} if way else set()
    if any(step.what == REBOOT for step in steps):
        touched = up
    return Plan(tuple(steps), tuple(sorted(up & touched)), rig.bundle_folder)


def _driver(rig: Rig, facts: DriverFacts, made: DriverPlan) -> list[Step]:
    one = driver_wanted(made, facts, locked(rig, facts.system))
    missing = lacking(one, facts) or ([] if facts.recorded else ["what is there is not written down"])
    there = existing(rig, facts)
    steps = []
    if missing:
        verb, why = "install", f"there is {there or 'none'}"
        if made.action == "adopt":
            verb, why = "complete", _some(missing)
        steps.append(Step("nvidia_driver", f"{verb} driver {named(made, one.version)}", why))
    elif loose := unheld(one, facts):
        steps.append(Step("nvidia_driver", f"hold driver {named(made, one.version)}", _some(loose)))
    if why := made.reboot if missing and transaction(one, facts) else unloaded(one, facts):
        consent = "" if rig.driver.reboot else "; without --reboot the deploy ends there"
        steps.append(Step("nvidia_driver", REBOOT, f"{why}{consent}"))
    return steps


def _some(reasons: list[str]) -> str:
    more = f"; and {len(reasons) - LISTED} more" if len(reasons) > LISTED else ""
    return "; ".join(reasons[:LISTED]) + more


def _names(units: tuple[str, ...]) -> str:
    return ", ".join(unit.removeprefix("rigwright-").removesuffix(".service") for unit in units)
