"""Role nvidia_driver: the driver that a rig's cards need, from a signed archive, running, held, and kept for the way
back."""

from __future__ import annotations

from pyinfra import host, logger, state
from pyinfra.api import deploy
from pyinfra.facts.files import FileContents

from rigwright.declaration.rig import Rig
from rigwright.nvidia.driver.facts import MODPROBE, DriverFacts
from rigwright.nvidia.driver.locked import locked
from rigwright.nvidia.driver.plan import DriverPlan, Refused, driver_plan
from rigwright.nvidia.driver.settings import PERSISTENCED, paths, settings_of, store
from rigwright.nvidia.driver.wanted import PREBUILT, earlier, returned, unloaded, wanted
from roles.operations.cards import retired, set_up
from roles.operations.drivers import brought, held, lacks, look, released, running
from roles.operations.files import Text, differ, directories, texts


def driver_of(rig: Rig, upgrading: bool) -> tuple[DriverFacts | None, DriverPlan | Refused | None]:
    """What a managed driver comes to on the host of the running deploy; nothing where it is the operator's."""
    facts = look(rig) if rig.driver.managed else None
    return facts, driver_plan(rig, facts, upgrading=upgrading) if facts else None


@deploy("NVIDIA driver")
def no_driver(rig: Rig) -> None:
    """Let go of one that the rig does not declare any more."""
    released(name="Release the driver", rig=rig)


@deploy("NVIDIA driver")
def nvidia_driver(rig: Rig, plan: DriverPlan, facts: DriverFacts, upgrading: bool, reboot: bool) -> None:
    """Bring settings, packages, the running module and the cards' own settings to their state."""
    one = wanted(plan, facts, locked(rig, facts.system), upgrading=upgrading)
    files = settings_of(rig, plan, facts)
    directories(
        name="Driver's folders", paths={PERSISTENCED.rpartition("/")[0]: ("755", "root", "root")}, ledger=rig.ledger
    )
    written = [Text(file.path, file.text, file.mode) for file in files]
    options = differ([file for file in written if file.path == MODPROBE])
    texts(name="Driver's settings", files=written)
    retired(name="Settings that are not declared", paths=sorted(set(paths(rig)) - {file.path for file in files}))
    brought(name=f"Driver {one.version or plan.branch}", rig=rig, wanted=one, facts=facts, options=options)
    held(name="Driver's holds", rig=rig, wanted=one, facts=facts, options=options)
    running(name="Driver's module", rig=rig, wanted=one, facts=facts, consent=rig.driver.reboot or reboot)
    moving = lacks(one, facts) or bool(unloaded(one, facts))
    set_up(name="Cards", rig=rig, plan=plan, facts=facts, moving=moving)


@deploy("Rollback of the driver")
def earlier_driver(rig: Rig, reboot: bool) -> None:
    """Bring back the driver before the one that is installed, from the package files that were kept."""
    facts = look(rig)
    if facts is None:
        return
    plan = driver_plan(rig, facts)
    version = earlier(facts)
    built = any(PREBUILT.fullmatch(one.name) for one in facts.packages)
    if isinstance(plan, Refused) or not version or built:
        reasons = plan.reasons if isinstance(plan, Refused) else ("no files of an earlier driver are kept",)
        if built:
            reasons = (
                "the driver before it has modules for the kernel before alone, and going back would take away the "
                "kernel that runs: lock a driver of NVIDIA's archive to have a way back",
            )
        for reason in reasons:
            logger.error(f"{host.print_prefix}refused: {reason}")
        state.fail_hosts({host})
        return
    one = returned(plan, facts, version, host.get_fact(FileContents, path=f"{store(rig)}/{version}/SHA256SUMS") or [])
    brought(name=f"Driver {version}", rig=rig, wanted=one, facts=facts)
    running(name="Driver's module", rig=rig, wanted=one, facts=facts, consent=rig.driver.reboot or reboot)
