"""Instances as clients find them: one that is declared to be able to all there is, and how it is run."""

import hashlib
import json
from dataclasses import replace
from typing import Any

from rigwright.engines.engine_interface import Sandbox, ServiceSpec
from rigwright.engines.vllm.catalog_keys import VllmEngine, VllmVariant
from rigwright.model.instance import Instance, ModelPart
from tests.unit.samples import sample_artefact, sample_instance

CAPABLE_VARIANT: dict[str, Any] = {
    "tool_call_parser": "hermes",
    "reasoning_parser": "qwen3",
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 3},
    "max_model_len": 4096,
    "max_num_seqs": 4,
}
SERVICE = ServiceSpec((), {}, Sandbox(0, 0), metrics="/metrics")


def capable_instance(size: int = 16 << 30, **keys: Any) -> Instance:
    """An instance of vLLM, whose weights have so many bytes; with other keys of its variant."""
    config = json.dumps({"vision_config": {"depth": 1}})
    digest = hashlib.sha256(config.encode()).hexdigest()
    row = {"folder": None, "group": "model"}
    rows = (
        sample_artefact(file="config.json", name="config.json", size=len(config), text=config, sha256=digest, **row),
        sample_artefact(file="model.safetensors", name="model.safetensors", size=size, **row),
        sample_artefact(file="tokenizer.json", name="tokenizer.json", size=9, **row),
    )
    variant = VllmVariant.model_validate({"engine": "x", "model": "y", **CAPABLE_VARIANT, **keys})
    made = replace(
        sample_instance(), variant=variant, engine=VllmEngine(kind="vllm", env="vllm"), model_name="scripted"
    )
    return replace(made, parts=(ModelPart("model", rows),))
