"""Snapshot of a throwaway host: its files and its network return to a moment, whatever a change has done to them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import network
from lab.hosts import LabHost
from lab.throwaway_lab import list_labs


@dataclass(frozen=True)
class HostSnapshot:
    """Copies of all that a host has written, and of its operator's folder."""

    host: LabHost
    operator_folder: Path
    """The folder of the inventory: it has the accepted entries of the host."""

    @property
    def copies(self) -> dict[Path, Path]:
        """Folder -> its copy."""
        names = {self.host.upper_folder: "snapshot", self.operator_folder: "operator"}
        return {folder: self.host.folder / name for folder, name in names.items()}

    def take(self) -> None:
        """Copy what the host has now, which restarts it.

        Raises:
            TimeoutError, RuntimeError: the host does not come back.
        """
        mounted = self._stop()
        for folder, copy in self.copies.items():
            _replace(copy, folder)
        self._start(mounted)

    def restore(self) -> None:
        """Return to what the host had, which restarts it.

        Raises:
            TimeoutError, RuntimeError: the host does not come back.
        """
        mounted = self._stop()
        for folder, copy in self.copies.items():
            _replace(folder, copy)
        self._start(mounted)

    def _stop(self) -> str:
        """End the host; the options of its overlay."""
        root = str(self.host.folder / "root")
        options = network.run_program("findmnt", "--noheadings", "--output", "FS-OPTIONS", root).strip()
        self.host.kill()
        network.run_program("umount", root)
        network.remove_namespace(self.host.namespace)
        return options

    def _start(self, options: str) -> None:
        folder = self.host.folder
        shutil.rmtree(folder / "work")
        (folder / "work").mkdir()
        network.run_program("mount", "-t", "overlay", self.host.namespace, "-o", options, str(folder / "root"))
        lab = next(lab for lab in list_labs() if any(host.folder == folder for host in lab.hosts))
        address = f"{self.host.address}/{lab.subnet.prefixlen}"
        network.create_namespace(lab.bridge, self.host.namespace, address, lab.gateway)
        self.host.start()
        self.host.wait()


def _replace(target: Path, source: Path) -> None:
    """Make a folder a copy of another one: removed files of an overlay are devices, which only cp(1) copies."""
    shutil.rmtree(target, ignore_errors=True)
    network.run_program("cp", "--archive", "--reflink=auto", str(source), str(target))
