"""What a variant of llama.cpp is declared to be able to."""

from __future__ import annotations

from typing import cast

from rigwright.engines.capabilities import Ability
from rigwright.engines.llama_cpp.keys import LlamaVariant
from rigwright.engines.llama_cpp.model_files import OPTIONS
from rigwright.model.instance import Instance


def declared_abilities(instance: Instance) -> frozenset[Ability]:
    """Of an instance, by its keys, flags, model and purpose.

    Whether its template knows tools stands in the GGUF file alone: what is made for agents has to call them.
    """
    variant = cast("LlamaVariant", instance.variant)
    flags, parts = variant.flags, {part.option for part in instance.parts}
    found: dict[Ability, object] = {
        "tools": variant.purpose and "agents" in variant.purpose.workloads,
        "thinking": variant.thinking in ("on", "auto") or flags.get("reasoning-format") not in (None, "none"),
        "drafts": OPTIONS["draft"] in parts or flags.get("spec-type") not in (None, "none"),
        "schema": True,
        "images": OPTIONS["mmproj"] in parts,
    }
    if variant.thinking == "off":
        found["thinking"] = False
    return frozenset(name for name, value in found.items() if value)
