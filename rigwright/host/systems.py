"""The systems that a rig can run, and what their archives are called."""

from __future__ import annotations

import re

SUPPORTED = {
    ("debian", "12"),
    ("debian", "13"),
    ("ubuntu", "22.04"),
    ("ubuntu", "24.04"),
    ("ubuntu", "26.04"),
}
SYSTEMS = tuple(sorted(f"{distribution}-{release}" for distribution, release in SUPPORTED))
# What their archives call them (wiki.debian.org/DebianReleases, wiki.ubuntu.com/Releases).
CODENAMES = {
    "debian-12": "bookworm",
    "debian-13": "trixie",
    "ubuntu-22.04": "jammy",
    "ubuntu-24.04": "noble",
    "ubuntu-26.04": "resolute",
}
# The Windows Subsystem for Linux, where Windows drives the cards: systemd tells it by these words of the kernel's name
# (src/basic/virt.c).
WSL = re.compile(r"Microsoft|WSL")


def system_refusals(os_id: str, os_version: str, kernel: str) -> list[str]:
    """Why a system cannot become a rig, one sentence each; empty if it can."""
    found = []
    if (os_id, os_version) not in SUPPORTED:
        names = ", ".join(" ".join(pair) for pair in sorted(SUPPORTED))
        found.append(f"{os_id} {os_version}".rstrip() + f" is not supported: install one of {names}")
    if WSL.search(kernel):
        found.append(
            f"the kernel is {kernel}, the Windows Subsystem for Linux, where Windows controls driver, cards "
            "and boot: install Linux on the machine itself"
        )
    return found


KEYRING = "/usr/share/keyrings/{}-archive-keyring.gpg"  # of a distribution
COMPONENTS = {"debian": "main", "ubuntu": "main universe"}
