"""The part of an engine whose code failed, by the frames of a traceback: what to leave out first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from rigwright.engines.log_causes import LONGEST
from rigwright.operate.last_error import is_exception, strip_prefix

FRAMES = 60
"""Lines before an error that its traceback can have: vLLM marks a frame, its code and its carets with a line each."""
_FRAME = re.compile(r"(?:File |\bat )\"?([\w./-]{1,300}\.py)(?:\", line |:)\d+")
_FUNCTION = re.compile(r"File \"?(?:[^\"]{0,300}/)?([\w.<>-]{1,80})\"?, line (\d{1,7}), in ([\w.<>]{1,80})")
_CARETS = re.compile(r"[\s^~]*$")
NEAR = 6
"""Lines between an exception and its frame: the frame's code and carets, and a note of Python."""
SOURCE = 100
"""Characters of a source line that are shown."""
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


def failing_frame(lines: Sequence[str], number: int) -> str:
    """The function, file and source line of the frame that is nearest before an exception, bounded; empty for none.

    The frame of another exception does not count.

    Copies of a log often have the frame after the exception: it counts where no frame is before.
    """
    before = takewhile(lambda at: not is_exception(lines[at]), range(number - 1, max(0, number - NEAR) - 1, -1))
    for at in (*before, *range(number + 1, min(len(lines), number + 2))):
        if match := _FUNCTION.search(lines[at][:LONGEST]):
            source = strip_prefix(lines[at + 1]).strip() if at + 1 < len(lines) and at + 1 != number else ""
            place = f"{match[3]} ({match[1]}:{match[2]})"
            return place if not source or at > number or _CARETS.match(source) else f"{place}: {source[:SOURCE]}"
    return ""


def failing_part(lines: Sequence[str], number: int) -> str:
    """The part of the engine in the frame that is nearest before a line; empty where no frame has a known one."""
    for line in reversed(lines[max(0, number - FRAMES) : number]):
        frame = _FRAME.search(line[:LONGEST])
        part = next((name for path, name in _PARTS if frame and re.search(path, frame[1])), "")
        if part:
            return part
    return ""
