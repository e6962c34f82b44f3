"""The container of an instance that is served from an image."""

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
    """The container of an instance that is served from an image: root starts it in the unit's own control group."""

    name: str
    image: str
    """SHA-256 of the image's configuration, by which podman knows it."""
    store: str
    """The folder of the image's store."""
    reference: str
    """`REGISTRY/REPOSITORY@DIGEST`, for people and for other programs."""
    command: tuple[str, ...]
    """The command that it starts, in place of the image's."""
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
    """The program that makes that folder, and takes it away."""
    by: Literal["podman", "crun"]
    """The program by which the unit starts it."""
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that write, before that, what it is started from; none where podman does."""
