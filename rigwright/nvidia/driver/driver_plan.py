"""The driver that a rig's host should have, and why: a pure function of rig, tables and host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import ArchiveBranches, DriverSupply, DriverTables, ToolkitSpec
from rigwright.nvidia.cuda_toolkit import dotted_numbers, toolkit_refusals
from rigwright.nvidia.driver.driver_facts import (
    PERSISTENCE_UNIT,
    SOURCE,
    DriverFacts,
    describe_pending_reboot,
    release_key,
)
from rigwright.nvidia.driver.driver_reboots import describe_enrolment, describe_reboot
from rigwright.nvidia.driver.installed_driver import (
    DriverCard,
    InstalledDriver,
    choose_flavour,
    describe_skipped_cards,
    find_installed_driver,
    find_replacement_reasons,
    format_cards,
    list_drivable_cards,
    list_driver_cards,
    packages_to_remove,
)
from rigwright.nvidia.packages.locked_driver import (
    LockedDriver,
    expand_names,
    find_locked_driver,
    held_kernel_images,
    missing_headers,
    prebuilt_modules,
    render_pins,
)
from rigwright.validated_types import Archive, Flavour

MODULES = ("nvidia", "nvidia_uvm")
WORDS = {"distribution": "the distribution's archive", "nvidia": "NVIDIA's archive"}


@dataclass(frozen=True)
class DriverPlan:
    """A driver, and what brings it."""

    action: Literal["install", "adopt", "migrate"]
    source: Archive
    branch: int
    flavour: Flavour
    before: tuple[str, ...]
    """Packages that are installed first, in a transaction of their own."""
    packages: tuple[str, ...]
    """The driver's, in one transaction; of an adopted one, those that are there."""
    removed: tuple[str, ...]
    """Packages that go in that transaction."""
    component: str
    """Of the distribution's archive, that must be switched on; empty where main will do."""
    pin: str
    """A file in apt's preferences."""
    holds: tuple[str, ...]
    modules: tuple[str, ...]
    """Kernel modules that are loaded in the end."""
    options: tuple[tuple[str, int], ...]
    """(name, value) of those that are declared for them."""
    dkms: bool
    """Whether the host builds them."""
    reboot: str
    """Why one is needed; empty where none is."""
    why: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class DriverRefusal:
    """There is no such driver, or it could not be brought."""

    reasons: tuple[str, ...]
    """All of them, each with what to do."""


