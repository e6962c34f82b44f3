"""The runtime by which an instance's unit starts its container: two implementations of one interface."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ContainerRuntime = Literal["podman", "crun"]
# Releases with an older podman than 5.1, which is the first to read CDI 0.7, as the container toolkit writes it
# (packages.debian.org, packages.ubuntu.com).
OLDER_PODMAN = {"debian-12": "4.3.1", "ubuntu-22.04": "3.4.4", "ubuntu-24.04": "4.9.3"}
CALLS, OWNER = "seccomp.json", "owner"
"""In a container's folder: the system calls that it may make, and the numbers of its user (container.sh)."""
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 # a container's


@dataclass(frozen=True)
class ContainerStart:
    """How a unit starts a container and leaves it to systemd, in the unit's own control group."""

    words: tuple[str, ...]
    """The command."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Its variables."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """The files that it, or the program before it, reads and runs: name -> text."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands before it."""


def select_runtime(system: str) -> ContainerRuntime:
    """The runtime that starts containers on a release, such as debian-12; podman on an unknown one."""
    return "crun" if system in OLDER_PODMAN else "podman"


def content_named(name: str, ending: str, text: str) -> str:
    """A file's name that no other text has."""
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{ending}"
