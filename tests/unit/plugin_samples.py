"""A plugin as it is described and locked, and an instance that it starts and examines."""

from dataclasses import replace
from typing import Any

from rigwright.model.instance import Instance
from rigwright.plugins.plugin import Plugin, PluginKeys
from rigwright.serving.plugin_selftest import PluginSelftest, plan_selftests
from rigwright.supply.lock import Artefact
from tests.sample_plugins import COMMANDS, MODULE, NAME
from tests.unit.samples import sample_artefact
from tests.unit.vllm_samples import vllm_environment, vllm_instance, vllm_rig

KEYS: dict[str, Any] = {
    "input": "louder",
    "distribution": NAME,
    "target_distribution": "demo",
    "versions": ["2.0"],
    "imports": [MODULE],
    "commands": [*COMMANDS],
}


LAUNCHING: dict[str, Any] = KEYS | {
    "target_distribution": "vllm",
    "versions": ["0.21.0"],
    "launcher": "louder-serve",
    "owned_flags": {"speculative-config": "it guesses by itself", "gpu-memory-utilization": "it measures"},
    "modes": {
        "auto": {"flags": {"additional-config": {"louder": True}}},
        "fast": {"flags": {"additional-config": {"louder": "fast"}}, "environment": {"LOUDER_MORE": "1"}},
    },
}


SELFTEST: dict[str, Any] = {
    "command": "louder-doctor",
    "lines": {
        "python": {"match": "Python"},
        "gdn": {"match": "GDN interface"},
        "topology": {"match": "topology", "kind": "text", "contains": "SM75"},
        "guesses": {"match": "AutoSpec", "kind": "number", "without_model": False},
    },
    "seconds": 60,
}


def plugin_row(version: str = "1.0", **changes: object) -> Artefact:
    file = f"louder-v{version}.zip"
    own = {"kind": "plugin", "name": "louder", "version": version, "file": file, "sources": [f"store:{file}"]}
    return sample_artefact(**(own | {"sha256": "e" * 64} | changes))


def instance_with_selftest(**changes: object) -> Instance:
    """An instance with a plugin that has a self-test."""
    plugin = Plugin("louder", PluginKeys(**LAUNCHING, selftest=SELFTEST), plugin_row())
    return replace(vllm_instance(mode="auto"), plugins=(plugin,), **changes)  # type: ignore[arg-type] # an instance's


def make_examination(instance: Instance, **changes: object) -> PluginSelftest:
    box = vllm_rig(instance, **changes)
    (one,) = plan_selftests(box, {"vllm": vllm_environment(box)})
    return one
