"""A disk of a throwaway host: an ext4 file system in an image, whose bytes can be changed past the file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import network
from lab.hosts import LabHost

IMAGE_BYTES = 64 << 20
BLOCK = 4096  # bytes


@dataclass(frozen=True)
class RawDisk:
    """The image, while a host has it mounted."""

    image: Path

    def write_past_file_system(self, name: str, old: bytes, new: bytes) -> None:
        """Replace bytes in the first block of a file, which keeps its inode, size and times.

        Args:
            name: The file's name in the top folder of the disk.
            old: The bytes; they are there once or several times, and the first ones are replaced.
            new: As many bytes.
        """
        assert len(old) == len(new)
        os.sync()
        block = int(network.run_program("debugfs", "-R", f"blocks /{name}", str(self.image)).split()[0])
        with self.image.open("r+b") as file:
            file.seek(block * BLOCK)
            place = file.read(BLOCK).index(old)
            file.seek(block * BLOCK + place)
            file.write(new)


@contextmanager
def attached_disk(host: LabHost, path: str) -> Iterator[RawDisk]:
    """Mount a disk at a folder of a host's HostSpec.disks, which restarts the host; at the end the host is stopped."""
    image, place = host.folder / "disk.img", host.folder / "disks" / path.strip("/").replace("/", "-")
    host.kill()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    network.run_program("mkfs.ext4", "-q", "-F", "-b", str(BLOCK), str(image))
    network.run_program("mount", "-o", "loop", str(image), str(place))
    try:
        host.start()
        host.wait()
        yield RawDisk(image)
    finally:
        host.kill()
        network.run_program("umount", str(place))
