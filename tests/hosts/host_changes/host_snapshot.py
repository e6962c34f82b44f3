"""Snapshot of a throwaway host: its files and its network return to a moment, whatever a change has done to them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import base_images, network
from lab.hosts import LabHost
from lab.throwaway_lab import list_labs


@dataclass(frozen=True)
class HostSnapshot:
    """All that a host had written, as layers below what it has written since, with a copy of its operator's folder."""

    host: LabHost
    operator_folder: Path
    """The folder of the inventory: it has the accepted entries of the host."""

    @property
    def layers(self) -> list[Path]:
        """The layers, topmost first."""
        return sorted(self.host.folder.glob("snapshot-*"), reverse=True)

    @property
    def operator_copy(self) -> Path:
        """The copy of the operator's folder."""
        return self.host.folder / "operator"

    def take(self) -> None:
        """Keep what the host has now, which restarts it.

        Raises:
            TimeoutError, RuntimeError: the host does not come back.
        """
        self._stop()
        self.host.upper_folder.rename(self.host.folder / f"snapshot-{len(self.layers) + 1:03}")
        shutil.rmtree(self.operator_copy, ignore_errors=True)
        shutil.copytree(self.operator_folder, self.operator_copy)
        self._start()

    def restore(self) -> None:
        """Return to what the host had, which restarts it.

        Raises:
            TimeoutError, RuntimeError: the host does not come back.
        """
        self._stop()
        shutil.rmtree(self.operator_folder)
        shutil.copytree(self.operator_copy, self.operator_folder)
        self._start()

    def _stop(self) -> None:
        self.host.kill()
        network.run_program("umount", str(self.host.folder / "root"))
        network.remove_namespace(self.host.namespace)

    def _start(self) -> None:
        folder, upper = self.host.folder, self.host.upper_folder
        for place in (upper, folder / "work"):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        # an overlay shows the mode of the uppermost root folder
        shutil.copystat(self.layers[0], upper)
        base = base_images.build_base(base_images.RELEASES[self.host.spec.release])
        lower = ":".join([*map(str, self.layers), *self.host.spec.layers, str(base)])
        options = f"lowerdir={lower},upperdir={upper},workdir={folder / 'work'}"
        network.run_program("mount", "-t", "overlay", self.host.namespace, "-o", options, str(folder / "root"))
        lab = next(lab for lab in list_labs() if any(host.folder == folder for host in lab.hosts))
        address = f"{self.host.address}/{lab.subnet.prefixlen}"
        network.create_namespace(lab.bridge, self.host.namespace, address, lab.gateway)
        self.host.start()
        self.host.wait()
