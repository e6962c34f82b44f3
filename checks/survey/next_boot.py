"""What the next boot of a host goes by."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class Initrd:
    """A kernel's initial file system."""

    release: str
    there: bool
    problem: str
    """Why it cannot be read to its end; empty where it can."""
    files: int
    lines: list[list[str]]
    """(file, line) for modprobe, about the cards."""
    differs: list[list[str]]
    """(file, how) of modules and scripts that are not the disk's."""


@dataclass(frozen=True)
class Grub:
    """What GRUB starts next."""

    chosen: str
    once: bool
    """Whether only at the next boot."""
    kernel: str
    words: list[str]
    waits: bool
    """Whether it waits for somebody to choose."""


@dataclass(frozen=True)
class SeparateMount:
    """A folder of ours that does not lie with the system."""

    root: str
    mounted: str
    type: str
    again: bool
    """Whether the next boot mounts it."""


@dataclass(frozen=True)
class NextBoot:
    """All of it."""

    initrds: list[Initrd]
    dracut: bool
    makes: bool
    """Whether update-initramfs is there."""
    grub: Grub | None
    words: list[list[str]]
    """(file, word) of what the boot loader's next configuration has on the kernel's command line."""
    mounts: list[SeparateMount]
    away: list[str]
    """Rows of fstab whose device is not there."""
    shutdown: str
    """What is scheduled, in systemd's words."""


BOOT: Section[NextBoot] = Section(
    "boot",
    NextBoot,
    lambda scene: {
        "roots": [scene.rig.roots.config, scene.rig.roots.software, scene.rig.roots.state, scene.rig.roots.models]
    },
    blind="the firmware and what it starts instead; options typed at the boot loader's prompt",
    start_order=17,
)
