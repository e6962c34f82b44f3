"""One throwaway host, deployed from a bundle, that the benches of a deployed host share. It needs root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import engine_cache, tiny_model
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import is_serving, run_deploy, wait_until, write_inventory

RELEASE = "debian-12"


@dataclass(frozen=True)
class BenchBox:
    """A host that serves, and its inventory."""

    host: LabHost
    inventory: Path


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchBox]:
    """A host whose engine comes from the kept ones; without one it is compiled, and kept."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "given").mkdir()
    tiny_model.write_model(folder / "given" / "tiny-rig.gguf")
    lab = ThrowawayLab(f"n{os.getpid() % 100_000}")
    lab.down()
    try:
        (host,) = lab.up([HostSpec("h1", RELEASE, engine_cache.cached_layers(RELEASE))])
        inventory = write_inventory(folder, lab, host)
        words = ["bundle", str(inventory), "--system", RELEASE, "--output", str(folder / "made")]
        command = [sys.executable, "-m", "cli", *words, "--from-dir", str(folder / "given")]
        subprocess.run(command, check=True, capture_output=True)
        inventory = write_inventory(folder, lab, host, bundle="made")
        run = run_deploy(inventory)
        if run.status:
            pytest.fail(f"the deploy failed: {run.said[-4000:]}")
        engine_cache.save_engines(host)
        wait_until(lambda: is_serving(host), "serving")
        yield BenchBox(host, inventory)
    finally:
        lab.down()
