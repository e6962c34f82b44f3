"""Wheels kept on this machine, each fetched once by its hash, through pip from wherever pip has packages."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

CACHE = Path("/var/cache/rigwright/wheels")
# the tags of a host of the C library 2.36, newest first: Debian 12's (PEP 600 and the older names for some of them)
PLATFORMS = (
    *(f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)),
    *("manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"),
)


@dataclass(frozen=True)
class CachedWheel:
    """One wheel that a lock names."""

    project: str
    version: str
    file: str
    sha256: str
    size: int
    """Bytes."""

    @property
    def cache_path(self) -> Path:
        """Where it is kept."""
        return CACHE / self.sha256[:16] / self.file

    @property
    def project_name(self) -> str:
        """Its project as an index spells it."""
        return canonicalize_name(self.project)

    @property
    def is_cached(self) -> bool:
        """Whether it is there; its bytes were compared when it came."""
        return self.cache_path.is_file() and self.cache_path.stat().st_size == self.size


def fetch_wheels(wheels: Iterable[CachedWheel], python: str) -> None:
    """Fetch what is not kept yet.

    Args:
        wheels: Which.
        python: The version that they are for, such as 3.10: this program's own may be another one.

    Raises:
        subprocess.CalledProcessError: pip does not find one, or it is another file under that name.
        ValueError: another wheel came than the named one.
    """
    lacking = [wheel for wheel in wheels if not wheel.is_cached]
    if not lacking:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    abi = f"cp{python.replace('.', '')}"
    suited = [*("--python-version", python), *("--implementation", "cp")]
    suited += [word for name in (abi, "abi3", "none") for word in ("--abi", name)]
    suited += [word for name in PLATFORMS for word in ("--platform", name)]
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        named = Path(folder, "requirements.txt")
        named.write_text("".join(f"{one.project}=={one.version} --hash=sha256:{one.sha256}\n" for one in lacking))
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-cache-dir", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "--only-binary", ":all:", *suited, "-r", named, "-d", folder], check=True)
        for wheel in lacking:
            _store_wheel(Path(folder, wheel.file), wheel)


def _store_wheel(found: Path, wheel: CachedWheel) -> None:
    digest = hashlib.sha256()
    with found.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    if (digest.hexdigest(), found.stat().st_size) != (wheel.sha256, wheel.size):
        raise ValueError(f"{found.name} is not the one that the lock names")
    wheel.cache_path.parent.mkdir(exist_ok=True)
    shutil.move(found, wheel.cache_path)
