"""Whether the driver's kernel module is the right one, now and at the next boot: checks N08 to N12."""

from __future__ import annotations

from checks import DEPLOY, Drift
from checks.nvidia.driver_status import INSTALL, REBOOT
from checks.remedy import host_command, instruction, rig_command
from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DriverSupply, ToolkitSpec
from rigwright.nvidia.driver.driver_facts import DriverFacts, find_differing_options
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.nvidia.driver.installed_driver import list_driver_cards, possible_flavours
from rigwright.nvidia.driver.kernel_facts import KernelFacts, KernelModule
from rigwright.validated_types import Flavour

# modinfo's word for the open module (NVIDIA, open-gpu-kernel-modules, MODULE_LICENSE)
OPEN_LICENSE = "Dual MIT/GPL"


def allowed_flavours(
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: DriverFacts,
) -> tuple[Flavour, ...]:
    """The flavours of the module that a rig's host may run.

    A managed driver has the one of its plan. A foreign driver has any that all cards work with and the inventory does
    not speak against.
    """
    if driver_entry.managed:
        made = plan_driver(declared_cards, driver_entry, driver_supply, toolkit_spec, facts)
        if isinstance(made, DriverPlan):
            return (made.flavour,)
    cards = list_driver_cards(declared_cards, facts, driver_supply.tables)
    both = possible_flavours(cards)
    asked = tuple(one for one in both if driver_entry.flavour in (None, one))
    if any(card.fails_open for card in cards) and not driver_entry.force_open_modules:
        asked = tuple(one for one in asked if one != "open")
    return asked or both


def find_flavour_differences(
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    toolkit_spec: ToolkitSpec,
    facts: DriverFacts,
    state: KernelFacts,
) -> list[Drift]:
    """N08: the loaded module, and those that lie there for this kernel and the next, are of a flavour that will do."""
    if not facts.module:
        return [Drift("a loaded kernel module `nvidia`", "none", INSTALL)]
    wanted = allowed_flavours(cards, driver_entry, driver_supply, toolkit_spec, facts)
    if not wanted:
        return [
            Drift(
                "cards that one kernel module supports",
                "some that need open and some that need proprietary modules",
                instruction("move one kind to another host"),
            )
        ]
    words = " or ".join(wanted)
    loaded: Flavour = "open" if facts.module_open else "proprietary"
    found = []
    if loaded not in wanted:
        own = instruction("install the packages of that flavour") + REBOOT
        step = rig_command("deploy", "--reboot") if driver_entry.managed else own
        found.append(Drift(f"the {words} kernel module", f"the {loaded} one is loaded", step))
    for release in dict.fromkeys((state.running, state.newest.release)):
        licence = state.module(release).license
        there: Flavour = "open" if licence == OPEN_LICENSE else "proprietary"
        if licence and there not in wanted:
            found.append(
                Drift(
                    f"the {words} module for kernel {release}",
                    f"a module with the licence {licence}",
                    instruction("remove the other flavour's module packages: the next boot loads it"),
                )
            )
    return found


def find_disk_differences(loaded: str, state: KernelFacts, installed: str = "") -> list[Drift]:
    """N09: the loaded modules lie there for this kernel, and for the one that boots next.

    Args:
        loaded: Version of the loaded module; empty without one.
        state: The host.
        installed: Version of the driver's packages, which the next boot has to fit; empty where there are none.
    """
    found = []
    here, newest = state.module(state.running).version, state.newest
    wanted = installed or here or loaded
    misses = newest.release != state.running and not (newest.version and newest.version == (wanted or newest.version))
    if not here or here != (loaded or here):
        found.append(
            Drift(
                f"module {loaded}, which is loaded, for kernel {state.running}"
                if loaded
                else f"a module nvidia for kernel {state.running}",
                here or "none",
                # a reboot would be one into a kernel without cards
                DEPLOY if misses else rig_command("deploy", "--reboot"),
            )
        )
    if misses:
        found.append(
            Drift(
                f"module {wanted or 'nvidia'} for kernel {newest.release}, which boots next",
                newest.version or "none",
                DEPLOY,
            )
        )
    return found


def find_dkms_differences(state: KernelFacts) -> list[Drift]:
    """N10: DKMS has the driver's module built and installed for this kernel and the next, and nothing half done."""
    found = [
        Drift(
            f"DKMS to have nvidia {one.version} installed or not at all",
            one.state,
            host_command("dkms remove -m nvidia -v {} --all", one.version),
        )
        for one in state.dkms
        if one.state == "broken" or (one.state == "added" and not one.kernel)
    ]
    for release in dict.fromkeys((state.running, state.newest.release)):
        rows = [one for one in state.dkms if one.kernel == release]
        whole = [one for one in rows if one.state == "installed" and "missing" not in one.remark.lower()]
        wanted = state.module(release).version
        if wanted not in {one.version for one in whole}:
            said = ", ".join(f"{one.version} {one.state} {one.remark}".strip() for one in rows)
            if whole and not wanted:
                said += f", but /lib/modules/{release} has no module"
            found.append(
                Drift(
                    f"DKMS to have {f'nvidia {wanted}' if wanted else 'nvidia'} installed for kernel {release}",
                    said or "nothing for it",
                    host_command("apt-get install --yes {}", f"linux-headers-{release}")
                    + host_command("dkms autoinstall -k {}", release),
                )
            )
        found += [
            Drift(
                f"the module nvidia {one.version} that DKMS has built for kernel {release}",
                f"another one {one.remark}",
                host_command("dkms install --force -m nvidia -v {} -k {}", one.version, release),
            )
            for one in whole
            if "Differences" in one.remark
        ]
    return found


def find_signature_differences(secure_boot: str, state: KernelFacts) -> list[Drift]:
    """N11: where the firmware asks for signatures, the module has one, now and at the next boot.

    Whether the firmware trusts the signer shows in the module being loaded (N02).

    Args:
        secure_boot: "on", "off", or "unknown" where the firmware's variable cannot be read.
        state: The host.
    """
    if secure_boot != "on":
        return []
    ones: list[KernelModule] = [state.module(state.running)]
    if state.newest.release != state.running:
        ones.append(state.newest)
    return [
        Drift(
            f"a signed module for kernel {one.release}, since Secure Boot is on",
            "no signature",
            instruction(
                "use the distribution's prebuilt modules, enrol DKMS's key at the console, or disable Secure Boot"
            ),
        )
        for one in ones
        if one.version and not one.signer
    ]


def find_option_differences(driver_entry: DriverEntry, state: KernelFacts) -> list[Drift]:
    """N12: the module's options and the kernel's settings are the declared ones."""
    values = dict(state.sysctl)
    found = [
        Drift(
            f"module option {one.name}={one.value}",
            one.loaded_text,
            instruction("remove it from the inventory: this driver does not have it")
            if one.loaded is None and state.params
            else rig_command("deploy", "--reboot"),
        )
        for one in find_differing_options(driver_entry.module_options.items(), state.params)
    ]
    found += [
        Drift(f"sysctl {name} {value}", values.get(name) or "none", DEPLOY)
        for name, value in sorted(driver_entry.sysctl.items())
        if values.get(name) != str(value)
    ]
    return found
