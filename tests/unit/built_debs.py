"""Small packages, built by the real tool; each once, however many archives hold it."""

import tempfile
from functools import cache
from pathlib import Path

from tests.unit import short_programs


@cache
def build_deb(control: str) -> bytes:
    """The package with this control file, and nothing else in it."""
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "root", Path(folder) / "one.deb"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(control)
        short_programs.run_program(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(file)], check=True
        )
        return file.read_bytes()


@cache
def read_control(deb: bytes) -> str:
    """The control file of a package, as the real tool reads it."""
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(deb)
        file.flush()
        return short_programs.run_program(["dpkg-deb", "--field", file.name], check=True).stdout
