"""A plugin as it is described and locked, and an instance that it starts and examines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rigwright.model.rig import Instance
from rigwright.plugins.keys import PluginKeys
from rigwright.plugins.plugin import Plugin
from rigwright.serving.doctors import Examination, examinations
from rigwright.supply.lock import Artefact
from tests.plugins import COMMANDS, MODULE, NAME
from tests.unit.samples import artefact
from tests.unit.vllm_samples import environment, rig, vllm

KEYS: dict[str, Any] = {
    "input": "louder",
    "distribution": NAME,
    "of": "demo",
    "versions": ["2.0"],
    "imports": [MODULE],
    "commands": [*COMMANDS],
}


LAUNCHING: dict[str, Any] = KEYS | {
    "of": "vllm",
    "versions": ["0.21.0"],
    "launcher": "louder-serve",
    "owns": {"speculative-config": "it guesses by itself", "gpu-memory-utilization": "it measures"},
    "modes": {
        "auto": {"flags": {"additional-config": {"louder": True}}},
        "fast": {"flags": {"additional-config": {"louder": "fast"}}, "environment": {"LOUDER_MORE": "1"}},
    },
}


DOCTOR: dict[str, Any] = {
    "command": "louder-doctor",
    "lines": {
        "python": {"says": "Python"},
        "gdn": {"says": "GDN interface"},
        "topology": {"says": "topology", "kind": "text", "holds": "SM75"},
        "guesses": {"says": "AutoSpec", "kind": "number", "bare": False},
    },
    "seconds": 60,
}


def row(version: str = "1.0", **changes: object) -> Artefact:
    file = f"louder-v{version}.zip"
    own = {"kind": "plugin", "name": "louder", "version": version, "file": file, "sources": [f"store:{file}"]}
    return artefact(**(own | {"sha256": "e" * 64} | changes))


def examined(**changes: object) -> Instance:
    """An instance with a plugin that has a doctor."""
    plugin = Plugin("louder", PluginKeys(**LAUNCHING, doctor=DOCTOR), row())
    return replace(vllm(mode="auto"), plugins=(plugin,), **changes)  # type: ignore[arg-type] # an instance's


def examination(instance: Instance, **changes: object) -> Examination:
    box = rig(instance, **changes)
    (one,) = examinations(box, {"vllm": environment(box)})
    return one
