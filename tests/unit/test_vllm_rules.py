"""What vLLM's parser takes and its engine refuses: of models, cards and options together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rigwright.engines.vllm.rules import refusals
from rigwright.engines.vllm.snapshot import Value, file_name, read
from rigwright.paths import ROOT

SNAPSHOT = read(ROOT / "catalog" / "flags" / file_name("0.21.0"))


@dataclass(frozen=True)
class Tiny:
    """A model, as its config.json says."""

    config: Mapping[str, Any] = field(default_factory=lambda: {"model_type": "qwen3"})
    architectures: tuple[str, ...] = ("Qwen3ForCausalLM",)
    heads: int = 32
    kv_heads: int = 8
    layers: int = 36
    vocabulary: int = 151_936
    dtype: str = "bfloat16"
    quantization: str = ""
    max_positions: int = 40_960
    experts: int = 0


def said(
    options: Mapping[str, Value], model: Tiny | None = None, card: str = "8.6", cards: int = 1, **other: Any
) -> list[str]:
    return refusals(SNAPSHOT, options, model or Tiny(), {card} if card else set(), cards, **other)


AWQ, FP8, GEMMA = Tiny(quantization="awq"), Tiny(quantization="fp8"), Tiny(config={"model_type": "gemma3_text"})
MTP = Tiny(config={"model_type": "qwen3_next"}, architectures=("Qwen3NextForCausalLM",))
MOE = Tiny(experts=128)
OWN = Tiny(config={"auto_map": {"AutoModelForCausalLM": "own.Own"}}, architectures=("OwnForCausalLM",))
SPEC: dict[str, Any] = {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("options", "model", "card", "cards"),
    [
        ({}, Tiny(), "8.6", 1),
        ({}, Tiny(), "7.5", 1),
        ({}, Tiny(), "", 0),
        ({"dtype": "half"}, Tiny(), "7.5", 1),
        ({"dtype": "bfloat16"}, Tiny(), "", 0),
        ({"tensor-parallel-size": 4}, Tiny(), "8.6", 4),
        ({"tensor-parallel-size": 16}, Tiny(), "8.6", 16),
        ({"tensor-parallel-size": 2, "pipeline-parallel-size": "2"}, Tiny(), "8.6", 4),
        ({"trust-remote-code": True}, OWN, "8.6", 1),
        ({"quantization": "awq", "dtype": "half"}, AWQ, "7.5", 1),
        ({}, AWQ, "7.5", 1),
        ({"quantization": "awq_marlin"}, AWQ, "8.6", 1),
        ({}, FP8, "8.6", 1),
        ({"quantization": "fp8"}, Tiny(), "8.6", 1),
        ({"max-model-len": "40k"}, Tiny(), "8.6", 1),
        ({"max-model-len": "auto"}, Tiny(), "8.6", 1),
        ({"max-num-seqs": 8, "max-num-batched-tokens": "8k"}, Tiny(), "8.6", 1),
        ({"speculative-config": SPEC}, MTP, "8.6", 1),
        ({"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}, Tiny(), "8.6", 1),
        ({"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}'}, Tiny(), "8.6", 1),
        ({"kv-cache-dtype": "fp8"}, Tiny(), "7.5", 1),
        ({"kv-cache-dtype": "fp8", "attention-backend": "FLASHINFER"}, Tiny(), "12.0", 1),
        ({"enable-expert-parallel": True, "tensor-parallel-size": 2}, MOE, "8.6", 2),
        ({"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}, Tiny(), "8.6", 1),
    ],
)
def test_what_would_serve_is_let_through(options: dict[str, Value], model: Tiny, card: str, cards: int) -> None:
    assert said(options, model, card, cards) == []


@pytest.mark.parametrize(
    ("options", "model", "card", "cards", "text"),
    [
        ({}, Tiny(architectures=("OwnForCausalLM",)), "8.6", 1, "vLLM 0.21.0 does not support OwnForCausalLM"),
        (
            {"trust-remote-code": True},
            Tiny(architectures=("OwnForCausalLM",)),
            "8.6",
            1,
            "does not support OwnForCausalLM",
        ),
        ({}, Tiny(architectures=()), "8.6", 1, "names no architecture"),
        ({}, Tiny(architectures=("BertModel",)), "8.6", 1, "BertModel does not generate text"),
        (
            {"tensor-parallel-size": 3},
            Tiny(),
            "8.6",
            3,
            "32 attention heads cannot be divided by tensor-parallel-size 3",
        ),
        (
            {"tensor-parallel-size": 12},
            Tiny(heads=24),
            "8.6",
            12,
            "8 KV heads cannot be divided by tensor-parallel-size 12",
        ),
        ({"tensor-parallel-size": 2}, Tiny(), "8.6", 1, "2 x 1 x 1 ranks (tensor, pipeline, data) are not 1 card"),
        ({"tensor-parallel-size": 0}, Tiny(), "8.6", 1, "tensor-parallel-size must be at least 1"),
        ({"pipeline-parallel-size": 2}, Tiny(layers=1), "8.6", 2, "1 layer cannot be divided"),
        ({"enable-expert-parallel": True}, Tiny(), "8.6", 1, "the model has no experts"),
        ({"enable-eplb": True, "tensor-parallel-size": 2}, MOE, "8.6", 2, "enable-eplb needs enable-expert-parallel"),
        ({"decode-context-parallel-size": 2}, Tiny(), "8.6", 1, "does not divide tensor-parallel-size 1"),
        ({"numa-bind-nodes": [0]}, Tiny(), "8.6", 1, "need numa-bind"),
        (
            {"dtype": "bfloat16"},
            Tiny(),
            "7.5",
            1,
            'needs compute capability 8.0, but a card has 7.5: use dtype = "half"',
        ),
        ({"dtype": "half"}, GEMMA, "8.6", 1, "models of type gemma3_text overflow in it"),
        ({"quantization": "awq"}, AWQ, "8.6", 1, "quantization awq supports dtype float16, not bfloat16"),
        ({"quantization": "fp8"}, AWQ, "8.6", 1, "quantization fp8: the model's weights are quantised as awq"),
        ({"quantization": "gptq"}, Tiny(), "8.6", 1, "quantization gptq: the model's weights are not quantised"),
        (
            {"quantization": "humming"},
            Tiny(),
            "8.6",
            1,
            "quantization humming needs a package that vLLM does not include",
        ),
        ({"dtype": "float32"}, FP8, "8.6", 1, "quantization fp8 supports dtype bfloat16 or float16, not float32"),
        ({"mamba-block-size": 64}, MTP, "8.6", 1, "mamba-block-size needs enable-prefix-caching"),
        (
            {"decode-context-parallel-size": 2, "tensor-parallel-size": 2},
            *(Tiny(), "8.6", 2, "2 ranks share 8 KV heads"),
        ),
        ({}, Tiny(quantization="exl2"), "8.6", 1, "does not support exl2"),
        ({"quantization": "experts_int8"}, Tiny(), "7.5", 1, "experts_int8 needs compute capability 8.0"),
        (
            {"quantization": "fbgemm_fp8"},
            Tiny(quantization="fbgemm_fp8"),
            "8.6",
            1,
            "needs allow-deprecated-quantization",
        ),
        ({"max-model-len": "64K"}, Tiny(), "8.6", 1, "the model's limit is 40960"),
        ({"max-model-len": 0}, Tiny(), "8.6", 1, "max-model-len must be above 0"),
        ({"max-num-seqs": 16, "max-num-batched-tokens": 8}, Tiny(), "8.6", 1, "is less than max-num-seqs 16"),
        ({"max-num-seqs": 9000}, Tiny(), "8.6", 1, "needs max-num-batched-tokens of at least that"),
        (
            {"no-enable-chunked-prefill": True, "max-num-batched-tokens": 2048},
            *(Tiny(), "8.6", 1, "is less than max-model-len 40960"),
        ),
        ({"max-num-partial-prefills": 2}, Tiny(), "8.6", 1, "vLLM only accepts 1"),
        ({"max-long-partial-prefills": "2"}, Tiny(), "8.6", 1, "vLLM only accepts 1"),
        ({"speculative-config": SPEC}, Tiny(), "8.6", 1, "type qwen3 have no MTP layers"),
        ({"speculative-config": {"method": "mtp"}}, MTP, "8.6", 1, "needs num_speculative_tokens"),
        ({"speculative-config": {**SPEC, "method": "eagle3"}}, Tiny(), "8.6", 1, "eagle3 needs a draft model"),
        ({"speculative-config": {**SPEC, "method": "suffix"}}, Tiny(), "8.6", 1, "needs arctic-inference"),
        ({"speculative-config": {**SPEC, "method": "dflash", "model": "d"}}, GEMMA, "8.6", 1, "not for models of type"),
        (
            {"speculative-config": {**SPEC, "tensor_parallel_size": 1}},
            MTP,
            "8.6",
            1,
            "must be written draft_tensor_parallel_size",
        ),
        (
            {"speculative-config": {"model": "d", "num_speculative_tokens": 1, "draft_tensor_parallel_size": 3}},
            *(Tiny(), "8.6", 1, "must be 1 or the model's, 1"),
        ),
        ({"kv-cache-dtype": "fp8", "attention-backend": "FLASH_ATTN"}, Tiny(), "8.6", 1, "FLASHINFER, TRITON_ATTN"),
        *(
            (
                options,
                Tiny(),
                "7.5",
                1,
                f"{name} FLASH_ATTN does not support kv-cache-dtype auto",
            )
            for options, name in (
                ({"attention-backend": "FLASH_ATTN"}, "attention-backend"),
                ({"attention-config": {"backend": "flash_attn"}}, "backend of attention-config"),
                ({"attention-config": '{"backend": "FLASH_ATTN"}'}, "backend of attention-config"),
            )
        ),
        ({"enable-auto-tool-choice": True}, Tiny(), "8.6", 1, "enable-auto-tool-choice needs tool-call-parser"),
        ({"enable-log-outputs": True}, Tiny(), "8.6", 1, "enable-log-outputs needs enable-log-requests"),
        (
            {"max-cudagraph-capture-size": 8, "compilation-config": {"max_cudagraph_capture_size": 8}},
            *(Tiny(), "8.6", 1, "is in compilation-config, too"),
        ),
    ],
)
def test_what_the_engine_would_end_with_is_refused(
    options: dict[str, Value], model: Tiny, card: str, cards: int, text: str
) -> None:
    found = said(options, model, card, cards)
    assert len(found) == 1, found
    assert text in found[0]


def test_the_oldest_card_decides() -> None:
    assert len(refusals(SNAPSHOT, {"dtype": "bfloat16", "tensor-parallel-size": 2}, Tiny(), {"12.0", "7.5"}, 2)) == 1


def test_a_variable_lets_longer_texts_be_tried() -> None:
    assert said({"max-model-len": 99_999}, environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}) == []


def test_a_draft_model_has_the_same_vocabulary() -> None:
    options: dict[str, Value] = {"speculative-config": {"model": "d", "num_speculative_tokens": 2}}
    assert said(options, draft=Tiny()) == []
    assert "vocabulary has 7 tokens" in said(options, draft=Tiny(vocabulary=7))[0]


@pytest.mark.parametrize("kind", [[], {}, 1, None, ["qwen3"]], ids=repr)
def test_a_type_of_model_that_is_no_text_is_only_unknown(kind: object) -> None:
    assert said({"dtype": "half"}, Tiny(config={"model_type": kind})) == []
    assert said({}, Tiny(config={"model_type": kind})) == []
