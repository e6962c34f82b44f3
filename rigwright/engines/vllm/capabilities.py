"""Declared capabilities of a variant of vLLM."""

from __future__ import annotations

from typing import cast

from rigwright.engines.capabilities import Ability
from rigwright.engines.vllm import model_files, plugin_launch
from rigwright.engines.vllm.catalog_keys import VllmVariant
from rigwright.model.catalog_schema import MissingModelFile
from rigwright.model.instance import Instance

# Sections of config.json that models have which see (transformers' composite configs)
SEEING = ("vision_config", "vision_tower_config")
# Options that leave what sees out, as flags are written
BLIND = ("language-model-only", "language_model_only")


def declared_abilities(instance: Instance) -> frozenset[Ability]:
    """Of an instance, by its keys, flags, plugin and weights."""
    variant, flags = cast("VllmVariant", instance.variant), plugin_launch.plugin_flags(instance)
    plugin = plugin_launch.find_launch_plugin(instance)
    found: dict[Ability, object] = {
        "tools": variant.tool_call_parser or flags.get("tool-call-parser"),
        "thinking": variant.reasoning_parser or flags.get("reasoning-parser"),
        "drafts": variant.speculative_config
        or flags.get("speculative-config")
        or any(part.option == model_files.DRAFT for part in instance.parts)
        # it guesses by what it decides itself
        or (plugin and "speculative-config" in plugin.keys.owned_flags),
        "schema": True,
        "images": _has_image_input(instance) and not any(flags.get(name) for name in BLIND),
    }
    return frozenset(name for name, value in found.items() if value)


def _has_image_input(instance: Instance) -> bool:
    try:
        found = model_files.find_checkpoint(instance.parts)
    except MissingModelFile:
        return False
    return found is not None and any(isinstance(found.config.get(name), dict) for name in SEEING)
