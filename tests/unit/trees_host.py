"""A folder as a host has it: an engine, host tools, programs for weights and two generations, recorded by a deploy."""

import hashlib
import json
import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from roles.trees import render_tree_program
from roles.trees.host import reconcile
from roles.trees.host.package_manifests import compute_seal
from roles.trees.host.tree_records import TreesOnHost, find_pending


@dataclass
class TreesHost:
    """The folder, and what a deploy asks of it."""

    root: Path
    asked: dict[str, Any]

    @property
    def engine_tree(self) -> Path:
        """The engine's."""
        return self.root / "opt/engines/llama-1"

    @property
    def tools_tree(self) -> Path:
        """Host tools'."""
        return self.root / "opt/tools-1"

    @property
    def weights_tree(self) -> Path:
        """The programs'."""
        return self.root / "opt/weights/rigwright_weights"

    @property
    def earlier_generation(self) -> Path:
        """The earlier generation's."""
        return self.root / "etc/generations/1"

    @property
    def current_generation(self) -> Path:
        """The current generation's."""
        return self.root / "etc/generations/2"

    @property
    def ledger(self) -> Path:
        """The ledger that knows the records."""
        return self.root / "var/owned"

    def record_path(self, tree: Path) -> Path:
        """A tree's record."""
        return TreesOnHost(self.asked).record_path(tree)

    def pending_trees(self) -> list[tuple[str, str]]:
        """The pending work, and its trees."""
        return [(what, Path(tree).name) for what, tree, _ in find_pending(TreesOnHost(self.asked))]

    def run_settle(self) -> int:
        """Have it done; the exit status."""
        return reconcile.main([json.dumps(self.asked)])

    def run(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the program as a host gets it."""
        words = [sys.executable, "-I", "-S", "-B", "-c", render_tree_program(name), json.dumps(self.asked), *more]
        return subprocess.run(words, capture_output=True, text=True, check=False)


def write_generation(folder: Path, text: str) -> str:
    """Write one; returns its digest."""
    (folder / "units").mkdir(parents=True)
    (folder / "units/rigwright-chat.service").write_text(text)
    (folder / "ready").write_text("#!/bin/sh\n")
    (folder / "ready").chmod(0o755)
    (folder / "tools").symlink_to("/opt/tools-1")
    (folder / "proven").touch()
    (folder / "meta").write_text("0 2026-01-01T00:00:00Z\n")
    digest = generation_seal(folder)
    (folder / "meta").write_text(f"{digest} 2026-01-01T00:00:00Z\n")
    return digest


def generation_seal(folder: Path) -> str:
    """The seal of a generation as it is."""
    from roles.trees.host.tree_entry import content_digest, kind_letter, stat_fields, walk_tree

    found = {
        name: (*stat_fields(state), content_digest(folder / name, kind_letter(state)))
        for name, state in walk_tree(folder, ("proven",))
    }
    return compute_seal(found)


def make_trees_host(root: Path, monkeypatch: pytest.MonkeyPatch) -> TreesHost:
    """Make one. Only root gives files away: the caller has them."""
    if os.geteuid():
        monkeypatch.setattr(os, "chown", lambda *_, **__: None)
    made = TreesHost(root, {})
    binary = made.engine_tree / "bin"
    binary.mkdir(parents=True)
    (binary / "server").write_bytes(b"\x7fELF" + bytes(5000))
    (binary / "server").chmod(0o755)
    (binary / "liba.so.1").write_bytes(bytes(range(256)) * 40)
    (binary / "liba.so").symlink_to("liba.so.1")
    (made.engine_tree / "build.log").write_text("made\n")
    listed = "".join(f"{file_digest(binary / name)}  bin/{name}\n" for name in ("server", "liba.so.1"))
    (made.engine_tree / "files.sha256").write_text(listed)
    (made.engine_tree / "build.json").write_text('{"inputs": {}}\n')
    site = made.tools_tree / "lib/python3.13/site-packages"
    (site / "one-1.0.dist-info").mkdir(parents=True)
    (site / "one.py").write_text("x = 1\n")
    value = urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).decode().rstrip("=")
    (site / "one-1.0.dist-info/RECORD").write_text(f"one.py,sha256={value},6\none-1.0.dist-info/RECORD,,\n")
    (made.tools_tree / ".complete").touch()
    made.weights_tree.mkdir(parents=True)
    texts = {"rehash.py": b"import sys\n", "load.py": b"x = 1\n"}
    for name, text in texts.items():
        (made.weights_tree / name).write_bytes(text)
    write_generation(made.earlier_generation, "[Service]\n")
    wanted = write_generation(made.current_generation, "[Service]\nUser=x\n")
    (root / "etc/current").symlink_to("generations/2")
    (root / "var").mkdir()
    for path in [root, *root.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    made.asked |= {
        "software": f"{root}/opt",
        "engines": f"{root}/opt/engines",
        "generations": f"{root}/etc/generations",
        "records": f"{root}/var/trees",
        "ledger": str(made.ledger),
        "sealed": wanted,
        "texts": {str(made.weights_tree): {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}},
    }
    return made


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
