"""The cards that a throwaway host can have, as files in it: inside/kernel says how it reads them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

CARDS = Path("var/lib/lab/cards")
BOTH = "open proprietary"

# PCI id -> name, VBIOS, flavours of the module that drive it, the first branch that does and the last. Names: the PCI
# ID repository; flavours and branches: NVIDIA, "Open Linux Kernel Modules" and its list of supported products.
MODELS = {
    "10de:1b06": ("NVIDIA GeForce GTX 1080 Ti", "86.02.39.00.22", "proprietary", 367, 580),
    "10de:1e04": ("NVIDIA GeForce RTX 2080 Ti", "90.02.0b.00.0e", BOTH, 410, 9999),
    "10de:1e07": ("NVIDIA GeForce RTX 2080 Ti", "90.02.17.00.58", BOTH, 410, 9999),
    "10de:2204": ("NVIDIA GeForce RTX 3090", "94.02.42.00.a9", BOTH, 455, 9999),
    "10de:2335": ("NVIDIA H200", "96.00.a5.00.01", BOTH, 550, 9999),
    "10de:2b85": ("NVIDIA GeForce RTX 5090", "98.02.2e.40.0b", "open", 570, 9999),
}
UNKNOWN = ("NVIDIA Graphics Device", "94.02.42.00.a9", BOTH, 455, 9999)


def bus_addresses(pci_ids: Sequence[str]) -> list[str]:
    """Where the cards are on the bus."""
    return [f"0000:{gpu_index:02x}:00.0" for gpu_index in range(1, len(pci_ids) + 1)]


def render_card_files(name: str, pci_ids: Sequence[str]) -> dict[str, str]:
    """Path below a host's root -> text of the file of each of its cards. A card has the same UUID in every lab.

    Args:
        name: The host's.
        pci_ids: `vendor:device` of each card.
    """
    files = {}
    for address, pci_id in zip(bus_addresses(pci_ids), pci_ids, strict=True):
        vendor, device = pci_id.split(":")
        words, vbios, flavours, first, last = MODELS.get(pci_id, UNKNOWN)
        rows = {
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "name": words,
            "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{address}')}",
            "vbios": vbios,
            "flavours": flavours,
            "first_branch": first,
            "last_branch": last,
        }
        files[str(CARDS / address)] = "".join(f"{key}={value}\n" for key, value in rows.items())
    return files
