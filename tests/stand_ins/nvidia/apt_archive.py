"""Signed apt archives in a folder, as NVIDIA and distributions lay them out, to be served by the lab's shelf.

An archive is written whole: packages that are not given are gone. The same packages have the same bytes each
time, so that what was locked from one stays right when a newer version comes beside it.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.stand_ins.nvidia.debian_packages import StandInDeb, write_file
from tests.stand_ins.nvidia.signing_keys import SigningKey

CORES = 2


@dataclass(frozen=True)
class FlatLayout:
    """NVIDIA's layout, which a source names as `Suites: /`: everything lies in one folder."""

    key_file: str
    """Name of the public key beside the packages."""
    origin: str = "NVIDIA"
    label: str = "NVIDIA CUDA"


@dataclass(frozen=True)
class SuiteLayout:
    """A distribution's layout. Its components are those of the packages, and `components`."""

    suite: str
    codename: str
    version: str
    origin: str = "Ubuntu"
    label: str = "Ubuntu"
    components: tuple[str, ...] = ("main",)


def write_archive(folder: Path, debs: Sequence[StandInDeb], key: SigningKey, layout: FlatLayout | SuiteLayout) -> None:
    """Write an archive in place of what is in the folder; of a suite, only that suite and the pool are replaced.

    Raises:
        RuntimeError: dpkg-deb or gpg fails.
        ValueError: two packages are one and the same.
    """
    if len({deb.file_name for deb in debs}) != len(debs):
        raise ValueError("a package is named twice in one version")
    if isinstance(layout, FlatLayout):
        _write_flat(folder, debs, key, layout)
    else:
        _write_suite(folder, debs, key, layout)


def _write_flat(folder: Path, debs: Sequence[StandInDeb], key: SigningKey, layout: FlatLayout) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    stanzas = _build_packages(folder, debs, ".")
    for name, content in _compress_index(stanzas).items():
        write_file(folder / name, content)
    write_file(folder / layout.key_file, key.public)
    _sign_release(folder, [("Origin", layout.origin), ("Label", layout.label), ("Architectures", "amd64")], key)


def _write_suite(folder: Path, debs: Sequence[StandInDeb], key: SigningKey, layout: SuiteLayout) -> None:
    dists = folder / "dists" / layout.suite
    shutil.rmtree(dists, ignore_errors=True)
    components = list(dict.fromkeys([*layout.components, *(deb.component for deb in debs)]))
    for component in components:
        pool = f"pool/{layout.suite}/{component}"
        shutil.rmtree(folder / pool, ignore_errors=True)
        stanzas = _build_packages(folder / pool, [deb for deb in debs if deb.component == component], pool)
        for name, content in _compress_index(stanzas).items():
            write_file(dists / component / "binary-amd64" / name, content)
    fields = [("Origin", layout.origin), ("Label", layout.label), ("Suite", layout.suite)]
    fields += [("Version", layout.version), ("Codename", layout.codename), ("Architectures", "amd64")]
    _sign_release(dists, [*fields, ("Components", " ".join(components))], key)


def _build_packages(folder: Path, debs: Sequence[StandInDeb], place: str) -> str:
    """Build the packages, and return the text that lists them."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(deb: StandInDeb) -> str:
        content = deb.build_package(folder).read_bytes()
        sums = f"Size: {len(content)}\nMD5sum: {hashlib.md5(content).hexdigest()}\n"
        sums += f"SHA1: {hashlib.sha1(content).hexdigest()}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        return f"{deb.render_control()}Filename: {place}/{deb.file_name}\n{sums}"

    with ThreadPoolExecutor(CORES) as pool:
        return "\n".join(pool.map(one, debs))


def _compress_index(stanzas: str) -> dict[str, bytes]:
    content = stanzas.encode()
    return {"Packages": content, "Packages.gz": gzip.compress(content, mtime=0)}


def _sign_release(folder: Path, fields: Iterable[tuple[str, str]], key: SigningKey) -> None:
    names = sorted(path for path in folder.rglob("Packages*"))
    rows = [*fields, ("Date", time.strftime("%a, %d %b %Y %H:%M:%S UTC", time.gmtime()))]
    text = "".join(f"{name}: {value}\n" for name, value in rows) + "SHA256:\n"
    for path in names:
        content = path.read_bytes()
        text += f" {hashlib.sha256(content).hexdigest()} {len(content):16d} {path.relative_to(folder)}\n"
    write_file(folder / "Release", text)
    write_file(folder / "InRelease", key.sign_inline(text))
    write_file(folder / "Release.gpg", key.sign_detached(text))
