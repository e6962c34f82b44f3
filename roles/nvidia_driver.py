"""Role nvidia_driver: the driver that a rig's cards need, from a signed archive, running, held, and kept for the way
back."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra import host, logger, state
from pyinfra.api import deploy
from pyinfra.facts.files import FileContents

from rigwright.model.rig import Rig
from rigwright.nvidia.cards.files import folders
from rigwright.nvidia.driver.choice import DriverPlan, Refused, driver_plan
from rigwright.nvidia.driver.files import PERSISTENCED, paths, settings_of, store
from rigwright.nvidia.driver.found import MODPROBE, DriverFacts
from rigwright.nvidia.packages.locked import locked
from rigwright.nvidia.packages.wanted import PREBUILT, earlier, returned, unloaded, wanted
from rigwright.plan.desired import Desired
from roles.operations.cards import retired, set_up
from roles.operations.drivers import brought, held, lacks, look, released, running
from roles.operations.files import Text, differ, directories, texts


@dataclass(frozen=True)
class Chosen:
    """What a managed driver comes to on a host; nothing where it is the operator's."""

    facts: DriverFacts | None = None
    plan: DriverPlan | Refused | None = None


def driver_of(rig: Rig, upgrading: bool) -> Chosen:
    """What a managed driver comes to on the host of the running deploy."""
    facts = look(rig) if rig.driver.managed else None
    return Chosen(facts, driver_plan(rig, facts, upgrading=upgrading)) if facts else Chosen()


def managed(driver: Chosen) -> tuple[DriverFacts, DriverPlan] | None:
    """What is brought; None where nothing is."""
    return (driver.facts, driver.plan) if driver.facts and isinstance(driver.plan, DriverPlan) else None


@deploy("NVIDIA driver")
def nvidia_driver(desired: Desired, upgrading: bool, reboot: bool) -> None:
    """Bring settings, packages, the running module and the cards' own settings to their state; stop managing a
    driver that the rig does not declare any more.
    """
    if desired.driver:
        _brought(desired.rig, *desired.driver, upgrading=upgrading, reboot=reboot)
    elif not desired.rig.driver.managed:
        released(name="Stop managing the driver", rig=desired.rig)


def _brought(rig: Rig, facts: DriverFacts, plan: DriverPlan, upgrading: bool, reboot: bool) -> None:
    one = wanted(plan, facts, locked(rig, facts.system), upgrading=upgrading)
    files = settings_of(rig, plan, facts)
    needed = (PERSISTENCED.rpartition("/")[0], *folders(rig))
    directories(name="Driver directories", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.ledger)
    written = [Text(file.path, file.text, file.mode) for file in files]
    options = differ([file for file in written if file.path == MODPROBE])
    texts(name="Driver settings", files=written)
    retired(name="Undeclared settings", paths=sorted(set(paths(rig)) - {file.path for file in files}))
    brought(name=f"Driver {one.version or plan.branch}", rig=rig, wanted=one, facts=facts, options=options)
    held(name="Driver holds", rig=rig, wanted=one, facts=facts, options=options)
    running(name="Driver module", rig=rig, wanted=one, facts=facts, consent=rig.driver.reboot or reboot)
    moving = lacks(one, facts) or bool(unloaded(one, facts))
    set_up(name="Cards", rig=rig, plan=plan, facts=facts, moving=moving)


@deploy("Driver rollback")
def earlier_driver(rig: Rig, reboot: bool) -> None:
    """Bring back the driver before the one that is installed, from the package files that were kept."""
    facts = look(rig)
    if facts is None:
        return
    plan = driver_plan(rig, facts)
    version = earlier(facts)
    built = any(PREBUILT.fullmatch(one.name) for one in facts.packages)
    if isinstance(plan, Refused) or not version or built:
        reasons = plan.reasons if isinstance(plan, Refused) else ("no files of an earlier driver are stored",)
        if built:
            reasons = (
                "the previous driver has modules only for the previous kernel, and a rollback would remove the "
                "running one: lock a driver from NVIDIA's archive to be able to roll back",
            )
        for reason in reasons:
            logger.error(f"{host.print_prefix}refused: {reason}")
        state.fail_hosts({host})
        return
    one = returned(plan, facts, version, host.get_fact(FileContents, path=f"{store(rig)}/{version}/SHA256SUMS") or [])
    brought(name=f"Driver {version}", rig=rig, wanted=one, facts=facts)
    running(name="Driver module", rig=rig, wanted=one, facts=facts, consent=rig.driver.reboot or reboot)
