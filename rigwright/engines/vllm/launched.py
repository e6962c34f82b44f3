"""What a plugin that starts vLLM in the place of `vllm serve` decides, and what it leaves to a variant."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from rigwright.engines.vllm.judge import unknown
from rigwright.engines.vllm.keys import Variant
from rigwright.engines.vllm.snapshot import Snapshot, Value
from rigwright.model.rig import Instance
from rigwright.plugins.keys import Mode
from rigwright.plugins.plugin import Plugin
from rigwright.problems import suggestion

# What is started, as text.
LAUNCHER = Path(__file__).with_name("plugin_launcher.py").read_text()
PROGRAM = f"plugin-{hashlib.sha256(LAUNCHER.encode()).hexdigest()[:12]}.py"


def plugin(instance: Instance) -> Plugin | None:
    """The plugin that starts an instance, if one does."""
    return next((one for one in instance.plugins if one.keys.launcher), None)


def mode(instance: Instance) -> Mode:
    """The mode that an instance's plugin runs in; an empty one without."""
    found, name = plugin(instance), cast("Variant", instance.variant).mode
    return found.keys.modes.get(name or "", Mode()) if found else Mode()


def flags(instance: Instance) -> dict[str, Value]:
    """More options of an instance: those of its plugin's mode, over which its variant has a say."""
    return {**mode(instance).flags, **cast("Variant", instance.variant).flags}


def variables(instance: Instance) -> dict[str, str]:
    """More variables of an instance, in the same way."""
    return {**mode(instance).environment, **cast("Variant", instance.variant).environment}


def refusals(instance: Instance, known: Snapshot, options: Mapping[str, Value]) -> Iterator[str]:
    """Why an instance's plugin would not start it, a line each.

    Args:
        instance: The instance.
        known: Its version of vLLM.
        options: What its keys become, without `flags`.
    """
    found, variant = plugin(instance), cast("Variant", instance.variant)
    if found is None:
        if variant.mode is not None:
            yield (
                f"mode {variant.mode}: no plugin of {instance.installed_as} launches it, and only plugins have modes"
            )
        return
    modes = found.keys.modes
    if modes and variant.mode is None:
        yield f"mode is missing: plugin {found.name} has {', '.join(modes)}"
    elif variant.mode is not None and variant.mode not in modes:
        yield f'mode: plugin {found.name} has no "{variant.mode}"{suggestion(variant.mode, modes)}'
    for name in found.keys.owns:
        if known.find(name) is None:
            yield f"plugins.{found.name}.owns.{name} {unknown(known, name)}"
    owned = {_dest(known, name): why for name, why in found.keys.owns.items()}
    given = {name: name.replace("-", "_") for name in options} | {name: f"flags.{name}" for name in flags(instance)}
    for name, key in given.items():
        if why := owned.get(_dest(known, name)):
            yield f"{key} is not allowed in a variant: plugin {found.name} sets it: {why}"


def _dest(known: Snapshot, name: str) -> str:
    option = known.find(name)
    return option.dest if option else name
