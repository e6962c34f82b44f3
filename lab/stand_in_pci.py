"""Stand-in cards: the contents of /sys/bus/pci/devices on a host booted with cards.

Only what tells a card's model is there (vendor, device, class); nothing can be computed on one.
"""

from __future__ import annotations

from pathlib import Path

VGA_CONTROLLER = "0x030000"  # PCI class code of a display adapter


def boot_options(folder: Path, pci_ids: tuple[str, ...]) -> list[str]:
    """Write a PCI tree with one device per `vendor:device` id and return systemd-nspawn's options that show it.

    Without ids the tree is empty: a host without cards must not see those of the machine it runs on.
    """
    tree = folder / "pci"
    tree.mkdir()
    for gpu_index, pci_id in enumerate(pci_ids, start=1):
        vendor, device = pci_id.split(":")
        entry = tree / f"0000:{gpu_index:02x}:00.0"
        entry.mkdir()
        for name, value in (("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("class", VGA_CONTROLLER)):
            (entry / name).write_text(value + "\n")
    return [f"--bind-ro={tree}:/sys/bus/pci/devices"]
