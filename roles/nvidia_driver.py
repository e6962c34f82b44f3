"""Role nvidia_driver: the driver that a rig's cards need, from a signed archive, running, held, and kept for the way
back."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra import host, logger, state
from pyinfra.api import deploy
from pyinfra.facts.files import FileContents

from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_setting_files import managed_folders
from rigwright.nvidia.driver.driver_facts import MODPROBE, DriverFacts
from rigwright.nvidia.driver.driver_files import PERSISTENCED, managed_paths, render_locked_settings, store_folder
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal, plan_driver
from rigwright.nvidia.packages.driver_target import (
    describe_unloaded,
    find_previous_driver,
    find_rollback_refusals,
    plan_driver_rollback,
    plan_driver_target,
)
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from roles.operations.cards import apply_card_settings, remove_card_settings
from roles.operations.drivers import (
    hold_driver,
    install_driver,
    load_driver,
    needs_installation,
    read_driver_facts,
    release_driver,
)
from roles.operations.files import TextFile, make_directories, texts_differ, write_text_files
from roles.rig_lookup import DeployContext, role


@dataclass(frozen=True)
class DriverSelection:
    """The target state of a managed driver on a host; None where it is the operator's."""

    facts: DriverFacts | None = None
    plan: DriverPlan | DriverRefusal | None = None


def choose_driver(rig: Rig, upgrading: bool) -> DriverSelection:
    """The target state of a managed driver on the host of the running deploy."""
    facts = read_driver_facts(rig) if rig.driver.managed else None
    if facts is None:
        return DriverSelection()
    plan = plan_driver(rig.cards, rig.driver, rig.driver_supply, rig.toolkit, facts, upgrading=upgrading)
    if rig.bundle:
        from rigwright.nvidia.packages.bundled_driver import require_bundled_driver

        plan = require_bundled_driver(rig.bundle, rig.driver_supply, facts, plan, upgrading=upgrading)
    return DriverSelection(facts, plan)


def packages_for_driver(driver: DriverSelection) -> tuple[DriverFacts, DriverPlan] | None:
    """The packages that are brought; None where nothing is."""
    return (driver.facts, driver.plan) if driver.facts and isinstance(driver.plan, DriverPlan) else None


@role("NVIDIA driver")
def nvidia_driver(context: DeployContext) -> None:
    """Bring settings, packages, the running module and the cards' own settings to their state; stop managing a
    driver that the rig does not declare any more.
    """
    rig, options = context.rig, context.options
    if context.target.driver:
        upgrading = options.verb == "upgrade"
        _install_nvidia_driver(rig, *context.target.driver, upgrading=upgrading, reboot=options.reboot)
    elif not rig.driver.managed:
        release_driver(name="Stop managing the driver", rig=rig)


def _install_nvidia_driver(
    rig: Rig, facts: DriverFacts, plan: DriverPlan, *, upgrading: bool, reboot: bool | None
) -> None:
    one = plan_driver_target(plan, facts, find_locked_driver(rig.driver_supply, facts.system), upgrading=upgrading)
    files = render_locked_settings(rig.roots, rig.cards, rig.driver, rig.driver_supply, rig.network, plan, facts)
    needed = (PERSISTENCED.rpartition("/")[0], *managed_folders(rig.roots, rig.driver))
    make_directories(
        name="Driver directories", paths=dict.fromkeys(needed, ("755", "root", "root")), ledger=rig.roots.ledger
    )
    written = [TextFile(file.path, file.text, file.mode) for file in files]
    options = texts_differ([file for file in written if file.path == MODPROBE])
    write_text_files(name="Driver settings", files=written)
    remove_card_settings(
        name="Undeclared settings", paths=sorted(set(managed_paths(rig.roots)) - {file.path for file in files})
    )
    install_driver(name=f"Driver {one.version or plan.branch}", rig=rig, wanted=one, facts=facts, options=options)
    hold_driver(name="Driver holds", rig=rig, wanted=one, facts=facts, options=options)
    load_driver(name="Driver module", rig=rig, wanted=one, facts=facts, consent=_may_reboot(rig, reboot))
    moving = needs_installation(one, facts) or bool(describe_unloaded(one, facts))
    apply_card_settings(name="Cards", rig=rig, plan=plan, facts=facts, moving=moving)


@deploy("Driver rollback")
def restore_previous_driver(rig: Rig, reboot: bool | None, version: str) -> None:
    """Bring back a driver from the package files that were kept; without a version the one before the installed one."""
    facts = read_driver_facts(rig)
    if facts is None:
        return
    plan = plan_driver(rig.cards, rig.driver, rig.driver_supply, rig.toolkit, facts)
    version = version or find_previous_driver(facts)
    reasons = find_rollback_refusals(plan, facts, version)
    if isinstance(plan, DriverRefusal) or reasons:
        for reason in reasons:
            logger.error(f"{host.print_prefix}refused: {reason}")
        state.fail_hosts({host})
        return
    one = plan_driver_rollback(
        plan, facts, version, host.get_fact(FileContents, path=f"{store_folder(rig.roots)}/{version}/SHA256SUMS") or []
    )
    install_driver(name=f"Driver {version}", rig=rig, wanted=one, facts=facts)
    load_driver(name="Driver module", rig=rig, wanted=one, facts=facts, consent=_may_reboot(rig, reboot))


def _may_reboot(rig: Rig, reboot: bool | None) -> bool:
    """The run's consent, or if it has no word on that, the inventory's."""
    return rig.driver.reboot if reboot is None else reboot
