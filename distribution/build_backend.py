"""Build backend (PEP 517): the wheel and the source archive of a commit, byte for byte the same on every machine.

The wheel has one package, `rigwright_command`. Its folder `tree` has the product's files as a clone has them, and its
`main` puts that folder on `sys.path`: generic names such as `cli` or `checks` stay free in site-packages. The
requirements are the pinned versions of locks/controller.txt. Their hashes are in the same file, which the wheel has,
too. Editable installs are setuptools' own.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "rigwright_command"
LAUNCHER = "distribution/launcher.py"
PRODUCT = (
    *("__main__.py", "deploy.py", "bench", "catalog", "checks", "cli", "inventory", "lab", "patches", "rigwright"),
    *("roles", "templates", "locks"),
)
"""Files and folders of a clone that the command needs."""
BASE_LOCK, LAB_LOCK = "locks/controller.txt", "locks/controller-lab.txt"
TEST_LOCKS = re.compile(r"locks/(?!controller(?:-lab)?\.txt$)[^/]+\.(?:txt|in)")
"""Locks of environments that only tests and benchmarks in a clone use."""
SOURCE = (*PRODUCT, "distribution", "pyproject.toml", "rig", "README.md")
"""Files and folders of the source archive: all that a wheel is built from."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of each file in a wheel: the first that the format has."""
PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+==[^\s;\\]+)(?: ; ([^\\\n]+?))? *\\?$")


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Write the wheel; returns its file name."""
    project = _load_project()
    info = f"{project['name']}-{project['version']}.dist-info"
    files = {f"{PACKAGE}/__init__.py": ((ROOT / LAUNCHER).read_bytes(), False)}
    for path, executable in product_files(ROOT):
        files[f"{PACKAGE}/tree/{path}"] = ((ROOT / path).read_bytes(), executable)
    files[f"{info}/METADATA"] = (render_metadata(project).encode(), False)
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: rigwright\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        False,
    )
    files[f"{info}/entry_points.txt"] = (f"[console_scripts]\nrigwright = {PACKAGE}:main\n".encode(), False)
    files[f"{info}/RECORD"] = (_render_record(files, f"{info}/RECORD").encode(), False)
    name = f"{project['name']}-{project['version']}-py3-none-any.whl"
    # stored, not compressed: compressors differ between machines
    with zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_STORED) as wheel:
        for path, (content, executable) in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.create_system, entry.external_attr = 3, (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, content)
    return name


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Write the source archive, from which the same wheel is built; returns its file name."""
    project = _load_project()
    top = f"{project['name']}-{project['version']}"
    files = {f"{top}/PKG-INFO": (render_metadata(project).encode(), False)}
    for path, executable in list_files(ROOT, SOURCE):
        files[f"{top}/{path}"] = ((ROOT / path).read_bytes(), executable)
    with (
        open(Path(sdist_directory, f"{top}.tar.gz"), "wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, (content, executable) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return f"{top}.tar.gz"


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Packages that an editable install needs besides setuptools: none."""
    return []


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Write setuptools' editable wheel: a clone stays the place that the command runs from."""
    from setuptools import build_meta  # type: ignore[import-untyped]

    return str(build_meta.build_editable(wheel_directory, config_settings, metadata_directory))


def product_files(root: Path) -> Iterator[tuple[str, bool]]:
    """Path and executable bit of each file of the product, sorted by path."""
    return ((path, executable) for path, executable in list_files(root, PRODUCT) if not TEST_LOCKS.fullmatch(path))


def list_files(root: Path, tops: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Path and executable bit of each file below some paths, sorted by path: git's, or an unpacked archive's."""
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "ls-files", "-z", "--stage", "--", *tops]
        listed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
        rows = (row.split("\t", 1) for row in listed.split("\0") if row)
        found = {path: mode.startswith("100755") for mode, path in rows if (root / path).is_file()}
    else:
        paths = (path for top in tops for path in ((root / top).rglob("*") if (root / top).is_dir() else [root / top]))
        found = {
            path.relative_to(root).as_posix(): bool(path.stat().st_mode & 0o111)
            for path in paths
            if path.is_file() and "__pycache__" not in path.parts
        }
    yield from sorted(found.items())


def pinned_requirements(root: Path) -> Iterator[str]:
    """The requirements of the wheel: the locked versions, and of the extra `lab` those that it adds."""
    base = _parse_pins((root / BASE_LOCK).read_text())
    for name, marker in base.items():
        yield f"{name}; {marker}" if marker else name
    for name, marker in _parse_pins((root / LAB_LOCK).read_text()).items():
        if name not in base:
            yield f"{name}; ({marker}) and extra == 'lab'" if marker else f"{name}; extra == 'lab'"


def render_metadata(project: Mapping[str, Any]) -> str:
    """The core metadata, version 2.1."""
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {one}" for one in pinned_requirements(ROOT)),
        "Provides-Extra: lab",
    ]
    return "\n".join(lines) + "\n"


def _load_project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def _parse_pins(text: str) -> dict[str, str]:
    """Pin -> its marker, of a lock that uv has written."""
    return {found[1]: found[2] or "" for found in PIN.finditer(text)}


def _render_record(files: Mapping[str, tuple[bytes, bool]], record: str) -> str:
    lines = []
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{record},,"]) + "\n"
