"""What llama-server's log betrays: parts of messages of llama.cpp's at 0c1e570, and of CUDA's."""

from __future__ import annotations

from rigwright.engines.log import OF_CUDA, Cause

CAUSES = (
    *OF_CUDA,
    Cause("cudaMalloc failed: out of memory", "model and context are more than a card has free: lower context"),
    Cause("invalid magic characters", "the file is no GGUF, or is damaged", check="W06"),
    Cause("unknown model architecture", "this llama.cpp is older than the model: take a newer engine"),
    Cause("error: invalid argument:", "this llama-server has no such option: its version is another than was judged"),
    Cause("quantized V cache", 'quantised values need flash attention: flash_attention = "on"'),
    Cause("SPLIT_MODE_TENSOR not implemented", 'llama.cpp has none for this model: split_mode = "layer"'),
    Cause("failed to mlock", "not all weights are kept in RAM, and all are served", harmless=True),
)
