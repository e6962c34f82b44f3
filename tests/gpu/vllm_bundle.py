"""vLLM for `./rig test gpu --vllm FOLDER`: its whole locked closure for cards, in a bundle beside catalogue and locks.

`.venv/bin/python -m tests.gpu.vllm_bundle FOLDER` makes it where there is a network: 4 GB of wheels, which this machine
keeps, and as much in FOLDER. The interpreter is one of this machine's, which tests.stand_ins.conda_python packs; the
model's answers are fixed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab import base_images
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock, render_lock
from rigwright.supply.lock_inputs import Input
from rigwright.toml import tomllib
from tests.gpu.gpu_bundle import CARD
from tests.gpu.gpu_machine import GATEWAY
from tests.hosts.vllm_box import INPUT, MODEL, weight_row
from tests.stand_ins import conda_python, vllm_cpu, vllm_cpu_cache, vllm_model
from tests.stand_ins.environment_source import (
    LAB_PACKAGES,
    PACKAGES,
    LabEnvironment,
    is_for_interpreter,
    package_row,
    write_declaration,
)
from tests.stand_ins.wheel_cache import CachedWheel, fetch_wheels

INVENTORY = """from rigwright.inventory import hosts

rigs = hosts({{{name!r}: {keys!r}}})
"""
PORT = 8021
ONE = {"chat": {"variant": "vllm/metal", "cards": [0], "port": PORT}}
TWO = {"chat": {"variant": "vllm/metal-two", "cards": [0, 1], "port": PORT}}
MODELS = {"models": {"tiny": {"instances": ["chat"]}}}
# the parts of NVLink's multicast that vLLM and its libraries use by themselves: a machine that shares its switch may
# not have it
QUIET = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
}
_VARIANT = """
[variants."{name}"]
engine = "vllm"
model = "tiny"
cards = {cards}
max_model_len = 2048
max_num_seqs = 64
gpu_memory_utilization = 0.2
reasoning_parser = "qwen3"
tool_call_parser = "hermes"
"""
_QUIET = "\n".join(f'{name} = "{value}"' for name, value in QUIET.items())
CATALOG = f"""
[engines.vllm]
kind = "vllm"
env = "vllm"

[inputs.{MODEL}]
kind = "weight"
version = "{INPUT.version}"
sources = ["{INPUT.sources[0]}"]
include = ["*"]

[models.tiny]
folder = "{MODEL}"
{_VARIANT.format(name="vllm/metal", cards=1)}
{_VARIANT.format(name="vllm/metal-two", cards=2)}
compilation_config = {{ pass_config = {{ fuse_allreduce_rms = false }} }}

[variants."vllm/metal-two".environment]
{_QUIET}
"""


def write_inventory(folder: Path, name: str, keys: Mapping[str, object], instances: Mapping[str, object]) -> Path:
    """An inventory of one host, beside catalogue and locks.

    Args:
        folder: Where those are.
        name: The rig's.
        keys: Its connection, cards and bundle.
        instances: Its instances.
    """
    path = folder / "rig.py"
    gateway = {**GATEWAY, **MODELS}
    # nothing of it is asked for: all comes from the bundle
    mirrors = {"shelf": ["http://127.0.0.1:9"], "lab": ["http://127.0.0.1:9"]}
    found: dict[str, Any] = {**keys, "instances": instances, "gateway": gateway, "mirrors": mirrors}
    if instances == TWO:
        found["allow"] = ["environment.NVSHMEM_DISABLE_NVLS"]
    path.write_text(INVENTORY.format(name=name, keys=found))
    return path


def _write_locks(folder: Path, interpreter: conda_python.Interpreter, files: Path) -> None:
    """Write catalogue and locks, and have all that they name in a folder, by its name."""
    made = conda_python.write_channel(vllm_cpu_cache.cached_channel(interpreter), interpreter)
    groups = Lock.load([ROOT / "locks"]).groups
    rows = [row for row in groups[vllm_cpu.GROUP] if is_for_interpreter(row, interpreter)]
    release = {"python": interpreter.version}
    packages = [
        row.model_copy(update={"group": PACKAGES, "marker": None, **(release if row.python else {})}) for row in rows
    ]
    write_declaration(
        folder,
        LabEnvironment("vllm", "vllm", ("vllm",), cuda=True),
        (*map(package_row, (made.python, made.note)), *packages),
    )
    shipped = Input.model_validate(tomllib.loads((ROOT / "catalog/vllm.toml").read_text())["inputs"][vllm_cpu.GROUP])
    with (folder / "catalog/lab.toml").open("a") as catalog:
        catalog.write(_render_input(shipped, interpreter))
    vllm_model.write_checkpoint(files)
    (folder / "catalog/vllm.toml").write_text(CATALOG)
    (folder / "locks/vllm.lock.toml").write_text(
        render_lock([*map(weight_row, sorted(files.iterdir()))], "catalog/vllm.toml")
    )
    needed = [*rows, *(row for group in LAB_PACKAGES for row in groups.get(group, ()))]
    for path in (made.python, made.note, *_cached_wheels(needed, interpreter)):
        link = files / path.name
        if not link.exists():
            os.link(path, link) if path.stat().st_dev == files.stat().st_dev else shutil.copy2(path, link)


def _cached_wheels(rows: list[Artefact], interpreter: conda_python.Interpreter) -> list[Path]:
    found = [CachedWheel(row.name, row.version, row.file, row.sha256, row.size) for row in rows]
    fetch_wheels(found, interpreter.series)
    return [one.cache_path for one in found]


def _render_input(shipped: Input, interpreter: conda_python.Interpreter) -> str:
    """The packages' input, with the patterns of the shipped one: files that need no code for a card of this box."""
    return (
        f'\n[inputs."{PACKAGES}"]\nkind = "wheel"\npython = "{interpreter.version}"\nas_of = "{shipped.as_of}"\n'
        f"requirements = {[*shipped.requirements]}\nfor_other_cards = {[*shipped.for_other_cards]}\n"
    )


def main() -> int:
    """Make it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.vllm_bundle", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write it; must not exist")
    parser.add_argument(
        "--release", default="debian-12", choices=sorted(base_images.RELEASES), help="the throwaway host's"
    )
    options = parser.parse_args()
    folder: Path = options.folder.absolute()
    if folder.exists():
        parser.error(f"{folder}: exists")
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        parser.error(f"{interpreter} is here alone, and vLLM is locked for CPython {conda_python.DEFAULT_SERIES}")
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as files:
        _write_locks(folder, interpreter, Path(files))
        keys = {
            "ssh_hostname": "192.0.2.1",
            "cards": [CARD],
            "driver": {"managed": False},
            "cuda_root": "/usr/local/cuda",
        }
        inventory = write_inventory(folder, "metal", keys, ONE)
        words = ["bundle", str(inventory), "--system", options.release, "--output", str(folder / "bundle")]
        done = subprocess.run([sys.executable, "-m", "cli", *words, "--from-dir", files], cwd=ROOT)
    inventory.unlink()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
