"""A checkpoint whose answers are fixed, for any real vLLM: a Qwen3 of under a megabyte, as a folder.

    vllm_model.write(folder)  # config, tokenizer and weights: the same bytes each time

As with lab.tiny_model, blocks add nothing to what goes through them, so that each token follows from the one before it
alone. The end of the chat template thus decides the answer: with `enable_thinking`, a thought comes first; where there
are tools and no answer of one, a call of one. At any temperature, it says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

NAME = "tiny-qwen3"
ANSWER = ("The", " rig", " is", " alive")
"""Its answer, token by token."""
THOUGHT = ("\nSomebody", " asks", " me", ".\n")
CALL = ('\n{"name": "look"', ', "arguments": {"at"', ': "cards"}}', " \n")
"""Its call, as Hermes's parser reads it."""
THINKS, CALLS, SPEAKS, END = "\n", "\t\n", "\n\n", "<|im_end|>"
"""The end of a prompt for a thought and for a call; the separator of a thought from the answer; the end of a turn."""
CERTAIN = 8.0  # logit of what follows, before the norm makes it larger; everything else has 0
SPECIAL = ("<|endoftext|>", "<|im_start|>", END)
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Qwen3's, as short as it can be: its text about tools is for people that look at prompts
TEMPLATE = """\
{%- if tools %}<|im_start|>system
# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{%- if tools and messages[-1].role != 'tool' %}{{ '\\t\\n' }}
{%- elif enable_thinking is defined and enable_thinking is false %}{{ '\\n<think>\\n\\n</think>\\n\\n' }}
{%- else %}{{ '\\n' }}
{%- endif %}
{%- endif %}"""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class QwenSize:
    """A model's dimensions, by the names that its config has for them."""

    num_hidden_layers: int = 2
    hidden_size: int = 128
    intermediate_size: int = 256
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    max_position_embeddings: int = 4096


SIZE = QwenSize()


def write_checkpoint(folder: Path, size: QwenSize = SIZE) -> None:
    """Write the checkpoint into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = make_vocabulary()
    texts = {
        "config.json": _make_config(size, len(tokens)),
        "generation_config.json": {"do_sample": False, "eos_token_id": tokens[END]},
        "tokenizer.json": _make_tokenizer(tokens),
        "tokenizer_config.json": {
            **{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": size.max_position_embeddings},
            **{"eos_token": END, "pad_token": SPECIAL[0], "bos_token": None, "clean_up_tokenization_spaces": False},
            "chat_template": TEMPLATE,
        },
    }
    for name, value in texts.items():
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=True) + "\n")
    (folder / "model.safetensors").write_bytes(_render_safetensors(dict(_model_tensors(size, tokens))))


def make_vocabulary() -> dict[str, int]:
    """Token -> its number: every byte, as GPT-2 spells it, then the answer's, then those that no text is made of."""
    said = [_encode_text(text) for text in (*ANSWER, *THOUGHT, *CALL, CALLS, SPEAKS)]
    return {token: number for number, token in enumerate([*map(_encode_byte, range(256)), *said, *SPECIAL, *TAGS])}


def token_successors() -> dict[str, str]:
    """Token -> its successor; after any other one, the answer begins."""
    begun = {_encode_text(THINKS): "<think>", _encode_text(CALLS): "<tool_call>"}
    chains = (
        ("<think>", *map(_encode_text, THOUGHT), "</think>", _encode_text(SPEAKS), _encode_text(ANSWER[0])),
        (*map(_encode_text, ANSWER), END),
        ("<tool_call>", *map(_encode_text, CALL), "</tool_call>", END),
    )
    return begun | {before: after for chain in chains for before, after in pairwise(chain)}


def _encode_byte(byte: int) -> str:
    # visible bytes stand for themselves; the others follow one another from 256 on
    if 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174:
        return chr(byte)
    hidden = [one for one in range(256) if not (33 <= one <= 126 or 161 <= one <= 172 or one >= 174)]
    return chr(256 + hidden.index(byte))


def _encode_text(text: str) -> str:
    return "".join(map(_encode_byte, text.encode()))


def _make_config(size: QwenSize, vocabulary_size: int) -> dict[str, object]:
    return {
        **{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "bfloat16", "hidden_act": "silu"},
        **{"vocab_size": vocabulary_size, "tie_word_embeddings": False, "attention_bias": False},
        **{"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": make_vocabulary()[END], "bos_token_id": None},
        **vars(size),
    }


def _make_tokenizer(tokens: dict[str, int]) -> dict[str, object]:
    """A byte-level BPE whose merges make the end of prompts one token, and nothing else."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    added = [
        {
            **{"id": tokens[token], "content": token, "special": token in SPECIAL},
            **{"single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
        }
        for token in (*SPECIAL, *TAGS)
    ]
    model = {
        **{"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "fuse_unk": False},
        **{"end_of_word_suffix": "", "byte_fallback": False, "ignore_merges": False},
        "vocab": {token: number for token, number in tokens.items() if token not in (*SPECIAL, *TAGS)},
        "merges": [list(_encode_text(text)) for text in (CALLS, SPEAKS)],
    }
    return {
        **{"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None},
        **{"pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model},
    }


def _model_tensors(size: QwenSize, tokens: dict[str, int]) -> Iterator[tuple[str, Array]]:
    after = token_successors()
    axes = {token: axis for axis, token in enumerate(after)}
    width, other = size.hidden_size, len(axes)
    embedding, output = np.zeros((2, len(tokens), width), np.float32)
    embedding[:, other] = 1
    for token, axis in axes.items():
        embedding[tokens[token]] = 0
        embedding[tokens[token], axis] = 1
        output[tokens[after[token]], axis] = CERTAIN
    output[tokens[_encode_text(ANSWER[0])], other] = CERTAIN
    queries, keys = size.num_attention_heads * size.head_dim, size.num_key_value_heads * size.head_dim
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", output
    yield "model.norm.weight", np.ones(width, np.float32)
    for layer in range(size.num_hidden_layers):
        of = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{of}{name}.weight", np.ones(width, np.float32)
        for name in ("q_norm", "k_norm"):
            yield f"{of}self_attn.{name}.weight", np.ones(size.head_dim, np.float32)
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{of}self_attn.{name}_proj.weight", _pattern_array(rows, width)
        yield f"{of}self_attn.o_proj.weight", np.zeros((width, queries), np.float32)
        for name in ("gate", "up"):
            yield f"{of}mlp.{name}_proj.weight", _pattern_array(size.intermediate_size, width)
        yield f"{of}mlp.down_proj.weight", np.zeros((width, size.intermediate_size), np.float32)


def _pattern_array(rows: int, columns: int) -> Array:
    """Small numbers that are neither zero nor equal, so that every kernel has something to do."""
    period = (np.arange(257, dtype=np.int64) * 7919 % 257 - 128) / np.float32(2560)
    return np.resize(period.astype(np.float32), (rows, columns))


def _render_safetensors(tensors: dict[str, Array]) -> bytes:
    """A file of bfloat16, which NumPy lacks: the upper half of a float32 (github.com/huggingface/safetensors)."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, values in tensors.items():
        parts.append((values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes())
        begin, end = end, end + len(parts[-1])
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(parts)