def plan_driver(
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: DriverFacts,
    *,
    upgrading: bool = False,
) -> DriverPlan | DriverRefusal:
    """Choose a driver for a rig's host, which has cards.

    Args:
        declared_cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        driver_supply: The drivers that there are, and the locked one.
        toolkit_spec: The CUDA toolkit to compile with.
        facts: The host.
        upgrading: Whether a driver that is there gives way to one that is locked, of another branch or archive.
    """
    known = driver_supply.tables
    cards = list_driver_cards(declared_cards, facts, known)
    refuse = _find_obstacles(declared_cards, toolkit_spec, facts, known, cards)
    flavour, why = choose_flavour(driver_entry, tuple(card for card in cards if card.generation.flavours), refuse)
    last = min((card.generation.last_branch for card in cards if card.generation.last_branch is not None), default=None)
    there = find_installed_driver(driver_supply, facts)
    wrong = find_replacement_reasons(there, driver_entry, driver_supply, cards, flavour, last) if there else []
    exact = find_locked_driver(driver_supply, facts.system)
    if there and upgrading and exact and (there.branch, there.source) != (exact.branch, exact.source):
        wrong.append(f"{exact.version} of {WORDS[exact.source]} is locked")
    if there and not wrong:
        return (
            DriverRefusal(tuple(refuse)) if refuse else _adopt_driver(there, driver_entry, driver_supply, facts, cards)
        )
    if there and facts.apt_failure:
        refuse.append(
            f"the origin of {there.version} is unknown, for the host's {facts.apt_failure}: repair the sources of apt"
        )
        return DriverRefusal(tuple(refuse))
    options = _find_candidates(driver_entry, exact, facts, known, flavour, last, refuse)
    if not options:
        return DriverRefusal(tuple(refuse))
    branch, offer = options[0]
    layout = known.layouts[offer.layout]
    kernel, brought = facts.metapackage
    if not kernel and not foreign_kernel_maker(facts):
        image = "amd64" if facts.os_id == "debian" else "generic"
        refuse.append(
            f"no kernel metapackage is installed for {facts.kernel}, so modules would not follow kernel updates: "
            f"install linux-image-{image} and boot its kernel"
        )
    if layout.prebuilt and brought and release_key(facts.newest_kernel) > release_key(brought):
        following = {name for _, name in facts.kernel_packages}
        if facts.newest_kernel not in following:
            refuse.append(
                f"the boot loader starts kernel {facts.newest_kernel}, which no installed metapackage follows, and the "
                f"modules are for {brought}: remove that kernel, or install its metapackage"
            )
    if not layout.prebuilt and facts.secure_boot == "on" and not facts.key_enrolled:
        refuse.append(describe_enrolment(facts))
    if refuse:
        return DriverRefusal(tuple(refuse))
    packages = expand_names(layout.packages, branch, flavour, facts.flavours_of_kernels)
    before = expand_names(layout.prerequisites, branch, flavour, facts.flavours_of_kernels)
    gone = packages_to_remove(
        facts, known, offer.source, branch, flavour, (*before, *packages), exact.packages if exact else ()
    )
    reasons = [why, _branch_reason(driver_entry, exact, branch, offer, known.preferred[0], facts.system)]
    if there:
        reasons.append(f"{there} is replaced: {'; '.join(wrong)}")
    if layout.prebuilt:
        reasons.append("its modules are signed and prebuilt for each kernel, so the kernel is held with them")
    return DriverPlan(
        action="migrate" if there else "install",
        source=offer.source,
        branch=branch,
        flavour=flavour,
        before=before,
        packages=packages,
        removed=gone if there else (),
        component=offer.component,
        pin=render_pins(driver_supply, facts, offer.source, branch),
        holds=(*packages, *held_kernel_images(facts)) if layout.prebuilt else packages,
        modules=MODULES,
        options=tuple(driver_entry.module_options.items()),
        dkms=not layout.prebuilt,
        reboot=describe_reboot(facts, flavour=flavour, brought=facts.metapackage[1] if layout.prebuilt else ""),
        why=tuple(reasons),
        warnings=_warnings(facts, known, cards, branch, dkms=not layout.prebuilt),
    )


# The makers that the release of a kernel names, for which no distribution's archive builds NVIDIA's modules.
FOREIGN_KERNELS = (
    (r"-pve$", "Proxmox's (its headers are proxmox-default-headers)"),
    (r"-[0-9]{6}(rc[0-9]+)?-(generic|lowlatency)$", "a mainline build"),
    (r"microsoft|WSL", "of WSL, where the driver is Windows'"),
    (r"tegra", "NVIDIA's for Jetson"),
    (r"raspi|rpi", "a Raspberry Pi's"),
    (r"xanmod|liquorix|zen|cachyos|surface|t2linux|truenas|unraid|linuxkit|ovh|custom", "a vendor's build"),
)


def foreign_kernel_maker(facts: DriverFacts) -> str:
    """The maker of the running kernel, where that is not the distribution; else empty."""
    return next((maker for pattern, maker in FOREIGN_KERNELS if re.search(pattern, facts.kernel, re.IGNORECASE)), "")


