"""The inventories and variants that are shipped, as operators load them: with what they have locked themselves."""

import json
import runpy
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.supply import image_manifest
from rigwright.supply.lock import Artefact, render_lock
from tests.unit.checkpoints import CHECKPOINT_PATHS, QWEN3, QWEN3_6, QWEN3_MOE, checkpoint_row, checkpoint_rows
from tests.unit.env_samples import conda_row

COMMIT = "c" * 40
PYTHON = "python-3.10.20"
TEXT = QWEN3_6["text_config"]
# with the kind of each of its 64 layers, as it is published
FULL_QWEN3_6 = QWEN3_6 | {"text_config": TEXT | {"layer_types": TEXT["layer_types"] * 16}}
INT4 = FULL_QWEN3_6 | {"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "auto-round"}}
FP8 = FULL_QWEN3_6 | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
COMPRESSED = {"quantization_config": {"format": "pack-quantized", "quant_method": "compressed-tensors"}}
# The config.json of the checkpoints that vLLM serves
CHECKPOINTS: Mapping[str, Mapping[str, Any]] = {
    "Qwen3.6-27B": FULL_QWEN3_6,
    "Qwen3.6-27B-FP8": FP8,
    "Qwen3.6-27B-int4-AutoRound": INT4,
    "Qwen3.6-27B-AWQ-INT4": FULL_QWEN3_6 | COMPRESSED,
    "Qwen3-30B-A3B-AWQ-4bit": QWEN3_MOE | COMPRESSED,
    "Qwen3-8B": QWEN3,
}
# The published figures of the others, of llama.cpp's
FILES: Mapping[str, tuple[str, ...]] = {
    "Qwen3.6-27B-UD-Q3_K_XL": ("Qwen3.6-27B-UD-Q3_K_XL.gguf", "mmproj-F16.gguf"),
    "Qwen3.5-35B-A3B-UD-Q4_K_XL": ("Qwen3.5-35B-A3B-UD-Q4_K_XL.gguf", "mmproj-F16.gguf"),
    "Qwen2.5-1.5B-Instruct-Q8_0": ("qwen2.5-1.5b-instruct-q8_0.gguf",),
}


OCI = "application/vnd.oci.image"
# fixed: packed layers differ with Python's zlib
MANIFEST = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", "digest": f"sha256:{'d' * 64}", "size": 250},
        "layers": [
            {"mediaType": f"{OCI}.layer.v1.tar+gzip", "digest": f"sha256:{digit * 64}", "size": 1 << 30}
            for digit in "ef"
        ],
    }
).encode()


@cache
def locked_rows() -> tuple[Artefact, ...]:
    """The rows that `rigwright lock` would write of the shipped catalogue's weights, images and of the environments'
    Python."""
    inputs = load_catalog([ROOT / "catalog"]).inputs
    found = [conda_row(group=PYTHON, selection=inputs[PYTHON].selection, sources=["conda-forge:linux-64/python.conda"])]
    made = {
        name: checkpoint_rows(CHECKPOINT_PATHS, json.loads(json.dumps(config))) for name, config in CHECKPOINTS.items()
    }
    made |= {name: [checkpoint_row(path) for path in paths] for name, paths in FILES.items()}
    for name, files in made.items():
        asked = inputs[name]
        assert all(asked.selects(one.path) for one in files)
        own = {"name": name, "group": name, "repository": asked.repository, "selection": asked.selection}
        own["version"] = COMMIT if asked.repository else asked.version
        found += [one.model_copy(update=own | {"sources": asked.sources_of(one.path)}) for one in files]
    for name, asked in inputs.items():
        found += image_manifest.image_rows(name, asked, MANIFEST) if asked.kind == "image" else ()
    return tuple(found)


def write_lock(folder: Path) -> None:
    """Write the lock of an operator for any of them."""
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "locks" / "mine.lock.toml").write_text(render_lock(list(locked_rows()), "mine.toml"))


def load_rigs(name: str, folder: Path) -> dict[str, Rig]:
    """The rigs of an inventory, by name, with their locks in this folder."""
    write_lock(folder)
    group: Any = runpy.run_path(shutil.copy(ROOT / "inventory" / f"{name}.py", folder))["rigs"]
    return {host_name: load_rig(data["rig"]) for host_name, data in group}
