"""The files that a rig's cards and kernel settings have on a host, with any origin of its driver, as text."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from rigwright.host.pci_cards import DEVICES
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import POWER_UNIT
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.roots import Roots
from rigwright.nvidia.cards.smi import TIMEOUT
from rigwright.project_root import ROOT
from rigwright.render import render

# First line of each. Not the one of a generation's units (rigwright.serving.instance_units): those are removed where no
# generation has them, and the unit for power is no generation's.
OWNED = "# Written by rigwright for the cards' driver; changes here are undone by the next deploy."
POWER = f"/etc/systemd/system/{POWER_UNIT}"
SYSCTL = "/etc/sysctl.d/60-rigwright.conf"
# Which limits and clocks were set last (`power_digest`); gone with a boot, as they are.
APPLIED = "/run/rigwright-power"
# Seconds for all cards together: sixteen of them, with a question and three orders each that take their time.
UNIT_PATIENCE = 300
# The files that the unit runs, by their places below its folder: python3 takes a folder for a program
PROGRAM = {
    "__main__.py": "roles/nvidia_cards/host/power.py",
    "rigwright/nvidia/cards/power.py": "rigwright/nvidia/cards/power.py",
    "rigwright/nvidia/cards/smi.py": "rigwright/nvidia/cards/smi.py",
}
DECLARED = "declared.json"


@dataclass(frozen=True)
class SettingFile:
    """A file on the host, root's."""

    path: str
    text: str
    mode: str = "644"
    """In octal."""


def program_folder(roots: Roots) -> str:
    """The program that sets limits and clocks; below the configuration's, which is there before other disks are."""
    return f"{roots.config}/cards"


def record_path(roots: Roots) -> str:
    """The record of the driver and its cards, for later roles and for comparison."""
    return f"{roots.config}/driver.json"


def managed_paths(roots: Roots) -> tuple[str, ...]:
    """Every one of these files that may be ours; one that `settings` does not name is removed."""
    folder = program_folder(roots)
    return (POWER, SYSCTL, *(f"{folder}/{name}" for name in (DECLARED, *PROGRAM)))


def managed_folders(roots: Roots, driver_entry: DriverEntry) -> tuple[str, ...]:
    """The folders that they need and a system has not, each before what is in it."""
    if not driver_entry.sets_cards:
        return ()
    found, folder = [program_folder(roots)], program_folder(roots)
    for name in ["rigwright", "nvidia", "cards"]:
        folder = f"{folder}/{name}"
        found.append(folder)
    return tuple(found)


def render_card_settings(roots: Roots, cards: tuple[Card, ...], driver_entry: DriverEntry) -> tuple[SettingFile, ...]:
    """The files that a rig's cards and kernel settings have."""
    driver, files = driver_entry, {}
    if driver.sysctl:
        files[SYSCTL] = render("nvidia_driver/sysctl.conf.j2", owned=OWNED, settings=driver.sysctl)
    if driver.sets_cards:
        folder = program_folder(roots)
        files[POWER] = render("nvidia_driver/power.service.j2", owned=OWNED, program=folder, patience=UNIT_PATIENCE)
        files |= {f"{folder}/{name}": text for name, text in render_power_program(roots, cards, driver_entry).items()}
    return tuple(SettingFile(path, files[path]) for path in sorted(files))


def declared_paths(roots: Roots, cards: tuple[Card, ...], driver_entry: DriverEntry) -> set[str]:
    """Paths of a rig's files on its host for its cards and kernel, with any origin of the driver."""
    return {one.path for one in render_card_settings(roots, cards, driver_entry)} | (
        {record_path(roots)} if driver_entry.sets_cards else set()
    )


def render_power_program(
    roots: Roots,
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    timeout: int = TIMEOUT,
    devices: str = DEVICES,
    applied: str = APPLIED,
    record: str = "",
) -> dict[str, str]:
    """The program of the unit for power, its files by their places: `set` and `reset`.

    Args:
        roots: Directories on the host.
        cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        timeout: For one call of nvidia-smi, s.
        devices: The kernel's folder of the bus.
        applied: The file by which it says what it has set.
        record: The file in which cards are written down, where that is not the rig's.
    """
    files = {name: f"{OWNED}\n{(ROOT / source).read_text()}" for name, source in PROGRAM.items()}
    set_to = {"limits": driver_entry.power_limits(len(cards)), "clocks": driver_entry.clocks_mhz}
    digest = hashlib.sha256(json.dumps([files, set_to], sort_keys=True).encode()).hexdigest()
    places = {"devices": devices, "applied": applied, "record": record or record_path(roots)}
    return files | {DECLARED: json.dumps({**set_to, **places, "timeout": timeout, "digest": digest}, indent=2) + "\n"}


def power_digest(roots: Roots, cards: tuple[Card, ...], driver_entry: DriverEntry) -> str:
    """The program's output once it has set all that is declared."""
    return str(json.loads(render_power_program(roots, cards, driver_entry)[DECLARED])["digest"])
