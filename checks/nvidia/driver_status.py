"""The NVIDIA driver serves the cards of its rig only: checks N01 to N04."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from checks import DEPLOY, Drift
from checks.remedy import host_command, instruction, rig_command
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import Instance
from rigwright.nvidia.cards.card_facts import UNEXPLAINED_MIB
from rigwright.nvidia.cards.smi import App, Gpu
from rigwright.nvidia.cards.topology import cards_on_bus
from rigwright.problems import format_count

# Of the declared memory. ECC in the ordinary memory of a card takes a 16th of it, and that must be seen
# (https://exafunction.com/blog/ecc-gpu); a board with half of its chips has far less. Two H200 answer with all of it.
MEMORY_SHARE = 0.97
CONTROL_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
LIBRARY = re.compile(r"/libcuda\.so\.([0-9]+(?:\.[0-9]+)+)\Z")
KERNEL_LOG = host_command("journalctl --no-pager --dmesg --boot --lines=50")
LOG = host_command("journalctl --no-pager --dmesg --boot --grep=NVRM")
REBOOT = instruction("wait until no request is under way") + host_command("systemctl reboot")
INSTALL = instruction("install the driver, or reboot into it")


@dataclass(frozen=True)
class CardHolder:
    """A process that computes on a card."""

    name: str
    """Empty where there is no such process to be seen."""
    cgroup: str
    """Its control group's path."""


def find_unanswering_cards(cards: tuple[Card, ...], facts: HostFacts, gpus: Sequence[Gpu]) -> list[Drift]:
    """N01: each declared card answers as the one that it is declared as.

    Instances get their cards by number, so each must be the same one in the inventory, on the bus and to CUDA.
    """
    found = []
    away = len(cards) - len(facts.pci_cards)
    if away > 0:
        found.append(
            Drift(
                f"{format_count(len(cards), 'card')} on the PCI bus",
                str(len(facts.pci_cards)),
                REBOOT + instruction("if it stays missing, check its power cables and reseat it"),
            )
        )
    seen = {gpu.address: gpu for gpu in gpus}
    for number, card, address in cards_on_bus(cards, facts):
        if address not in seen:
            found.append(
                Drift(
                    f"card {number} at {address} to answer",
                    f"nvidia-smi lists {', '.join(sorted(seen))}",
                    LOG + host_command("lspci -k -s {}", address) + REBOOT,
                )
            )
            continue
        gpu = seen[address]
        least = int(MEMORY_SHARE * card.vram_mib)
        total = "unknown" if gpu.total_mib is None else f"{gpu.total_mib} MiB"
        enough = gpu.total_mib is not None and gpu.total_mib >= least
        declare = instruction("declare the card that is there, or check whether ECC uses its memory")
        rows = (
            (gpu.index == number, f"CUDA device {number}", str(gpu.index), REBOOT),
            (gpu.name == card.name, f"name {card.name}", gpu.name, declare),
            (gpu.capability == card.capability, f"compute capability {card.capability}", gpu.capability, declare),
            (enough, f"at least {least} MiB", total, declare),
        )
        found += [
            Drift(f"card {number} at {address} with {expected}", there, cure)
            for holds, expected, there, cure in rows
            if not holds
        ]
    return found


def find_version_differences(module: str, libraries: Sequence[str], smi: str, minimum: int) -> list[Drift]:
    """N02: one version of the driver, and one that is new enough.

    Args:
        module: Version of the kernel module that is loaded; empty without one.
        libraries: The file behind each 64-bit libcuda.so.1 that the loader knows, in its order: links followed.
        smi: The version that nvidia-smi tells, or why it does not.
        minimum: The oldest branch that will do.
    """
    if not module:
        return [Drift("a loaded kernel module `nvidia`", "none", INSTALL)]
    found = []
    distinct = list(dict.fromkeys(libraries))
    if len(distinct) != 1:
        found.append(
            Drift(
                "one libcuda.so.1 in the loader's cache",
                ", ".join(distinct) or "none",
                instruction("remove all others from /etc/ld.so.conf.d") + host_command("ldconfig")
                if distinct
                else DEPLOY,
            )
        )
    if distinct:
        matched = LIBRARY.search(distinct[0])
        library = matched[1] if matched else f"a file without a version, {distinct[0]}"
        if library != module:
            found.append(
                Drift(
                    f"libcuda.so.1 of the loaded module's version {module}",
                    library,
                    instruction("if the driver was not upgraded, remove that library") + REBOOT,
                )
            )
    if smi != module:
        found.append(Drift(f"nvidia-smi to report {module}", smi, REBOOT))
    branch = re.match(r"[0-9]+", module)
    if not branch or int(branch[0]) < minimum:
        found.append(Drift(f"branch {minimum} or later", module, instruction("install a newer driver")))
    return found


