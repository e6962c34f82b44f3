"""The decisions of a plugin that starts vLLM in the place of `vllm serve`, and those that it leaves to a variant."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from rigwright.engines.vllm.catalog_keys import VllmVariant
from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmSnapshot
from rigwright.engines.vllm.option_validation import describe_unknown_option
from rigwright.model.instance import Instance
from rigwright.plugins.plugin import Plugin, PluginMode
from rigwright.problems import suggestion

# The launcher, as text.
LAUNCHER = Path(__file__).with_name("plugin_launcher.py").read_text()
PROGRAM = f"plugin-{hashlib.sha256(LAUNCHER.encode()).hexdigest()[:12]}.py"


def find_launch_plugin(instance: Instance) -> Plugin | None:
    """The plugin that starts an instance, if one does."""
    return next((one for one in instance.plugins if one.keys.launcher), None)


def find_plugin_mode(instance: Instance) -> PluginMode:
    """The mode that an instance's plugin runs in; an empty one without."""
    found, name = find_launch_plugin(instance), cast("VllmVariant", instance.variant).mode
    return found.keys.modes.get(name or "", PluginMode()) if found else PluginMode()


def plugin_flags(instance: Instance) -> dict[str, OptionSetting]:
    """More options of an instance: those of its plugin's mode, over which its variant has a say."""
    return {**find_plugin_mode(instance).flags, **cast("VllmVariant", instance.variant).flags}


def plugin_variables(instance: Instance) -> dict[str, str]:
    """More variables of an instance, in the same way."""
    return {**find_plugin_mode(instance).environment, **cast("VllmVariant", instance.variant).environment}


def find_plugin_refusals(
    instance: Instance, known: VllmSnapshot, options: Mapping[str, OptionSetting]
) -> Iterator[str]:
    """Why an instance's plugin would not start it, a line each.

    Args:
        instance: The instance.
        known: Its version of vLLM.
        options: The options of its keys, without `flags`.
    """
    found, variant = find_launch_plugin(instance), cast("VllmVariant", instance.variant)
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
    for name in found.keys.owned_flags:
        if known.find(name) is None:
            yield f"plugins.{found.name}.owned_flags.{name} {describe_unknown_option(known, name)}"
    owned = {_dest(known, name): why for name, why in found.keys.owned_flags.items()}
    given = {name: name.replace("-", "_") for name in options} | {
        name: f"flags.{name}" for name in plugin_flags(instance)
    }
    for name, key in given.items():
        if why := owned.get(_dest(known, name)):
            yield f"{key} is not allowed in a variant: plugin {found.name} sets it: {why}"


def _dest(known: VllmSnapshot, name: str) -> str:
    option = known.find(name)
    return option.dest if option else name
