"""What a variant of vLLM is declared to be able to."""

from __future__ import annotations

from typing import cast

from rigwright.engines.abilities import Ability
from rigwright.engines.vllm import launched, model
from rigwright.engines.vllm.keys import Variant
from rigwright.model.models import Missing
from rigwright.model.rig import Instance

# Sections of config.json that models have which see (transformers' composite configs)
SEEING = ("vision_config", "vision_tower_config")
# Options that leave what sees out, as flags are written
BLIND = ("language-model-only", "language_model_only")


def abilities(instance: Instance) -> frozenset[Ability]:
    """Of an instance, by its keys, flags, plugin and weights."""
    variant, flags = cast("Variant", instance.variant), launched.flags(instance)
    plugin = launched.plugin(instance)
    found: dict[Ability, object] = {
        "tools": variant.tool_call_parser or flags.get("tool-call-parser"),
        "thinking": variant.reasoning_parser or flags.get("reasoning-parser"),
        "drafts": variant.speculative_config
        or flags.get("speculative-config")
        or any(part.option == model.DRAFT for part in instance.parts)
        # it guesses by what it decides itself
        or (plugin and "speculative-config" in plugin.keys.owns),
        "schema": True,
        "images": _sees(instance) and not any(flags.get(name) for name in BLIND),
    }
    return frozenset(name for name, value in found.items() if value)


def _sees(instance: Instance) -> bool:
    try:
        found = model.of(instance.parts)
    except Missing:
        return False
    return found is not None and any(isinstance(found.config.get(name), dict) for name in SEEING)
