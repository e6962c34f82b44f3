"""What vLLM refuses of speculative_config, once it has read the model and its draft (vllm/config/speculative.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rigwright.engines.vllm.launch_request import LaunchSpec

# Methods whose draft is a model of its own
DRAFTING = ("draft_model", "eagle", "eagle3", "dflash", "medusa", "mlp_speculator")
# Parts of the types of models that give these what lies between their layers (SpeculativeConfig._verify_args)
SHOWING = (
    *("llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe", "nemotron_h", "deepseek_v2"),
    *("deepseek_v3", "kimi_k2", "kimi_k25", "minimax_m2", "gemma4", "laguna"),
)
WATCHING = ("eagle3", "extract_hidden_states", "dflash")
# Keys of configs that count the layers which predict several tokens
PREDICTING = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")


def find_speculation_violations(asked: LaunchSpec, declared: Mapping[str, Any]) -> Iterator[str]:
    """Why an instance would end for it, a line each.

    Args:
        asked: What is judged.
        declared: speculative_config, each key of which `judge` takes.
    """
    model, tokens = declared.get("model"), declared.get("num_speculative_tokens")
    method = declared.get("method") or ("ngram" if model in ("ngram", "[ngram]") else "draft_model")
    if str(method).endswith("_mtp"):
        method = "mtp"
    if method in DRAFTING and not model:
        yield f"speculative_config: method {method} needs a draft model"
    elif (
        not tokens
        and method != "suffix"
        and (not model or asked.draft is None or not _has_prediction_layers(asked.draft.config))
    ):
        yield "speculative_config needs num_speculative_tokens"
    if declared.get("tensor_parallel_size") is not None:
        yield "speculative_config: tensor_parallel_size must be written draft_tensor_parallel_size"
    ranks, own = declared.get("draft_tensor_parallel_size"), asked.size("tensor-parallel-size")
    if model and ranks not in (None, 1, own):
        yield f"speculative_config: draft_tensor_parallel_size must be 1 or the model's, {own}"
    least, most = declared.get("prompt_lookup_min"), declared.get("prompt_lookup_max")
    if method in ("ngram", "ngram_gpu") and least and most and least > most:
        yield f"speculative_config: prompt_lookup_min {least} is more than prompt_lookup_max {most}"
    if method == "suffix":
        yield "speculative_config: method suffix needs arctic-inference, which vLLM does not include"
    yield from _find_model_violations(asked, method, model)
    synthetic = {"synthetic_acceptance_rates", "synthetic_acceptance_length"} & {
        key for key, value in declared.items() if value is not None
    }
    if (declared.get("rejection_sample_method") == "synthetic") != (len(synthetic) == 1):
        yield "speculative_config: rejection_sample_method synthetic and one of its two acceptance keys go together"
    if asked.has("async-scheduling") and method in ("ngram", "medusa", "mlp_speculator", "suffix"):
        yield f"async-scheduling conflicts with the speculative method {method}"


def _find_model_violations(asked: LaunchSpec, method: str, model: object) -> Iterator[str]:
    registered, config = asked.snapshot.registered, asked.model.config
    if method in WATCHING and not any(part in asked.model_type for part in SHOWING):
        yield f"speculative_config: method {method} is not for models of type {asked.model_type}"
    if method == "mtp" and not model:
        known = {*asked.model_types, *asked.model.architectures}
        known &= {*registered["mtp-types"], *registered["mtp-architectures"]}
        if not known and not _has_prediction_layers(config):
            yield f"speculative_config: models of type {asked.model_type} have no MTP layers"
    draft = asked.draft
    if method == "draft_model" and draft and draft.vocabulary and asked.model.vocabulary not in (0, draft.vocabulary):
        yield (
            f"speculative_config: the draft model's vocabulary has {draft.vocabulary} tokens, but the model's has "
            f"{asked.model.vocabulary}"
        )


def _has_prediction_layers(config: Mapping[str, Any]) -> bool:
    inner = [one for one in config.values() if isinstance(one, dict)]
    return any(one.get(key) for one in (config, *inner) for key in (*PREDICTING, "n_predict"))
