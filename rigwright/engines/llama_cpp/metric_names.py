"""What llama-server tells: what its log betrays, and what it counts, both at 0c1e570."""

from __future__ import annotations

from rigwright.engines.metrics import MetricNames

# Of the KV cache it says nothing. Calls of llama_decode() are counted without those of a draft, and tokens once their
# request has ended.
METRIC_NAMES = MetricNames(
    progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    prompt_tokens=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    tokens="llamacpp:tokens_predicted_total",
    drafts="llamacpp:spec_decode_num_drafts_total",
    draft_tokens="llamacpp:spec_decode_num_draft_tokens_total",
    accepted="llamacpp:spec_decode_num_accepted_tokens_total",
)
