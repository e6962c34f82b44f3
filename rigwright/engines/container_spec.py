"""What an instance runs in that is served from an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class BindMount:
    """A file or folder of the host's that a container sees."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class ContainerSpec:
    """What an instance runs in that is served from an image: root starts it in the unit's own control group."""

    name: str
    image: str
    """SHA-256 of the image's configuration, by which podman knows it."""
    store: str
    """The folder of the image's store."""
    reference: str
    """`REGISTRY/REPOSITORY@DIGEST`, for people and for other programs."""
    command: tuple[str, ...]
    """What it starts, in place of what the image says."""
    environment: Mapping[str, str]
    """Beside what the image says."""
    mounts: tuple[BindMount, ...]
    devices: tuple[str, ...]
    """CDI's names of its cards."""
    spec: str
    """The file that says what these names are of; empty without cards."""
    shared_memory: str
    """The most that lies in its /dev/shm, as systemd reads it."""
    folder: str
    """The host's folder for it, a file system of its own while it runs."""
    program: str
    """What makes that folder, and takes it away."""
    by: Literal["podman", "crun"]
    """What the unit starts it by."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that write, before that, what it is started from; none where podman does."""