def _find_obstacles(
    declared_cards: tuple[Card, ...],
    toolkit_spec: ToolkitSpec,
    facts: DriverFacts,
    known: DriverTables,
    cards: tuple[DriverCard, ...],
) -> list[str]:
    """The obstacles of every driver."""
    found = []
    others = describe_skipped_cards(facts, known)
    if not cards:
        nothing = "no card is declared or on the PCI bus that a driver could have: declare the cards"
        found.append("; ".join((nothing, *others)))
    here = list_drivable_cards(facts, known)
    if others and len(here) < len(declared_cards):
        found.append(
            f"{len(declared_cards)} cards are declared, and a driver can have {len(here)} of those on the bus: "
            f"{'; '.join(others)}: unbind them (vfio-pci: remove vfio-pci.ids= from the kernel's command line and "
            "reboot), or declare the other cards only"
        )
    if unsupported := [card for card in cards if not card.generation.flavours]:
        found.append(
            f"{format_cards(unsupported)} has no supported driver: branch {known.minimum} and later do not "
            f"know it; remove "
            "the card from the inventory"
        )
    if maker := foreign_kernel_maker(facts):
        found.append(
            f"the running kernel {facts.kernel} is {maker}: no archive has NVIDIA modules for it; boot a kernel of "
            f"{facts.system}'s archive, or build the driver for it by hand and set driver.managed = False"
        )
    if facts.architecture != "x86_64":
        found.append(f"the processor is {facts.architecture}: drivers are known only for x86_64")
    systems = sorted({system for offer in known.offers for system in offer.systems})
    if facts.system not in systems:
        found.append(f"no driver archive is known for {facts.system}: install one of {', '.join(systems)}")
    if facts.run_files:
        found.append(
            f"{', '.join(facts.run_files)} comes from a .run file, which overwrites packaged files: run "
            "`nvidia-uninstall` and reboot"
        )
    if facts.persistence:
        option = "--runtime " if facts.persistence == "masked-runtime" else ""
        found.append(
            f"{PERSISTENCE_UNIT} is masked, and cards lose their settings without it: run `systemctl unmask "
            f"{option}{PERSISTENCE_UNIT}`"
        )
    own = facts.system.replace("-", "").replace(".", "")
    found += [
        f"{file} names NVIDIA's archive for {release}, but this is {facts.system}: remove it and the packages "
        "installed from it"
        for release, file in facts.nvidia_sources
        # ours is written anew, for the release that the distribution was upgraded to
        if release != own and file != SOURCE
    ]
    return found + toolkit_refusals(declared_cards, toolkit_spec, facts.toolkit)


def _find_candidates(
    keys: DriverEntry,
    exact: LockedDriver | None,
    facts: DriverFacts,
    known: DriverTables,
    flavour: Flavour,
    last: int | None,
    refuse: list[str],
) -> list[tuple[int, ArchiveBranches]]:
    """(branch, offer) of each driver that will do, the best first; where there is none, why is added to `refuse`."""
    published = [(branch, one) for one in known.offers if facts.system in one.systems for branch in one.branches]
    if not published:
        return []
    bounds = [f"at least {known.minimum}"]
    tops = [last] if last is not None else []
    if last is not None:
        bounds.append(f"at most {last}, the last branch for some of the cards")
    if flavour == "proprietary":
        tops.append(known.last_proprietary)
        bounds.append(f"at most {known.last_proprietary}, the last branch with proprietary modules")
    most = min(tops, default=999)
    fitting = [(branch, one) for branch, one in published if known.minimum <= branch <= most]
    if exact:
        bounds.append(f"{exact.version} of {WORDS[exact.source]}, which is locked,")
        fitting = [(branch, one) for branch, one in fitting if (branch, one.source) == (exact.branch, exact.source)]
    chosen = [
        (branch, one) for branch, one in fitting if keys.branch in (None, branch) and keys.source in (None, one.source)
    ]
    if chosen and keys.managed and not exact and all(one.source == "nvidia" for _, one in chosen):
        refuse.append(_describe_unlocked(facts, known, chosen))
    if not chosen:
        asked = [f"branch {keys.branch}"] if keys.branch is not None else []
        asked += [f"source {keys.source}"] if keys.source is not None else []
        listing = ", ".join(f"{branch} in {WORDS[one.source]}" for branch, one in sorted(published, key=itemgetter(0)))
        refuse.append(
            f"no suitable driver for {facts.system} with {' and '.join(asked) or 'any branch'}: "
            f"{', '.join(bounds)} is required, published are {listing}: {_describe_remedy(bool(fitting), bool(asked))}"
        )
    ranks = {branch: rank for rank, branch in enumerate(known.preferred)}
    return sorted(chosen, key=lambda one: (ranks.get(one[0], len(ranks)), one[0]))


