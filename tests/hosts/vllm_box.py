"""An operator's folder with the real vLLM for the CPU: its environment, a model that is a folder, and variants of both.

The environment is put together once, by a deploy: hosts that boot from `Ground.layers` have it.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.supply.lock import Artefact, render_lock
from rigwright.supply.lock_inputs import Input
from tests.hosts.host_layers import exclusive_layer
from tests.hosts.support import PORT, PyinfraRun, run_deploy, write_inventory
from tests.stand_ins import conda_python, vllm_cpu, vllm_cpu_cache, vllm_model
from tests.stand_ins.environment_source import EnvironmentSource, write_declaration

MODEL = vllm_model.NAME
INPUT = Input(kind="weight", version="1", sources=(f"shelf:{MODEL}",), include=("*",))
POSITIONS = 32768
"""Of the model, one a byte: returns of tools are long."""
INSTANCES = {"chat": {"variant": "vllm/tiny", "port": PORT}}
TWO = {"chat": {"variant": "vllm/tiny-2", "port": PORT}}
"""The same model over two processes."""
# By itself the KV cache takes nine tenths of the machine, what torch compiles half a minute, and bfloat16 code that is
# made at run time.
_VARIANT = """
[variants."vllm/tiny{suffix}"]
engine = "vllm"
model = "tiny"
cards = 0
tensor_parallel_size = {size}
max_model_len = {positions}
max_num_seqs = 4
dtype = "float32"
gpu_memory_utilization = 0.06
reasoning_parser = "qwen3"
tool_call_parser = "hermes"
ready_timeout = 300

[variants."vllm/tiny{suffix}".environment]
OMP_NUM_THREADS = "1"
TORCHDYNAMO_DISABLE = "1"
VLLM_CPU_OMP_THREADS_BIND = "nobind"

[variants."vllm/tiny{suffix}".flags]
enforce-eager = true
"""
CATALOG = f"""
[engines.vllm]
kind = "vllm"
env = "{vllm_cpu.ENVIRONMENT.name}"

[inputs.{MODEL}]
kind = "weight"
version = "{INPUT.version}"
sources = ["{INPUT.sources[0]}"]
include = ["*"]

[models.tiny]
folder = "{MODEL}"
""" + "".join(_VARIANT.format(suffix=suffix, size=size, positions=POSITIONS) for suffix, size in (("", 1), ("-2", 2)))


@dataclass(frozen=True)
class VllmServers:
    """The sources of hosts, and their files."""

    lab: ThrowawayLab
    source: EnvironmentSource
    packages: tuple[Artefact, ...]
    weights: tuple[Artefact, ...]

    @property
    def environment_rows(self) -> tuple[Artefact, ...]:
        """All that the environment is made of."""
        return (*self.source.python, *self.packages)

    @property
    def host_layers(self) -> tuple[str, ...]:
        """The layers of a host: the environment, where one was kept."""
        layer = vllm_cpu_cache.cache_path(self.environment_rows)
        return (str(layer),) if layer.exists() else ()

    def save_environment(self, host: LabHost) -> None:
        """Keep the environment of a host that has it whole."""
        vllm_cpu_cache.save_environment(
            host, vllm_cpu_cache.cache_path(self.environment_rows), vllm_cpu.ENVIRONMENT.name
        )


@contextmanager
def serve_vllm(lab: ThrowawayLab) -> Iterator[VllmServers]:
    """Have packages and model, and serve both while the block runs; of a lab that is up.

    A machine without the Python that packages are locked for skips.
    """
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        pytest.skip(f"{interpreter} is here alone, and vLLM is locked for CPython {conda_python.DEFAULT_SERIES}")
    folder = lab.shelf_folder / MODEL
    vllm_model.write_checkpoint(folder, vllm_model.QwenSize(max_position_embeddings=POSITIONS))
    weights = tuple(weight_row(path) for path in sorted(folder.iterdir()))
    with EnvironmentSource(lab.gateway, vllm_cpu_cache.cached_channel(interpreter), interpreter) as source:
        yield VllmServers(lab, source, source.environment_rows(vllm_cpu.environment_rows()), weights)


def weight_row(path: Path) -> Artefact:
    content = path.read_bytes()
    return Artefact.model_validate(
        {
            **{"kind": "weight", "name": MODEL, "group": MODEL, "version": INPUT.version, "file": path.name},
            **{"selection": INPUT.selection, "sources": INPUT.sources_of(path.name), "size": len(content)},
            "sha256": hashlib.sha256(content).hexdigest(),
            "text": content.decode() if path.name == "config.json" else None,
        }
    )


def write_vllm_inventory(
    folder: Path,
    host: LabHost,
    made: VllmServers,
    catalog: str = CATALOG,
    *,
    patches: tuple[str, ...] = (),
    plugins: tuple[str, ...] = (),
    **rig: Any,
) -> Path:
    """An inventory of one host that serves the model, and catalogue and lock beside it.

    Args:
        folder: Where.
        host: The host.
        made: Its sources.
        catalog: Engine, model and variants.
        patches: Names of those that the environment carries.
        plugins: Names of those that are in it.
        rig: Keys of the rig.
    """
    mirrors = {"shelf": [made.lab.shelf_url], **made.source.inventory_mirrors}
    inventory = write_inventory(folder, made.lab, host, **{"instances": INSTANCES, "mirrors": mirrors, **rig})
    write_declaration(folder, replace(vllm_cpu.ENVIRONMENT, patches=patches, plugins=plugins), made.environment_rows)
    (folder / "catalog" / "vllm.toml").write_text(catalog)
    (folder / "locks" / "vllm.lock.toml").write_text(render_lock(made.weights, "catalog/vllm.toml"))
    return inventory


def deploy_and_save(inventory: Path, host: LabHost, made: VllmServers) -> PyinfraRun:
    """Deploy, and keep the environment where none was."""
    run = run_deploy(inventory)
    assert run.status == 0, run.said[-4000:]
    made.save_environment(host)
    return run


def converged_layers(
    layers: Path, release: str, made: VllmServers, folder: Path, below: tuple[str, ...] = (), **rig: Any
) -> tuple[str, ...]:
    """The layers of a serving host: a deploy's files, over the environment.

    Args:
        layers: Where layers go (tests/hosts/conftest.py).
        release: Of Debian's.
        made: The host's sources.
        folder: For the inventory.
        below: The earlier state, as a layer.
        rig: Keys of the rig.
    """
    with exclusive_layer(layers, f"{release}-vllm") as layer:
        if not layer.exists():
            under = (*made.host_layers, *below)
            (host,) = made.lab.up([HostSpec(f"v{os.getpid()}", release, under)])
            deploy_and_save(write_vllm_inventory(folder, host, made, **rig), host, made)
            host.freeze_layer(layer)
            # the layers below it are a part of it
            layer.with_suffix(".json").write_text(json.dumps(under))
        return (str(layer), *json.loads(layer.with_suffix(".json").read_text()))
