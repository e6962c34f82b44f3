"""Small packages, built by the real tool; each once, however many archives hold it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.unit import programs


@cache
def built(control: str) -> bytes:
    """The package with this control file, and nothing else in it."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "root", Path(folder) / "one.deb"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(control)
        programs.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(file)], check=True)
        return file.read_bytes()


@cache
def control(deb: bytes) -> str:
    """The control file of a package, as the real tool reads it."""
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(deb)
        file.flush()
        return programs.run(["dpkg-deb", "--field", file.name], check=True).stdout
