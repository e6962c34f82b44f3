"""A bundle in the hands of an enemy: a package that does more than its own, and an index that is right about it."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import subprocess
import tempfile
from pathlib import Path

from rigwright.supply import bundle
from rigwright.supply.archives import Suite
from rigwright.supply.bundle import INDEX, Row

TRACE = "/forged"
"""What exists on a host on which the forged package was installed."""
OPEN = {".xz": lzma.open, "": open}


def forge(folder: Path, package: str, lists: bool = False) -> Path:
    """Put another package in the place of one, and write the index anew, as who makes bundles would.

    Args:
        folder: The bundle.
        package: The package's name.
        lists: Whether the lists of packages say so too; of those, nobody else's signature can.

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
        with OPEN[path.suffix](path, "rt") as file:
            stanzas = file.read().split("\n\n")
        changed = [_described(one, after, size) if before in one else one for one in stanzas]
        if changed != stanzas:
            with OPEN[path.suffix](path, "wt") as file:
                file.write("\n\n".join(changed))
    reindex(folder)
    return deb


def _described(stanza: str, sha256: str, size: int) -> str:
    stanza = re.sub(r"^SHA256: .*$", f"SHA256: {sha256}", stanza, flags=re.MULTILINE)
    stanza = re.sub(r"^Size: .*$", f"Size: {size}", stanza, flags=re.MULTILINE)
    return re.sub(r"^MD5sum: .*\n", "", stanza, flags=re.MULTILINE)


def reindex(folder: Path) -> None:
    """Make a bundle's index right about the files that lie there."""
    index = json.loads((folder / INDEX).read_text())
    rows = []
    for row in index["files"]:
        content = (folder / row["path"]).read_bytes()
        rows.append(Row(path=row["path"], sha256=hashlib.sha256(content).hexdigest(), size=len(content)))
    suites = [Suite.model_validate(one | {"components": tuple(one["components"])}) for one in index["suites"]]
    (folder / INDEX).write_text(bundle.text(index["made"], index["systems"], suites, rows))
