"""What a deploy consists of, in order, and what each of it would do to a host: pure functions of rig, lock and host.

STAGES is the one list: deploy.py has a role for each, a plan asks each what it will do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rigwright.containers.told import pending as containers_pending
from rigwright.envs import spent
from rigwright.gateway.service import PREFIX as GATEWAY_PREFIX
from rigwright.model.rig import Rig
from rigwright.monitoring.found import pending
from rigwright.monitoring.service import services
from rigwright.nvidia.cards.files import settings
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.existing import existing
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.driver.told import named
from rigwright.nvidia.packages.locked import locked
from rigwright.nvidia.packages.wanted import lacking, transaction, unheld, unloaded
from rigwright.nvidia.packages.wanted import wanted as driver_wanted
from rigwright.patches.patch import named as named_patches
from rigwright.plan.desired import Desired
from rigwright.plan.facts import lacking as missing_packages
from rigwright.plan.undeclared import ended, undeclared
from rigwright.problems import counted
from rigwright.serving.activation import Activation, activation, goal, surplus
from rigwright.serving.listeners import PREFIX
from rigwright.serving.live import Served
from rigwright.weights.sharing import endpoint, reason

REBOOT = "reboot"
# What a driver lacks is told in one line: a count stands for what is beyond this
LISTED = 2
KIB, GB = 1024, 10**9  # bytes


@dataclass(frozen=True)
class Step:
    """One thing that will be done."""

    role: str
    what: str
    why: str
    fetched_bytes: int = 0
    """From outside the host, as far as the lock knows."""


def _base(wanted: Desired, found: Served) -> list[Step]:
    missing = missing_packages(wanted.rig, wanted.facts)
    whose = "in the bundle" if wanted.rig.bundle else "versions chosen by apt"
    steps = [Step("base", f"packages {', '.join(missing)}", f"not installed; {whose}")] if missing else []
    if not wanted.facts.ledger_whole:
        steps.append(Step("base", f"end the last line of {wanted.rig.ledger}", "it was cut off"))
    return steps


def _tools(wanted: Desired, found: Served) -> list[Step]:
    folder = wanted.tools.folder
    return [] if folder in found.folders else [Step("tools", "host tools", f"{folder} is missing")]


def _nvidia_driver(wanted: Desired, found: Served) -> list[Step]:
    if wanted.driver:
        return _driver(wanted.rig, *wanted.driver)
    if wanted.rig.driver.managed:
        return []
    return [Step("nvidia_driver", "stop managing the driver", "it is no longer managed; its packages stay")]


def _container_toolkit(wanted: Desired, found: Served) -> list[Step]:
    if wanted.containers:
        return [
            Step("container_toolkit", what, _some(list(why))) for what, why in containers_pending(*wanted.containers)
        ]
    return [Step("container_toolkit", "stop managing containers", "none are declared any more; packages stay")]


def _cuda_toolkit(wanted: Desired, found: Served) -> list[Step]:
    cuda = wanted.toolkit
    if cuda is None or not cuda.folder or cuda.folder in found.folders:
        return []
    fetched = sum(wheel.size for wheel in wanted.rig.cuda)
    title = f"CUDA toolkit {cuda.version}{named_patches(cuda.patches)}"
    return [Step("cuda_toolkit", title, f"{cuda.folder} is missing", fetched)]


def _engines(wanted: Desired, found: Served) -> list[Step]:
    steps = []
    for made in wanted.installations.values():
        if made.folder not in wanted.facts.built_engines:
            why = f"no build of these inputs ({made.digest}) exists"
            if made.installed_kib:
                final = made.installed_kib * KIB
                peak = final + made.work_kib * KIB + made.fetched_bytes
                why += f"; takes {final / GB:.1f} GB of disk, up to {peak / GB:.1f} GB while it is built"
            steps.append(Step("engines", made.what, why, made.fetched_bytes))
        elif made.folder in wanted.facts.unfit_engines:
            why = "users other than root can change it, or not everyone can run it"
            steps.append(Step("engines", f"owner and modes of {made.folder}", why))
    declared = list(wanted.installations.values())
    there = wanted.facts.weight_bytes
    gone = len(spent.left(wanted.rig, declared, wanted.facts.built_engines, there))
    if gone := gone + len(spent.unlocked(wanted.rig, declared, there)):
        why = "all that is made of them is whole, or no longer declared"
        steps.append(Step("engines", f"remove {counted(gone, 'downloaded package')}", why))
    return steps


def _sharing(wanted: Desired, found: Served) -> list[Step]:
    rig, facts = wanted.rig, wanted.facts
    if not rig.share:
        return [Step("sharing", "stop sharing weights", "it is no longer declared; the nginx package stays")]
    why = reason(rig, facts.sharing)
    return [Step("sharing", f"share weights on {endpoint(rig.share)}", why)] if why else []


def _monitoring(wanted: Desired, found: Served) -> list[Step]:
    rig = wanted.rig
    at = {one.name: f"{one.name}, on {one.endpoint}" for one in services(rig)}
    return [
        Step("monitoring", f"run {at[name]}" if name in at else f"remove {name}", why)
        for name, why in pending(wanted.facts.monitoring, rig).items()
    ]


def _weights(wanted: Desired, found: Served) -> list[Step]:
    steps = []
    for artefact in wanted.rig.weights:
        there = wanted.facts.weight_bytes.get(wanted.rig.weight_path(artefact), 0)
        if there < artefact.size:
            why = f"{there:,} of {artefact.size:,} bytes are present" if there else "not there"
            steps.append(Step("weights", artefact.file, why, artefact.size - there))
    return steps + _undeclared("weights", wanted)


def way_of(wanted: Desired, found: Served) -> Activation | None:
    """How what serves comes to what is wanted; None where it is that already."""
    return activation(found, wanted.rig.roots.config, goal(found, wanted.generation))


def _serving(wanted: Desired, found: Served) -> list[Step]:
    steps = []
    number = found.number_of(wanted.generation)
    if number is None:
        why = "the first one" if found.current is None else f"generation {found.current} differs"
        steps.append(Step("serving", f"write generation {found.next_number}", why))
    gone = ended(found, wanted.generation)
    if ends := _names(gone):
        steps.append(Step("serving", f"end {ends}", "no longer declared"))
    if way := way_of(wanted, found):
        stop, release = (tuple(one for one in units if one not in gone) for units in (way.stop, way.release))
        parts = [f"stop {_names(stop)}"] if stop else []
        parts += [f"release {_names(release)}"] if release else []
        parts += [f"listen on {_names(way.listen)}"] if way.listen else []
        parts += [f"start {_names(way.restart)}"] if way.restart else []
        parts += [f"reload {_names(way.reload)}" for _ in way.reload[:1]]
        parts += [f"wait for {_names(way.await_)}"] if way.await_ else []
        what = f"activate generation {number or found.next_number}"
        otherwise = f"without {ends}" if ends else "systemd must load it"
        steps.append(Step("serving", what, "; ".join(parts) or otherwise))
    users = [account.name for account in wanted.facts.users if account.ours]
    loose = surplus(found, wanted.rig, wanted.generation, users)
    if loose.generations or loose.paths or loose.users:
        numbers = [f"generation {number}" for number in loose.generations]
        leaving = [f"user {user}" for user in loose.users]
        why = f"{wanted.rig.keep_generations} generations are kept"
        steps.append(Step("serving", f"remove {', '.join([*numbers, *loose.paths, *leaving])}", why))
    return steps + _undeclared("serving", wanted)


def _always(wanted: Desired) -> bool:
    return True


def _undeclared(role: str, wanted: Desired) -> list[Step]:
    """What a role takes off that is there, and has no row otherwise."""
    there = wanted.facts.undeclared
    return [
        Step(role, one.what, one.why)
        for one in undeclared(wanted.rig)
        if one.role == role and not there.isdisjoint(one.paths)
    ]


def _network(wanted: Desired, found: Served) -> list[Step]:
    return _undeclared("network", wanted)


def _nvidia_cards(wanted: Desired, found: Served) -> list[Step]:
    return _undeclared("nvidia_cards", wanted)


@dataclass(frozen=True)
class Stage:
    """What one role sees to in a deploy."""

    role: str
    pending: Callable[[Desired, Served], list[Step]]
    """What it would do to a host, as far as a plan says it."""
    applies: Callable[[Desired], bool] = _always
    """Whether there is anything for it to see to."""


STAGES = (
    Stage("base", _base),
    Stage("network", _network),
    Stage("tools", _tools),
    Stage("nvidia_driver", _nvidia_driver, lambda wanted: bool(wanted.driver or wanted.facts.driver_ours)),
    Stage(
        "nvidia_cards",
        _nvidia_cards,
        lambda wanted: not wanted.rig.driver.managed and bool(settings(wanted.rig) or wanted.facts.settings_ours),
    ),
    Stage(
        "container_toolkit",
        _container_toolkit,
        lambda wanted: bool(wanted.containers or (wanted.facts.containers_ours and not wanted.rig.containers)),
    ),
    Stage("cuda_toolkit", _cuda_toolkit, lambda wanted: wanted.toolkit is not None),
    # before what is fetched for it: others see what is on its way here
    Stage("sharing", _sharing, lambda wanted: bool(wanted.rig.share or wanted.facts.sharing.there)),
    Stage("monitoring", _monitoring, lambda wanted: bool(wanted.rig.monitoring or wanted.facts.monitoring.there)),
    Stage("engines", _engines),
    Stage("weights", _weights),
    Stage("serving", _serving),
)


def stages(wanted: Desired) -> tuple[Stage, ...]:
    """What a deploy to a host consists of, in order."""
    return tuple(stage for stage in STAGES if stage.applies(wanted))


def _driver(rig: Rig, facts: DriverFacts, made: DriverPlan) -> list[Step]:
    one = driver_wanted(made, facts, locked(rig, facts.system))
    missing = lacking(one, facts) or ([] if facts.recorded else ["what is installed is not recorded"])
    there = existing(rig, facts)
    steps = []
    if missing:
        verb, why = "install", f"installed: {there or 'none'}"
        if made.action == "adopt":
            verb, why = "complete", _some(missing)
        steps.append(Step("nvidia_driver", f"{verb} driver {named(made, one.version)}", why))
    elif loose := unheld(one, facts):
        steps.append(Step("nvidia_driver", f"hold driver {named(made, one.version)}", _some(loose)))
    if why := made.reboot if missing and transaction(one, facts) else unloaded(one, facts):
        consent = "" if rig.driver.reboot else "; without --reboot the deploy stops there"
        steps.append(Step("nvidia_driver", REBOOT, f"{why}{consent}"))
    return steps


def _some(reasons: list[str]) -> str:
    more = f"; and {len(reasons) - LISTED} more" if len(reasons) > LISTED else ""
    return "; ".join(reasons[:LISTED]) + more


def _names(units: tuple[str, ...]) -> str:
    said = (unit.rpartition(".")[0].replace(PREFIX, "port ").replace(GATEWAY_PREFIX, "port ") for unit in units)
    # a port has two units
    return ", ".join(dict.fromkeys(name.removeprefix("rigwright-").removeprefix("rigwright_") for name in said))
