"""Checkpoints of Qwen3's architecture with random weights and a tokenizer of bytes, for vLLM."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.memory_fit.random_models import F16, RandomModel, random_block

END, START = "<|im_end|>", "<|im_start|>"


def _byte_letters() -> list[str]:
    """The letter of each byte in byte-level vocabularies (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, further = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte) if byte in plain else chr(further)
        further += byte not in plain
    return [letters[byte] for byte in range(256)]


def _tokenizer(size: int) -> dict[str, object]:
    words = [*_byte_letters(), *(f"\u00a7{number}\u00a7" for number in range(size - 258))]
    vocabulary = {word: number for number, word in enumerate(words)} | {START: size - 2, END: size - 1}
    special = [
        {"id": vocabulary[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": True}
        for word in (START, END)
    ]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": bytes_,
        "post_processor": None,
        "decoder": bytes_,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
        | {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []},
    }


def _shapes(model: RandomModel) -> dict[str, tuple[int, ...]]:
    width, kept, queries = model.width, model.kv_heads * model.head_width, model.heads * model.head_width
    made: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (model.vocabulary, width)}
    for layer in range(model.layers):
        at = f"model.layers.{layer}."
        made |= {
            f"{at}input_layernorm.weight": (width,),
            f"{at}self_attn.q_proj.weight": (queries, width),
            f"{at}self_attn.k_proj.weight": (kept, width),
            f"{at}self_attn.v_proj.weight": (kept, width),
            f"{at}self_attn.o_proj.weight": (width, queries),
            f"{at}self_attn.q_norm.weight": (model.head_width,),
            f"{at}self_attn.k_norm.weight": (model.head_width,),
            f"{at}post_attention_layernorm.weight": (width,),
            f"{at}mlp.gate_proj.weight": (model.feed_forward, width),
            f"{at}mlp.up_proj.weight": (model.feed_forward, width),
            f"{at}mlp.down_proj.weight": (width, model.feed_forward),
        }
    return made | {"model.norm.weight": (width,), "lm_head.weight": (model.vocabulary, width)}


def checkpoint_bytes(model: RandomModel) -> int:
    """Bytes of all weights."""
    return sum(2 * shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in _shapes(model).values())


def write_checkpoint(folder: Path, model: RandomModel) -> None:
    """Write the checkpoint's files; weights are float16."""
    folder.mkdir(parents=True, exist_ok=True)
    end = model.vocabulary - 1
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "float16",
        "vocab_size": model.vocabulary,
        "hidden_size": model.width,
        "intermediate_size": model.feed_forward,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_width,
        "max_position_embeddings": model.context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "eos_token_id": end,
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "pad_token": END}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(model.vocabulary)))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    header, at = {}, 0
    for name, shape in _shapes(model).items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = random_block(F16)
    unfinished = folder / ".model.part"
    with unfinished.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        whole, rest = divmod(at, len(block))
        for _ in range(whole):
            out.write(block)
        out.write(block[:rest])
    unfinished.replace(folder / "model.safetensors")
