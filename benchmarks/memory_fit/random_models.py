"""GGUF files and checkpoints with random weights of any size, written at the speed of the disk."""

from __future__ import annotations

import random
import string
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

ALIGNMENT = 32
BLOCK = 1 << 22  # bytes of random weights, repeated
F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8
# Type -> numbers in a block, and its bytes (ggml.h).
BLOCKS = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q8_0: (32, 34)}
TYPES = {"f16": F16, "q8_0": Q8_0, "q4_0": Q4_0}
# The general.file_type of each (llama.h).
FILE_TYPES = {F16: 1, Q4_0: 2, Q8_0: 7}
SPACE = "\u2581"


@dataclass(frozen=True)
class RandomModel:
    """A model's dimensions, by Llama's names."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int = 32000
    weights: str = "f16"
    """Type of its matrices."""
    window: int = 0
    """Sliding window of five of six layers, as Gemma 3 has them; 0 without."""
    context: int = 1 << 20
    """Tokens that it says it was trained for."""

    @property
    def head_width(self) -> int:
        """Numbers of one head."""
        return self.width // self.heads

    @property
    def architecture(self) -> str:
        """The name in GGUF files."""
        return "gemma3" if self.window else "llama"

    @property
    def windowed_layers(self) -> int:
        """Layers that keep a window."""
        return sum(layer % 6 < 5 for layer in range(self.layers)) if self.window else 0


@dataclass(frozen=True)
class RandomTensor:
    """One tensor."""

    name: str
    shape: tuple[int, ...]
    """Numbers of a row first."""
    type: int

    @property
    def size(self) -> int:
        """Bytes."""
        numbers, size = BLOCKS[self.type]
        return prod(self.shape) // numbers * size


def list_tensors(model: RandomModel) -> list[RandomTensor]:
    """All of them, in the file's order."""
    kind, width, kept = TYPES[model.weights], model.width, model.kv_heads * model.head_width

    def matrix(name: str, rows: int, columns: int) -> RandomTensor:
        return RandomTensor(name, (columns, rows), kind)

    def norm(name: str, size: int = width) -> RandomTensor:
        return RandomTensor(name, (size,), F32)

    made = [matrix("token_embd.weight", model.vocabulary, width), norm("output_norm.weight")]
    made.append(matrix("output.weight", model.vocabulary, width))
    for layer in range(model.layers):
        at = f"blk.{layer}."
        made += [
            norm(f"{at}attn_norm.weight"),
            matrix(f"{at}attn_q.weight", width, width),
            matrix(f"{at}attn_k.weight", kept, width),
            matrix(f"{at}attn_v.weight", kept, width),
            matrix(f"{at}attn_output.weight", width, width),
            norm(f"{at}ffn_norm.weight"),
            matrix(f"{at}ffn_gate.weight", model.feed_forward, width),
            matrix(f"{at}ffn_up.weight", model.feed_forward, width),
            matrix(f"{at}ffn_down.weight", width, model.feed_forward),
        ]
        if model.window:
            made += [
                norm(f"{at}attn_q_norm.weight", model.head_width),
                norm(f"{at}attn_k_norm.weight", model.head_width),
            ]
            made += [norm(f"{at}post_attention_norm.weight"), norm(f"{at}post_ffw_norm.weight")]
    return made


def _text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _pair(key: str, value: str | int | float | bool) -> bytes:
    if isinstance(value, bool):
        return _text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return _text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    return _text(key) + struct.pack("<I", 8) + _text(value)


def _vocabulary(model: RandomModel) -> list[bytes]:
    """Three lists of the tokenizer: control tokens, bytes, characters, and words that no text has."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [SPACE, *string.ascii_letters, *string.digits, *".,!?:<>|_-"]
    kinds = [2, 3, 3, *[6] * 256]
    tokens += [f"\u00a7{number}" for number in range(model.vocabulary - len(tokens))]
    kinds += [1] * (len(tokens) - len(kinds))
    words = struct.pack("<IIQ", 9, 8, len(tokens)) + b"".join(map(_text, tokens))
    scores = struct.pack(f"<IIQ{len(tokens)}f", 9, 6, len(tokens), *([-100.0] * len(tokens)))
    types = struct.pack(f"<IIQ{len(tokens)}i", 9, 5, len(tokens), *kinds)
    return [
        _text("tokenizer.ggml.tokens") + words,
        _text("tokenizer.ggml.scores") + scores,
        _text("tokenizer.ggml.token_type") + types,
    ]


def _pairs(model: RandomModel) -> list[bytes]:
    own = model.architecture
    keys: dict[str, str | int | float | bool] = {
        "general.architecture": own,
        "general.name": model.name,
        "general.file_type": FILE_TYPES[TYPES[model.weights]],
        f"{own}.context_length": model.context,
        f"{own}.embedding_length": model.width,
        f"{own}.block_count": model.layers,
        f"{own}.feed_forward_length": model.feed_forward,
        f"{own}.attention.head_count": model.heads,
        f"{own}.attention.head_count_kv": model.kv_heads,
        f"{own}.attention.key_length": model.head_width,
        f"{own}.attention.value_length": model.head_width,
        f"{own}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{own}.rope.dimension_count": model.head_width,
        f"{own}.rope.freq_base": 10000.0,
        f"{own}.vocab_size": model.vocabulary,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
    }
    if model.window:
        keys[f"{own}.attention.sliding_window"] = model.window
    return [_pair(key, value) for key, value in keys.items()] + _vocabulary(model)


def random_block(kind: int, seed: int = 1) -> bytes:
    """Random weights of a type, small and finite: whole blocks of it, of about `BLOCK` bytes."""
    noise = random.Random(seed)
    if kind == F32:
        return struct.pack("<f", 1.0) * (BLOCK // 4)
    if kind == F16:
        # exponents of 2^-8 to 2^-5, any sign and mantissa
        raw = bytearray(noise.randbytes(BLOCK))
        high = bytes((byte & 0x83) | 0x1C | ((byte >> 2) & 0x08) for byte in raw[1::2])
        raw[1::2] = high
        return bytes(raw)
    size = BLOCKS[kind][1]
    scale = struct.pack("<e", 0.002)
    rows = noise.randbytes((size - 2) * 4096)
    part = b"".join(scale + rows[at : at + size - 2] for at in range(0, len(rows), size - 2))
    return part * max(1, BLOCK // len(part))


def _write_repeated(out: BinaryIO, block: bytes, size: int) -> None:
    whole, rest = divmod(size, len(block))
    for _ in range(whole):
        out.write(block)
    out.write(block[:rest])


def write_gguf(path: Path, model: RandomModel) -> None:
    """Write the model; the same bytes for the same dimensions."""
    tensors = list_tensors(model)
    pairs = _pairs(model)
    at, infos = 0, []
    for one in tensors:
        dimensions = struct.pack(f"<I{len(one.shape)}Q", len(one.shape), *one.shape)
        infos.append(_text(one.name) + dimensions + struct.pack("<IQ", one.type, at))
        at += -(-one.size // ALIGNMENT) * ALIGNMENT
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + b"".join(infos)
    blocks = {kind: random_block(kind) for kind in {one.type for one in tensors}}
    unfinished = path.with_name(f".{path.name}.part")
    with unfinished.open("wb") as out:
        out.write(header + b"\0" * (-len(header) % ALIGNMENT))
        for one in tensors:
            _write_repeated(out, blocks[one.type], one.size)
            out.write(b"\0" * (-one.size % ALIGNMENT))
    unfinished.replace(path)
