"""The cards of a throwaway host, and ways to break them, its kernel and its modules.

The cards of a host are files in it (nvidia/inside/kernel says which); the stand-ins for the kernel and nvidia-smi
read them. A test that wants something else writes into those files and, where it matters to the bus, reboots.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from lab.hosts import LabHost
from tests.stand_ins.nvidia.card_models import CARDS

BOOT_KERNEL = Path("var/lib/lab/boot-kernel")
KERNEL = "/usr/local/lib/lab/kernel"


def change_card(host: LabHost, address: str, **values: object) -> None:
    """Say something else of a card, such as lanes=8, numa_node=1, cpus="4-7" or flavours="proprietary".

    nvidia-smi sees it at once, the bus and the module with the next boot.
    """
    lines = "".join(f"{key}={value}\n" for key, value in values.items())
    host.run(f"printf %s {shlex.quote(lines)} >> /{CARDS}/{address}")


def narrow_link(host: LabHost, address: str, lanes: int) -> None:
    """Train a card's link with fewer lanes, now and with each boot."""
    change_card(host, address, lanes=lanes)
    host.run(f"echo {lanes} > /sys/bus/pci/devices/{address}/current_link_width")


def remove_from_bus(host: LabHost, address: str) -> None:
    """Lose a card: the module has it no more, the kernel says so, and after the next boot it is not on the bus."""
    host.run(f"{KERNEL} fall {address}")
    log_kernel_line(host, f"NVRM: Xid (PCI:{address[:-2]}): 79, pid=1, name=python3, GPU has fallen off the bus.")


def return_at_boot(host: LabHost, address: str) -> None:
    """Let a card that fell off the bus be there with the next boot, as after a power cycle."""
    host.run(f"sed -i '/^away=/d' /{CARDS}/{address}")


def log_kernel_line(host: LabHost, line: str) -> None:
    """Put a line into the journal as the kernel's own.

    Raises:
        RuntimeError: it does not get there.
    """
    host.run(f"{KERNEL} log {shlex.quote(line)}")


def boot_with(host: LabHost, kernel: str | None) -> None:
    """Let each boot from the next one on be with this kernel; None for the newest, as a boot loader chooses."""
    host.run(f"rm -f /{BOOT_KERNEL}" if kernel is None else f"echo {shlex.quote(kernel)} > /{BOOT_KERNEL}")


def load_version(host: LabHost, version: str) -> None:
    """Have a module loaded of another version than the libraries': the state after an upgrade without a reboot."""
    host.run(
        f"for module in /sys/module/nvidia*; do echo {version} > $module/version; done; "
        f"sed -i -E 's/  [0-9.]+  Release/  {version}  Release/' /proc/driver/nvidia/version"
    )


def bind_nouveau(host: LabHost) -> None:
    """Load nouveau, from the initramfs as packages put it there, with the next boot and each one after it."""
    host.run(
        "grep -rlE '^(blacklist|alias|install|options) +nouveau' /etc/modprobe.d /usr/lib/modprobe.d | xargs -r rm"
    )
    host.run("update-initramfs -u -k all")
