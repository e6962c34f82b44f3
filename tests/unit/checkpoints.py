"""Checkpoints that tests begin from: config.json as it is published, shortened, and rows of their files."""

import hashlib
import json
from typing import Any

from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from tests.unit.sample_texts import COMMIT

INPUT = Input(kind="weight", repository="owner/big")
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
CHECKPOINT_PATHS = ("config.json", "model.safetensors", *TOKENIZER)

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "head_dim": 64,
    "hidden_size": 2048,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
# without head_dim, and with the same number of heads for keys
OLD_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": 128,
    "hidden_size": 4096,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
QWEN3_YARN = QWEN3 | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}
QWEN3_AWQ = QWEN3 | {
    "torch_dtype": "float16",
    "quantization_config": {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True},
}
QWEN3_MOE: dict[str, Any] = QWEN3 | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 2048,
    "max_position_embeddings": 262144,
    "model_type": "qwen3_moe",
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
}
# sees images: the language model's part stands in text_config
QWEN3_6: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "image_token_id": 248056,
    "model_type": "qwen3_5",
    "text_config": {
        "dtype": "bfloat16",
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "max_position_embeddings": 262144,
        "model_type": "qwen3_5_text",
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "vocab_size": 248320,
    },
    "vision_config": {"depth": 27, "hidden_size": 1152, "num_heads": 16},
}
QWEN3_6_AWQ = QWEN3_6 | {
    "quantization_config": {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm"}
}
DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_deepseek.DeepseekV2Config",
        "AutoModelForCausalLM": "modeling_deepseek.DeepseekV2ForCausalLM",
    },
    "hidden_size": 2048,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "model_type": "deepseek_v2",
    "n_routed_experts": 64,
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"},
    "torch_dtype": "bfloat16",
    "vocab_size": 102400,
}


def checkpoint_row(path: str, content: str | None = None, **changes: Any) -> Artefact:
    """The row of a file; of config.json with its content."""
    folder, _, file = path.rpartition("/")
    data = content.encode() if content is not None else b""
    value = {
        "kind": "weight",
        "name": "big",
        "group": "big",
        "version": COMMIT,
        "repository": "owner/big",
        "folder": folder or None,
        "selection": INPUT.selection,
        "file": file,
        "sha256": hashlib.sha256(data or path.encode()).hexdigest(),
        "size": len(data) or 1000,
        "sources": INPUT.sources_of(path),
        "text": content,
    }
    return Artefact.model_validate(value | changes)


def checkpoint_rows(paths: tuple[str, ...] = CHECKPOINT_PATHS, config: object = None) -> list[Artefact]:
    """The rows of a folder.

    Args:
        paths: Its files.
        config: Its config.json, Qwen3's without it.
    """
    said = json.dumps(QWEN3 if config is None else config)
    return [checkpoint_row(path, said if path == "config.json" else None) for path in paths]


def safetensors_bytes(size: int, **metadata: str) -> bytes:
    """A file of weights: one tensor of so many bytes."""
    header: dict[str, object] = {"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(size)
