"""The systems that a rig can run: the one table of distribution releases."""

from __future__ import annotations

import re
from typing import NamedTuple


class SystemRelease(NamedTuple):
    """A supported release of a distribution."""

    codename: str
    """The archive's name for it (wiki.debian.org/DebianReleases, wiki.ubuntu.com/Releases)."""
    python: tuple[int, int]
    """The version of its `python3`, for which the lock has wheels."""


SYSTEM_RELEASES = {
    "debian-12": SystemRelease("bookworm", (3, 11)),
    "debian-13": SystemRelease("trixie", (3, 13)),
    "ubuntu-22.04": SystemRelease("jammy", (3, 10)),
    "ubuntu-24.04": SystemRelease("noble", (3, 12)),
    "ubuntu-26.04": SystemRelease("resolute", (3, 14)),
}
SYSTEMS = tuple(sorted(SYSTEM_RELEASES))
SUPPORTED = {(distribution, release) for distribution, _, release in (name.partition("-") for name in SYSTEMS)}
CODENAMES = {name: one.codename for name, one in SYSTEM_RELEASES.items()}
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
