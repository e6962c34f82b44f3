"""Models of which there is only a config.json: enough for vLLM's engine to judge a command line, as for rules.py."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SMALL = {"hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 1024, "head_dim": 128}
_SMALL_CONTEXT = {**_SMALL, "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 4096}
_QWEN3 = {**_SMALL_CONTEXT, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16"}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm", "zero_point": True}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": True}
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True}
_LINEAR = {
    **{"linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32},
    **{"layer_types": ["linear_attention"] * 3 + ["full_attention"], "shared_expert_intermediate_size": 128},
}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "qwen3": _QWEN3,
    "llama, half": {
        **_SMALL_CONTEXT,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float16",
    },
    "gemma3": {
        **_SMALL_CONTEXT,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "torch_dtype": "bfloat16",
    },
    "qwen3 moe": {**_QWEN3, **_EXPERTS, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"},
    "qwen3 next": {
        **{**_QWEN3, **_EXPERTS, **_LINEAR},
        **{"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next"},
    },
    "awq": {**_QWEN3, "torch_dtype": "float16", "quantization_config": _AWQ},
    "awq, bfloat16": {**_QWEN3, "quantization_config": _AWQ},
    "gptq": {**_QWEN3, "torch_dtype": "float16", "quantization_config": _GPTQ},
    "fp8": {**_QWEN3, "quantization_config": _FP8},
    "unknown weights": {**_QWEN3, "quantization_config": {"quant_method": "exl2", "bits": 4}},
    "unknown": {**_QWEN3, "architectures": ["OwnForCausalLM"]},
    "longer by yarn": {
        **_QWEN3,
        "rope_parameters": {
            **{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "rope_theta": 10000.0}
        },
    },
}


@dataclass(frozen=True)
class SampleCheckpoint:
    """The facts that rules.py asks of a checkpoint."""

    config: Mapping[str, Any]
    architectures: tuple[str, ...] = field(init=False)
    heads: int = field(init=False)
    kv_heads: int = field(init=False)
    layers: int = field(init=False)
    vocabulary: int = field(init=False)
    dtype: str = field(init=False)
    quantization: str = field(init=False)
    max_positions: int = field(init=False)
    experts: int = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        found = {
            "architectures": tuple(config["architectures"]),
            "heads": config["num_attention_heads"],
            "kv_heads": config["num_key_value_heads"],
            "layers": config["num_hidden_layers"],
            "vocabulary": config["vocab_size"],
            "dtype": config["torch_dtype"],
            "quantization": config.get("quantization_config", {}).get("quant_method", ""),
            "max_positions": int(
                config["max_position_embeddings"] * config.get("rope_parameters", {}).get("factor", 1)
            ),
            "experts": config.get("num_experts", 0),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)


def write_configs(folder: Path) -> dict[str, Path]:
    """Write a folder for each; returns them by their names."""
    made = {name: folder / str(number) for number, name in enumerate(CONFIGS)}
    for name, path in made.items():
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(CONFIGS[name]))
    return made
