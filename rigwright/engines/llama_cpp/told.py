"""What llama-server tells: what its log betrays, and what it counts, both at 0c1e570."""

from __future__ import annotations

from rigwright.engines.log import OF_CUDA, Cause
from rigwright.engines.metrics import Names

CAUSES = (
    *OF_CUDA,
    Cause("cudaMalloc failed: out of memory", "model and context are more than a card has free: lower context"),
    Cause("failed to allocate buffer for kv cache", "the context is more than a card has free: lower context"),
    Cause("invalid magic characters", "the file is no GGUF, or is damaged", check="W06"),
    Cause("unknown model architecture", "this llama.cpp is older than the model: take a newer engine"),
    Cause("error: invalid argument:", "this llama-server has no such option: its version is another than was judged"),
    Cause("quantized V cache", 'quantised values need flash attention: flash_attention = "on"'),
    Cause("SPLIT_MODE_TENSOR not implemented", 'llama.cpp has none for this model: split_mode = "layer"'),
    Cause("failed to mlock", "not all weights are kept in RAM, and all are served", harmless=True),
)
# Of the KV cache it says nothing. Calls of llama_decode() are counted without those of a draft, and tokens once their
# request has ended.
COUNTS = Names(
    progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    prompt_tokens=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    tokens="llamacpp:tokens_predicted_total",
    drafts="llamacpp:spec_decode_num_drafts_total",
    draft_tokens="llamacpp:spec_decode_num_draft_tokens_total",
    accepted="llamacpp:spec_decode_num_accepted_tokens_total",
)