def _describe_unlocked(facts: DriverFacts, known: DriverTables, chosen: list[tuple[int, ArchiveBranches]]) -> str:
    path, branch = known.archive(facts.system).path, chosen[0][0]
    return (
        f"no driver is locked for {facts.system}, as NVIDIA's archive requires: add "
        f'[inputs."driver-{facts.system}"] with kind = "deb", sources = ["nvidia:{path}"] and version = '
        f'"{branch}...", the exact one, to catalog/ next to the inventory, and run `rigwright lock`'
    )


def _describe_remedy(fitting: bool, asked: bool) -> str:
    if fitting and asked:
        return "remove driver.branch or driver.source from the inventory, or choose one of those that fit"
    return "install another release of the distribution, or remove the cards that need another driver"


def _branch_reason(
    entry: DriverEntry, exact: LockedDriver | None, branch: int, offer: ArchiveBranches, preferred: int, system: str
) -> str:
    where = f"branch {branch} from {WORDS[offer.source]}"
    if entry.branch is not None:
        return f"{where}: set by driver.branch"
    if exact:
        return f"{where}: {exact.version} is locked for {system}"
    if branch == preferred:
        return f"{where}: the branch with the longest support"
    return f"{where}: {preferred} is not available for {system} as inventory and cards require"


def _warnings(
    facts: DriverFacts, known: DriverTables, cards: tuple[DriverCard, ...], branch: int, *, dkms: bool
) -> tuple[str, ...]:
    found = [f"{one}: left unchanged" for one in describe_skipped_cards(facts, known)]
    if dkms and facts.secure_boot == "unknown":
        found.append("the state of Secure Boot cannot be read: if it is on, enrol DKMS's key first")
    # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1153
    turing = [card for card in cards if card.generation.name == "Turing"]
    if turing and branch >= 595 and dotted_numbers(facts.kernel.split("-")[0]) >= (7, 0):
        found.append(f"an RTX 2080 failed with branch 595 and kernel 7.0: check that {format_cards(turing)} answers")
    return tuple(found)


def _adopt_driver(
    there: InstalledDriver,
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    facts: DriverFacts,
    cards: tuple[DriverCard, ...],
) -> DriverPlan | DriverRefusal:
    packages = tuple(one.name for one in facts.own_packages)
    made = prebuilt_modules(facts, there.branch)
    dkms = made is None
    if dkms and facts.secure_boot == "on" and not facts.key_enrolled and not facts.module:
        return DriverRefusal((describe_enrolment(facts),))
    # a kernel of another series has come since, or an operator removed the modules of one kernel only
    packages += tuple(name for name in made or () if name not in packages)
    source: Archive = there.source or "distribution"
    branch, flavour = there.branch, there.flavour or "open"
    return DriverPlan(
        action="adopt",
        source=source,
        branch=branch,
        flavour=flavour,
        before=missing_headers(driver_supply.tables, facts, source, branch, flavour) if dkms else (),
        packages=packages,
        removed=(),
        component="",
        pin=render_pins(driver_supply, facts, source, branch),
        holds=packages if dkms else (*packages, *held_kernel_images(facts)),
        modules=MODULES,
        options=(options := tuple(driver_entry.module_options.items())),
        dkms=dkms,
        reboot=describe_reboot(facts, flavour=flavour, version=there.version)
        or describe_pending_reboot(options, facts.params),
        why=(f"{there} is suitable: it stays, and is held",),
        warnings=_warnings(facts, driver_supply.tables, cards, branch, dkms=dkms),
    )
