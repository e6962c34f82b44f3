"""A projector for images beside lab.tiny_model, in GGUF, for any real llama.cpp: LLaVA's kind, with one small layer.

Its reading of an image is nothing: every matrix is zero. Same arguments, same bytes.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from lab.tiny_model import TINY, LlamaSize

WIDTH = 32
"""Of its own residual stream."""
IMAGE, PATCH = 28, 14
"""Pixels on each side."""
_NUMBERS = {
    "image_size": IMAGE,
    "patch_size": PATCH,
    "embedding_length": WIDTH,
    "feed_forward_length": WIDTH,
    "block_count": 1,
    "attention.head_count": 1,
}


def write_projector(path: Path, size: LlamaSize = TINY) -> None:
    """Write the projector of a model of this size."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for name, value in {**_NUMBERS, "projection_dim": size.width}.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    for name, shape in _tensor_shapes(size.width).items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor_shapes(width: int) -> dict[str, tuple[int, ...]]:
    """Of its tensors."""
    block = "v.blk.0."
    square = [f"{block}{part}" for part in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down")]
    norms = ["v.pre_ln", f"{block}ln1", f"{block}ln2"]
    return {
        "v.class_embd": (WIDTH,),
        "v.patch_embd.weight": (WIDTH, 3, PATCH, PATCH),
        "v.position_embd.weight": ((IMAGE // PATCH) ** 2 + 1, WIDTH),
        **{f"{name}.weight": (WIDTH, WIDTH) for name in square},
        **{f"{name}.weight": (WIDTH,) for name in norms},
        **{f"{name}.bias": (WIDTH,) for name in (*square, *norms)},
        "mm.0.weight": (width, WIDTH),
        "mm.2.weight": (width, width),
        "mm.0.bias": (width,),
        "mm.2.bias": (width,),
    }