def find_device_differences(
    cards: tuple[Card, ...], facts: HostFacts, there: Collection[str], minors: Mapping[str, str], nouveau: bool
) -> list[Drift]:
    """N03: the files by which programs reach the cards are there, and nouveau is not.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        there: Paths of device files.
        minors: Address -> number of its device file, of each card that the module nvidia has.
        nouveau: Whether that is loaded.
    """
    found = [
        Drift(f"the device {path}", "none", host_command("nvidia-modprobe -u -c 0"))
        for path in CONTROL_FILES
        if path not in there
    ]
    for number, _, address in cards_on_bus(cards, facts):
        if address not in minors:
            found.append(
                Drift(
                    f"the driver nvidia on card {number} at {address}",
                    "another driver, or none",
                    host_command("lspci -k -s {}", address) + REBOOT,
                )
            )
        elif f"/dev/nvidia{minors[address]}" not in there:
            found.append(
                Drift(
                    f"the device /dev/nvidia{minors[address]} of card {number} at {address}",
                    "none",
                    host_command("nvidia-modprobe -c {}", minors[address]),
                )
            )
    if nouveau:
        found.append(
            Drift(
                "no kernel module nouveau",
                "it is loaded",
                rig_command("deploy", "--reboot"),
            )
        )
    return found


def find_holder_differences(
    cards: tuple[Card, ...],
    reserved_gpus: tuple[int, ...],
    instances: tuple[Instance, ...],
    facts: HostFacts,
    gpus: Sequence[Gpu],
    apps: Sequence[App],
    processes: Mapping[int, CardHolder],
) -> list[Drift]:
    """N04: the declared cards are the rig's own, and those that are reserved are not.

    Memory of a card outside of compute processes is judged only where nvidia-smi knows how much each of them has.

    Args:
        cards: The declared cards by GPU index.
        reserved_gpus: GPU indexes that other work has.
        instances: The declared instances.
        facts: Its host.
        gpus: The cards, seen before the processes: a program that loads between the two looks is then no surplus.
        apps: The processes that compute on them.
        processes: The processes of `apps`, by pid.
    """
    # an absolute path: a unit of that name below a user's own manager is the user's
    ours = tuple(f"/rigwright.slice/{own}{one.unit}" for one in instances for own in ("", f"{one.slice}/"))
    used = {gpu.address: gpu.used_mib for gpu in gpus}
    found = []
    for number, _, address in cards_on_bus(cards, facts):
        here = [app for app in apps if app.address == address]
        for app in here:
            holder = processes.get(app.pid, CardHolder("", ""))
            reserved = number in reserved_gpus
            if reserved is not any(f"{holder.cgroup}/".startswith(f"{path}/") for path in ours):
                continue
            size = "an unknown amount" if app.used_mib is None else f"{app.used_mib} MiB"
            where = f"card {number} at {address}"
            found.append(
                Drift(
                    f"no process of this rig on {where}, which is reserved"
                    if reserved
                    else f"only this rig on {where}",
                    f"pid {app.pid} ({holder.name or 'out of sight'}) with {size}"
                    f"{f' in {holder.cgroup}' if holder.cgroup else ''}",
                    DEPLOY
                    if reserved
                    else instruction("stop it, give it another card, or add the card to reserved_gpus"),
                )
            )
        sizes = [app.used_mib for app in here]
        total = used.get(address)
        if total is None or None in sizes or number in reserved_gpus:
            continue
        rest = total - sum(size for size in sizes if size is not None)
        if rest > UNEXPLAINED_MIB:
            found.append(
                Drift(
                    f"at most {UNEXPLAINED_MIB} MiB of card {number} at {address} in use outside compute processes",
                    f"{rest} MiB",
                    host_command("nvidia-smi")
                    + instruction("processes of type G belong to a desktop: have it use another card"),
                )
            )
    return found
