"""The part of an engine whose code failed, by the frames of a traceback: what to leave out first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rigwright.engines.log import LONGEST

FRAMES = 60
"""Lines before an error that its traceback can have: vLLM marks a frame, its code and its carets with a line each."""
_FRAME = re.compile(r"(?:File |\bat )\"?([\w./-]{1,300}\.py)(?:\", line |:)\d+")
# Folders and files of vLLM 0.20 and of the libraries that it loads -> the option that leads into them.
_PARTS = (
    (r"spec_decode|eagle|_mtp\b|/mtp|medusa|dflash", "drafting (speculative_config)"),
    (r"kv_connector|kv_transfer|kv_offload|lmcache|nixl|mooncake", "the KV connector (kv_transfer_config)"),
    (r"/lora/", "LoRA adapters"),
    (r"structured_output|xgrammar|outlines|llguidance", "structured outputs (a request's schema)"),
    (r"tool_parsers|reasoning/|parser/|harmony", "the tool or reasoning parser"),
    (r"mamba|linear_attn|gdn|short_conv", "linear-attention layers (prefix caching, mamba_cache_mode)"),
    (r"attention/|flash_attn|flashmla|flashinfer/(?:decode|prefill|mla)", "the attention backend"),
    (r"fused_moe|moe/", "the kernels of experts (moe_backend)"),
    (r"quantization/|modelopt|compressed_tensors", "the quantisation"),
    (r"multimodal/|image_process|video_process|feature_extract", "pictures, videos or sound"),
    (r"device_communicators|all_reduce|parallel_state", "communication between cards"),
    (r"compilation/|_inductor|_dynamo|cuda_graph|cudagraph", "torch.compile or CUDA graphs (enforce_eager)"),
)


def failing_part(lines: Sequence[str], number: int) -> str:
    """The part of the engine in the frame that is nearest before a line; empty where no frame has a known one."""
    for line in reversed(lines[max(0, number - FRAMES) : number]):
        frame = _FRAME.search(line[:LONGEST])
        part = next((name for path, name in _PARTS if frame and re.search(path, frame[1])), "")
        if part:
            return part
    return ""
