"""The inventories that are shipped, as their operators load them: with what they have locked themselves."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigwright.declaration.catalog import Catalog
from rigwright.declaration.rig import Rig
from rigwright.inventory import ROOT, load
from rigwright.supply.lock import Artefact, text
from tests.unit.checkpoints import QWEN3_6, WHOLE, rows
from tests.unit.env_samples import conda

COMMIT = "c" * 40
PYTHON = "python-3.10.20"
INT4 = QWEN3_6 | {"quantization_config": {"bits": 4, "group_size": 128, "quant_method": "auto-round"}}
CHECKPOINTS: Mapping[str, Mapping[str, Any]] = {"Qwen3.6-27B": QWEN3_6, "Qwen3.6-27B-int4-AutoRound": INT4}


def locked() -> list[Artefact]:
    """What `rigwright lock` would write of the shipped catalogue's checkpoints and of the environments' Python."""
    inputs = Catalog.load([ROOT / "catalog"]).inputs
    found = [conda(group=PYTHON, selection=inputs[PYTHON].selection, sources=["conda-forge:linux-64/python.conda"])]
    for name, config in CHECKPOINTS.items():
        asked = inputs[name]
        own = {"name": name, "group": name, "version": COMMIT, "repository": asked.repository}
        own |= {"selection": asked.selection, "sources": (f"hub:{asked.repository}",)}
        found += [one.model_copy(update=own) for one in rows(WHOLE, json.loads(json.dumps(config)))]
    return found


def rigs(name: str, folder: Path) -> dict[str, Rig]:
    """The rigs of an inventory, by name, with their locks in this folder."""
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "locks" / "mine.lock.toml").write_text(text(locked(), "mine.toml"))
    group: Any = runpy.run_path(shutil.copy(ROOT / "inventory" / f"{name}.py", folder))["rigs"]
    return {host_name: load(data["rig"]) for host_name, data in group}
