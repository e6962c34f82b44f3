"""Constraints of vLLM's engine on launch options, speculative decoding included.

Sources are files of vLLM 0.21.0, of which 0.20.2's say the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rigwright.engines.vllm.launch_spec import CheckpointFacts, LaunchSpec, capability_number
from rigwright.engines.vllm.option_snapshot import OptionSetting, VllmSnapshot
from rigwright.problems import format_count

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
        asked: The request that is judged.
        declared: speculative_config, each key of which `find_option_problems` takes.
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


# EngineArgs.get_batch_defaults (vllm/engine/arg_utils.py), of a server on cards of 70 GiB or more; smaller have less
BATCHED_TOKENS = 8192
# Methods as which a checkpoint's may be read instead (override_quantization_method() in
# vllm/model_executor/layers/quantization/*.py)
READ_AS: Mapping[str, tuple[str, ...]] = {
    "awq": ("awq_marlin", "moe_wna16"),
    "gptq": ("gptq_marlin", "moe_wna16"),
    "auto-round": ("inc",),
    "modelopt": ("modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"),
    "mxfp4": ("gpt_oss_mxfp4",),
    "fp8": ("deepseek_v4_fp8",),
}


def find_constraint_violations(
    snapshot: VllmSnapshot,
    options: Mapping[str, OptionSetting],
    model: CheckpointFacts,
    capabilities: Collection[str],
    cards: int,
    environment: Mapping[str, str] | None = None,
    draft: CheckpointFacts | None = None,
) -> list[str]:
    """Why an instance would end before it serves, a line each.

    Args:
        snapshot: The version that is served with.
        options: All of its command line: name without dashes -> value, each of which `find_option_problems` takes.
        model: The served model.
        capabilities: The compute capabilities of the cards that it runs on, such as 8.6; none for the CPU.
        cards: How many.
        environment: Its variables.
        draft: The model that speculative_config names, where it names one.
    """
    asked = LaunchSpec(snapshot, options, model, capabilities, cards, environment or {}, draft)
    rules = (
        _architecture_violations,
        _parallelism_violations,
        _dtype_violations,
        _quantization_violations,
        _context_violations,
        _batch_violations,
        _kv_cache_violations,
        _option_dependencies,
        _speculation_violations,
    )
    return [text for rule in rules for text in rule(asked)]


def _architecture_violations(asked: LaunchSpec) -> Iterator[str]:
    known, all_ = (asked.snapshot.registered[name] for name in ("architectures", "other-architectures"))
    own = asked.model.architectures
    if not own:
        yield "the model's config.json names no architecture"
    elif not {*own} & {*all_} and not _has_external_code(asked):
        yield (
            f"vLLM {asked.snapshot.version} does not support {', '.join(own)}, the architecture in the model's "
            "config.json"
        )
    elif {*own} & {*all_} and not {*own} & {*known}:
        yield f"{', '.join(own)} does not generate text: instances must answer chat completions"


def _has_external_code(asked: LaunchSpec) -> bool:
    """Whether its code may be in transformers, or came with the model (_try_resolve_transformers in
    vllm/model_executor/models/registry.py).
    """
    own = bool(asked.has("trust-remote-code") and asked.model.config.get("auto_map"))
    return own or asked.text("model-impl") == "transformers"


def _parallelism_violations(asked: LaunchSpec) -> Iterator[str]:
    model, tensor = asked.model, asked.size("tensor-parallel-size")
    pipeline, data = asked.size("pipeline-parallel-size"), asked.size("data-parallel-size")
    for name in ("tensor", "pipeline", "data"):
        if asked.size(f"{name}-parallel-size") < 1:
            yield f"{name}-parallel-size must be at least 1"
    if min(tensor, pipeline, data) < 1:
        return
    context = asked.size("prefill-context-parallel-size")
    if asked.cards and tensor * pipeline * data * context != asked.cards:
        yield (
            f"{tensor} x {pipeline} x {data} ranks (tensor, pipeline, data) are not {format_count(asked.cards, 'card')}"
        )
    if model.heads and model.heads % tensor:
        yield f"{format_count(model.heads, 'attention head')} cannot be divided by tensor-parallel-size {tensor}"
    # QKVParallelLinear in vllm/model_executor/layers/linear.py: each rank has whole ones, or each is on some
    elif model.kv_heads and model.kv_heads % tensor and tensor % model.kv_heads:
        yield f"{format_count(model.kv_heads, 'KV head')} cannot be divided by tensor-parallel-size {tensor}"
    if model.layers and pipeline > model.layers:
        yield f"{format_count(model.layers, 'layer')} cannot be divided by pipeline-parallel-size {pipeline}"
    if asked.has("enable-expert-parallel") and not model.experts:
        yield "enable-expert-parallel: the model has no experts"
    if asked.has("enable-eplb") and not asked.has("enable-expert-parallel"):
        yield "enable-eplb needs enable-expert-parallel"
    if asked.has("enable-eplb") and tensor * data == 1:
        yield "enable-eplb needs several ranks of tensor or data parallelism"
    decode = asked.size("decode-context-parallel-size")
    if decode < 1 or tensor % decode:
        yield f"decode-context-parallel-size {decode} does not divide tensor-parallel-size {tensor}"
    elif (
        decode > 1
        and model.kv_heads
        and not model.config.get("kv_lora_rank")
        and _is_uneven_split(model, tensor, decode)
    ):
        yield f"decode-context-parallel-size {decode}: {tensor} ranks share {format_count(model.kv_heads, 'KV head')}"
    if asked.text("dcp-comm-backend") == "a2a" and decode <= 1:
        yield "dcp-comm-backend a2a needs decode-context-parallel-size above 1"
    if not asked.has("numa-bind") and {"numa-bind-nodes", "numa-bind-cpus"} & asked.options.keys():
        yield "numa-bind-nodes and numa-bind-cpus need numa-bind"
    if asked.has("ray-workers-use-nsight") and asked.text("distributed-executor-backend") != "ray":
        yield 'ray-workers-use-nsight needs distributed-executor-backend = "ray"'


def _is_uneven_split(model: CheckpointFacts, tensor: int, decode: int) -> bool:
    # ModelConfig.verify_with_parallel_config in vllm/config/model.py
    return decode > tensor // model.kv_heads or model.heads // model.kv_heads % decode > 0


def _dtype_violations(asked: LaunchSpec) -> Iterator[str]:
    said = asked.dtype
    if said == "bfloat16" and asked.least_capability and capability_number(asked.least_capability) < 80:
        yield (
            f'dtype bfloat16 needs compute capability 8.0, but a card has {asked.least_capability}: use dtype = "half"'
        )
    if said == "float16" and (refusing := asked.model_types & asked.types_without_float16):
        yield f"dtype half: models of type {', '.join(sorted(refusing))} overflow in it: use bfloat16 or float32"


def _quantization_violations(asked: LaunchSpec) -> Iterator[str]:
    said, own, methods = asked.text("quantization").lower(), asked.model.quantization, asked.snapshot.methods
    if own and own not in methods and own not in READ_AS:
        yield f"vLLM {asked.snapshot.version} does not support {own}, the quantisation of the model's weights"
    elif said == "humming":
        yield "quantization humming needs a package that vLLM does not include"
    elif said and own and said not in (own, *READ_AS.get(own, ())):
        yield f"quantization {said}: the model's weights are quantised as {own}"
    elif said and not own and not methods[said].alone:
        yield f"quantization {said}: the model's weights are not quantised"
    elif said in asked.snapshot.registered["deprecated-quantization"] and not asked.has(
        "allow-deprecated-quantization"
    ):
        yield f"quantization {said} is deprecated: it needs allow-deprecated-quantization"
    else:
        yield from _method_violations(
            asked, [said] if said else [one for one in _compatible_methods(own) if one in methods]
        )


def _compatible_methods(own: str) -> tuple[str, ...]:
    """The methods that weights may be read as; which of several, their own description says."""
    first = READ_AS.get(own, ())[:1]
    return first if own in ("awq", "gptq", "auto-round") else (own, *READ_AS.get(own, ()))


def _method_violations(asked: LaunchSpec, among: Sequence[str]) -> Iterator[str]:
    found = [asked.snapshot.methods[name] for name in among]
    if not found:
        return
    name, least = among[0], min(method.capability for method in found)
    if asked.least_capability and capability_number(asked.least_capability) < least:
        needed = f"{least // 10}.{least % 10}"
        yield f"quantization {name} needs compute capability {needed}, but a card has {asked.least_capability}"
    if asked.dtype not in (taken := {dtype for method in found for dtype in method.dtypes}):
        yield f"quantization {name} supports dtype {' or '.join(sorted(taken))}, not {asked.dtype}"


def _context_violations(asked: LaunchSpec) -> Iterator[str]:
    length, most = asked.number("max-model-len"), asked.model.max_positions
    if length == 0:
        yield "max-model-len must be above 0, or auto"
    if asked.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "0").lower() in ("1", "true") or asked.table(
        "hf-overrides"
    ):
        return
    if length and most and length > max(most, _int_or_zero(asked.model.config.get("model_max_length"))):
        yield f"max-model-len {length:.0f}: the model's limit is {most}, unless VLLM_ALLOW_LONG_MAX_MODEL_LEN is 1"


def _int_or_zero(value: object) -> int:
    return value if type(value) is int else 0


def _batch_violations(asked: LaunchSpec) -> Iterator[str]:
    tokens, sequences = asked.number("max-num-batched-tokens"), asked.number("max-num-seqs")
    length = asked.number("max-model-len")
    length = asked.model.max_positions if length is None or length < 0 else length
    if tokens and sequences and tokens < sequences:
        yield (
            f"max-num-batched-tokens {tokens:.0f} is less than max-num-seqs {sequences:.0f}: each sequence needs "
            "at least one"
        )
    elif (
        not tokens
        and sequences
        and sequences > BATCHED_TOKENS * (2 if asked.text("performance-mode") == "throughput" else 1)
    ):
        yield f"max-num-seqs {sequences:.0f} needs max-num-batched-tokens of at least that"
    if asked.has("enable-chunked-prefill") is False and tokens and length and tokens < length:
        yield (
            f"max-num-batched-tokens {tokens:.0f} is less than max-model-len {length:.0f}, which needs chunked "
            "prefill: remove no-enable-chunked-prefill"
        )
    for name in ("max-num-partial-prefills", "max-long-partial-prefills"):
        if asked.size(name) != 1:
            yield f"{name}: vLLM only accepts 1"


def _kv_cache_violations(asked: LaunchSpec) -> Iterator[str]:
    kind = asked.text("kv-cache-dtype") or "auto"
    name = "attention-backend" if asked.text("attention-backend") else "backend of attention-config"
    said = asked.text("attention-backend") or asked.table("attention-config").get("backend") or ""
    # AttentionConfig.validate_backend_before (vllm/config/attention.py)
    backend = str(said).upper()
    # latent attention and models without any have other backends
    if backend.endswith(("_MLA", "_SPARSE", "MLA")) or asked.model.config.get("kv_lora_rank"):
        return
    computed = ", float32" if asked.dtype == "float32" else ""
    for capability in sorted({*asked.capabilities}):
        found = asked.snapshot.backends.get(kind + computed, {}).get(capability)
        if found is None:
            continue
        if not found:
            yield f"kv-cache-dtype {kind}: no attention backend supports it on compute capability {capability}"
        elif backend in asked.snapshot.backends_known and backend not in found:
            others = ", ".join(found)
            yield (
                f"{name} {backend} does not support kv-cache-dtype {kind} on compute capability "
                f"{capability}: use {others}"
            )


def _option_dependencies(asked: LaunchSpec) -> Iterator[str]:
    """Options that need or exclude others."""
    needs = {"enable-auto-tool-choice": "tool-call-parser", "enable-log-outputs": "enable-log-requests"}
    for name, other in needs.items():
        if asked.has(name) and not (asked.text(other) if other == "tool-call-parser" else asked.has(other)):
            yield f"{name} needs {other}"
    compilation = asked.table("compilation-config")
    for name in ("cudagraph-capture-sizes", "max-cudagraph-capture-size"):
        if name in asked.options and name.replace("-", "_") in compilation:
            yield f"{name} is in compilation-config, too"
    if asked.text("attention-backend") and "backend" in asked.table("attention-config"):
        yield "attention-backend is in attention-config, too"
    if asked.has("enable-mamba-cache-stochastic-rounding") and asked.text("mamba-ssm-cache-dtype") != "float16":
        yield 'enable-mamba-cache-stochastic-rounding needs mamba-ssm-cache-dtype = "float16"'
    if "mamba-block-size" in asked.options and not asked.has("enable-prefix-caching"):
        yield "mamba-block-size needs enable-prefix-caching"
    if asked.text("mm-tensor-ipc") == "torch_shm" and asked.cards > 1:
        yield "mm-tensor-ipc torch_shm only works with one card"


def _speculation_violations(asked: LaunchSpec) -> Iterable[str]:
    declared = asked.table("speculative-config")
    return find_speculation_violations(asked, declared) if declared else ()
