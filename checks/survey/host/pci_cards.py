"""NVIDIA's cards on the PCI bus, as the kernel has them: the fields of rigwright.host.pci_cards.PciCard."""

from __future__ import annotations

import glob
import os
import re

from checks.survey.host import common

MINOR = re.compile(r"^Device Minor:\s*([0-9]+)\s*$", re.MULTILINE)
MOST_LANES = 32  # the kernel has 63 or 255 of a link that is down


def list_cards(root: str) -> list[dict[str, object]]:
    """The cards in the order of the bus, with sysfs's path of each and its device files below /dev/dri.

    Args:
        root: The host's root; a test has a folder for it.
    """
    return [_describe(root, path) for path in sorted(glob.glob(f"{root}/sys/bus/pci/devices/*")) if _is_card(path)]


def _is_card(path: str) -> bool:
    return _first(f"{path}/vendor") == "0x10de" and _first(f"{path}/class").startswith("0x03")


def _first(path: str) -> str:
    return (common.read(path) or "").split("\n", 1)[0].strip()


def _lanes(value: str) -> int | None:
    lanes = int(value) if value.isdecimal() else 0
    return lanes if 0 < lanes <= MOST_LANES else None


def _describe(root: str, path: str) -> dict[str, object]:
    address = os.path.basename(path)
    minor = MINOR.search(common.read(f"{root}/proc/driver/nvidia/gpus/{address}/information") or "")
    node = _first(f"{path}/numa_node")
    return {
        "address": address,
        "pci_id": f"10de:{_first(f'{path}/device').removeprefix('0x')}",
        "bound": os.path.basename(os.readlink(f"{path}/driver")) if os.path.islink(f"{path}/driver") else "",
        "minor": int(minor[1]) if minor else None,
        "numa_node": int(node) if node.isdecimal() else None,
        "cpus": _first(f"{path}/local_cpulist"),
        "lanes": _lanes(_first(f"{path}/current_link_width")),
        "lanes_max": _lanes(_first(f"{path}/max_link_width")),
        "speed": _first(f"{path}/current_link_speed"),
        "speed_max": _first(f"{path}/max_link_speed"),
        "path": os.path.realpath(path).removeprefix(root),
        "rendering": sorted(map(os.path.basename, glob.glob(f"{path}/drm/[cr]*"))),
    }
