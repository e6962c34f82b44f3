"""Debian packages, described in Python and built with dpkg-deb."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

EPOCH = "1700000000"
"""Time of everything in a package: the same description gives the same bytes, whenever and wherever it is built."""


@dataclass(frozen=True)
class StandInDeb:
    """One binary package. Relations are written as in its control file, one a text."""

    name: str
    version: str
    source: str
    """Name of its source package, which apt's pins know as src:NAME."""
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    component: str = "main"
    """Of a distribution's archive; a flat one has none."""
    section: str = "misc"
    description: str = "stand-in"
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Path without the first slash -> content. Programs, below a bin or sbin, can be executed; below etc all are the
    administrator's."""
    links: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    """postinst, prerm and their like -> what stands below `set -e`."""
    triggers: str = ""

    @property
    def file_name(self) -> str:
        """Name of its file; an epoch is not part of that."""
        return f"{self.name}_{self.version.split(':')[-1]}_amd64.deb"

    def render_control(self) -> str:
        """Its fields, each with a newline behind it."""
        rows = [("Package", self.name), ("Source", self.source), ("Version", self.version), ("Architecture", "amd64")]
        rows += [("Maintainer", "Rigwright's lab <lab@rigwright.invalid>"), ("Section", self.section)]
        rows += [("Priority", "optional"), ("Installed-Size", str(1 + self._installed_bytes() // 1024))]
        for word in ("depends", "recommends", "conflicts", "breaks", "replaces", "provides"):
            rows.append((word.capitalize(), ", ".join(getattr(self, word))))
        rows.append(("Description", self.description))
        return "".join(f"{key}: {value}\n" for key, value in rows if value)

    def build_package(self, folder: Path) -> Path:
        """Write the package's file into a folder.

        Raises:
            RuntimeError: dpkg-deb fails; its words are the text.
        """
        target = folder / self.file_name
        with tempfile.TemporaryDirectory() as temporary:
            root = Path(temporary)
            root.chmod(0o755)
            self._write_tree(root)
            command = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", str(root), str(target)]
            environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"dpkg-deb of {self.name}: {done.stderr.strip()}")
        return target

    def _installed_bytes(self) -> int:
        return sum(len(content) for content in self.files.values())

    def _write_tree(self, root: Path) -> None:
        for name, content in self.files.items():
            program = "/bin/" in f"/{name}" or "/sbin/" in f"/{name}"
            write_file(root / name, content, 0o755 if program else 0o644)
        for name, to in self.links.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(to)
        write_file(root / "DEBIAN/control", self.render_control())
        for name, text in self.scripts.items():
            write_file(root / "DEBIAN" / name, f"#!/bin/sh\nset -e\n{text}", 0o755)
        if owned := [f"/{name}\n" for name in sorted(self.files) if name.startswith("etc/")]:
            write_file(root / "DEBIAN/conffiles", "".join(owned))
        if self.triggers:
            write_file(root / "DEBIAN/triggers", f"{self.triggers}\n")
        for folder, names, _ in os.walk(root):
            for name in names:
                Path(folder, name).chmod(0o755)


def write_file(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
