"""One throwaway host, deployed from a bundle, that the benches of a deployed host share. It needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import kept, tiny_model
from lab.hosts import Host, HostSpec
from lab.labs import Lab
from tests.hosts.support import deploy, served, until, write_inventory

RELEASE = "debian-12"


@dataclass(frozen=True)
class Box:
    """A host that serves, and its inventory."""

    host: Host
    inventory: Path


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A host whose engine comes from the kept ones; without one it is compiled, and kept."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "given").mkdir()
    tiny_model.write(folder / "given" / "tiny-rig.gguf")
    lab = Lab(f"n{os.getpid() % 100_000}")
    lab.down()
    try:
        (host,) = lab.up([HostSpec("h1", RELEASE, kept.layers(RELEASE))])
        inventory = write_inventory(folder, lab, host)
        words = ["bundle", str(inventory), "--system", RELEASE, "--output", str(folder / "made")]
        command = [sys.executable, "-m", "cli", *words, "--from-dir", str(folder / "given")]
        subprocess.run(command, check=True, capture_output=True)
        inventory = write_inventory(folder, lab, host, bundle="made")
        run = deploy(inventory)
        if run.status:
            pytest.fail(f"the deploy failed: {run.said[-4000:]}")
        kept.keep(host)
        until(lambda: served(host), "serving")
        yield Box(host, inventory)
    finally:
        lab.down()
