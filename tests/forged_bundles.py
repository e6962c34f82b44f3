"""A bundle in the hands of an enemy: a package that does more than its own, and an index that is right about it."""

import hashlib
import json
import lzma
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rigwright.supply import bundle
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import INDEX, BundleRow

TRACE = "/forged"
"""The file on a host on which the forged package was installed."""
PACKED = {".xz": (lzma.decompress, lzma.compress), "": (bytes, bytes)}


def forge_package(folder: Path, package: str, lists: bool = False) -> Path:
    """Put another package in the place of one, and write the index anew, as the maker of a bundle would.

    Args:
        folder: The bundle.
        package: The package's name.
        lists: Whether the lists of packages have it too; a foreign signature cannot sign those.

    Returns:
        The forged file.
    """
    (deb,) = folder.glob(f"packages/**/{package}_*.deb")
    before = hashlib.sha256(deb.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary, "tree")
        subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
        (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\ntouch {TRACE}\n")
        (tree / "DEBIAN/postinst").chmod(0o755)
        deb.unlink()
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, deb], check=True, capture_output=True)
    after, size = hashlib.sha256(deb.read_bytes()).hexdigest(), deb.stat().st_size
    for path in folder.glob("packages/**/Packages*") if lists else ():
        unpack, pack = PACKED[path.suffix]
        stanzas = unpack(path.read_bytes()).decode().split("\n\n")
        changed = [_render_stanza(one, after, size) if before in one else one for one in stanzas]
        if changed != stanzas:
            _replace_file(path, pack("\n\n".join(changed).encode()))
    rewrite_index(folder)
    return deb


def _render_stanza(stanza: str, sha256: str, size: int) -> str:
    stanza = re.sub(r"^SHA256: .*$", f"SHA256: {sha256}", stanza, flags=re.MULTILINE)
    stanza = re.sub(r"^Size: .*$", f"Size: {size}", stanza, flags=re.MULTILINE)
    return re.sub(r"^MD5sum: .*\n", "", stanza, flags=re.MULTILINE)


def sign_release(suite: Path, home: Path | None) -> None:
    """Have a suite's InRelease say what its lists are now.

    Args:
        suite: The folder.
        home: gpg's folder with a key to sign it with; None leaves the signature of what it said before.
    """
    path = suite / "InRelease"
    text = path.read_text()
    for one in suite.glob("*/binary-*/Packages*"):
        content = one.read_bytes()
        row = f" {hashlib.sha256(content).hexdigest()} {len(content)} {one.relative_to(suite)}"
        text = re.sub(
            rf"^ [0-9a-f]{{64}} +[0-9]+ {re.escape(str(one.relative_to(suite)))}$", row, text, flags=re.MULTILINE
        )
    if home:
        body = text.partition("\n\n")[2].partition("\n-----BEGIN PGP SIGNATURE-----")[0]
        gpg = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--clearsign"]
        text = subprocess.run(gpg, input=f"{body}\n", capture_output=True, text=True, check=True).stdout
    _replace_file(path, text.encode())


def rewrite_index(folder: Path) -> None:
    """Make a bundle's index right about the files that lie there."""
    index = json.loads((folder / INDEX).read_text())
    for row in index["files"]:
        content = (folder / row["path"]).read_bytes()
        row |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    write_index(folder, index)


def write_index(folder: Path, index: dict[str, Any]) -> None:
    """Write an index whose digest is right."""
    suites = [ArchiveSuite.model_validate(one | {"components": tuple(one["components"])}) for one in index["suites"]]
    rows = [BundleRow.model_validate(one) for one in index["files"]]
    _replace_file(folder / INDEX, bundle.render_index(index["made"], index["systems"], suites, rows).encode())


def _replace_file(path: Path, content: bytes) -> None:
    path.unlink()  # it may be another bundle's, too
    path.write_bytes(content)
