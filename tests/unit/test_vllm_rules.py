"""Command lines that vLLM's parser takes and its engine refuses: of models, cards and options together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rigwright.engines.vllm.engine_constraints import find_constraint_violations
from rigwright.engines.vllm.option_snapshot import OptionSetting, load_snapshot, snapshot_file_name
from rigwright.project_root import ROOT

SNAPSHOT = load_snapshot(ROOT / "catalog" / "flags" / snapshot_file_name("0.21.0"))


@dataclass(frozen=True)
class TinyCheckpoint:
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


def rule_error(
    options: Mapping[str, OptionSetting],
    model: TinyCheckpoint | None = None,
    card: str = "8.6",
    cards: int = 1,
    **other: Any,
) -> list[str]:
    return find_constraint_violations(
        SNAPSHOT, options, model or TinyCheckpoint(), {card} if card else set(), cards, **other
    )


AWQ, FP8, GEMMA = (
    TinyCheckpoint(quantization="awq"),
    TinyCheckpoint(quantization="fp8"),
    TinyCheckpoint(config={"model_type": "gemma3_text"}),
)
MTP = TinyCheckpoint(config={"model_type": "qwen3_next"}, architectures=("Qwen3NextForCausalLM",))
MOE = TinyCheckpoint(experts=128)
OWN = TinyCheckpoint(config={"auto_map": {"AutoModelForCausalLM": "own.Own"}}, architectures=("OwnForCausalLM",))
SPEC: dict[str, Any] = {"method": "mtp", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("options", "model", "card", "cards"),
    [
        ({}, TinyCheckpoint(), "8.6", 1),
        ({}, TinyCheckpoint(), "7.5", 1),
        ({}, TinyCheckpoint(), "", 0),
        ({"dtype": "half"}, TinyCheckpoint(), "7.5", 1),
        ({"dtype": "bfloat16"}, TinyCheckpoint(), "", 0),
        ({"tensor-parallel-size": 4}, TinyCheckpoint(), "8.6", 4),
        ({"tensor-parallel-size": 16}, TinyCheckpoint(), "8.6", 16),
        ({"tensor-parallel-size": 2, "pipeline-parallel-size": "2"}, TinyCheckpoint(), "8.6", 4),
        ({"trust-remote-code": True}, OWN, "8.6", 1),
        ({"quantization": "awq", "dtype": "half"}, AWQ, "7.5", 1),
        ({}, AWQ, "7.5", 1),
        ({"quantization": "awq_marlin"}, AWQ, "8.6", 1),
        ({}, FP8, "8.6", 1),
        ({"quantization": "fp8"}, TinyCheckpoint(), "8.6", 1),
        ({"max-model-len": "40k"}, TinyCheckpoint(), "8.6", 1),
        ({"max-model-len": "auto"}, TinyCheckpoint(), "8.6", 1),
        ({"max-num-seqs": 8, "max-num-batched-tokens": "8k"}, TinyCheckpoint(), "8.6", 1),
        ({"speculative-config": SPEC}, MTP, "8.6", 1),
        ({"speculative-config": {"method": "ngram", "num_speculative_tokens": 3}}, TinyCheckpoint(), "8.6", 1),
        ({"speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}'}, TinyCheckpoint(), "8.6", 1),
        ({"kv-cache-dtype": "fp8"}, TinyCheckpoint(), "7.5", 1),
        ({"kv-cache-dtype": "fp8", "attention-backend": "FLASHINFER"}, TinyCheckpoint(), "12.0", 1),
        ({"enable-expert-parallel": True, "tensor-parallel-size": 2}, MOE, "8.6", 2),
        ({"enable-auto-tool-choice": True, "tool-call-parser": "hermes"}, TinyCheckpoint(), "8.6", 1),
    ],
)
def test_settings_that_would_serve_are_let_through(
    options: dict[str, OptionSetting], model: TinyCheckpoint, card: str, cards: int
) -> None:
    assert rule_error(options, model, card, cards) == []


@pytest.mark.parametrize(
    ("options", "model", "card", "cards", "text"),
    [
        (
            {},
            TinyCheckpoint(architectures=("OwnForCausalLM",)),
            "8.6",
            1,
            "vLLM 0.21.0 does not support OwnForCausalLM",
        ),
        (
            {"trust-remote-code": True},
            TinyCheckpoint(architectures=("OwnForCausalLM",)),
            "8.6",
            1,
            "does not support OwnForCausalLM",
        ),
        ({}, TinyCheckpoint(architectures=()), "8.6", 1, "names no architecture"),
        ({}, TinyCheckpoint(architectures=("BertModel",)), "8.6", 1, "BertModel does not generate text"),
        (
            {"tensor-parallel-size": 3},
            TinyCheckpoint(),
            "8.6",
            3,
            "32 attention heads cannot be divided by tensor-parallel-size 3",
        ),
        (
            {"tensor-parallel-size": 12},
            TinyCheckpoint(heads=24),
            "8.6",
            12,
            "8 KV heads cannot be divided by tensor-parallel-size 12",
        ),
        (
            {"tensor-parallel-size": 2},
            TinyCheckpoint(),
            "8.6",
            1,
            "2 x 1 x 1 ranks (tensor, pipeline, data) are not 1 card",
        ),
        ({"tensor-parallel-size": 0}, TinyCheckpoint(), "8.6", 1, "tensor-parallel-size must be at least 1"),
        ({"pipeline-parallel-size": 2}, TinyCheckpoint(layers=1), "8.6", 2, "1 layer cannot be divided"),
        ({"enable-expert-parallel": True}, TinyCheckpoint(), "8.6", 1, "the model has no experts"),
        ({"enable-eplb": True, "tensor-parallel-size": 2}, MOE, "8.6", 2, "enable-eplb needs enable-expert-parallel"),
        ({"decode-context-parallel-size": 2}, TinyCheckpoint(), "8.6", 1, "does not divide tensor-parallel-size 1"),
        ({"numa-bind-nodes": [0]}, TinyCheckpoint(), "8.6", 1, "need numa-bind"),
        (
            {"dtype": "bfloat16"},
            TinyCheckpoint(),
            "7.5",
            1,
            'needs compute capability 8.0, but a card has 7.5: use dtype = "half"',
        ),
        ({"dtype": "half"}, GEMMA, "8.6", 1, "models of type gemma3_text overflow in it"),
        ({"quantization": "awq"}, AWQ, "8.6", 1, "quantization awq supports dtype float16, not bfloat16"),
        ({"quantization": "fp8"}, AWQ, "8.6", 1, "quantization fp8: the model's weights are quantised as awq"),
        (
            {"quantization": "gptq"},
            TinyCheckpoint(),
            "8.6",
            1,
            "quantization gptq: the model's weights are not quantised",
        ),
        (
            {"quantization": "humming"},
            TinyCheckpoint(),
            "8.6",
            1,
            "quantization humming needs a package that vLLM does not include",
        ),
        ({"dtype": "float32"}, FP8, "8.6", 1, "quantization fp8 supports dtype bfloat16 or float16, not float32"),
        ({"mamba-block-size": 64}, MTP, "8.6", 1, "mamba-block-size needs enable-prefix-caching"),
        (
            {"decode-context-parallel-size": 2, "tensor-parallel-size": 2},
            *(TinyCheckpoint(), "8.6", 2, "2 ranks share 8 KV heads"),
        ),
        ({}, TinyCheckpoint(quantization="exl2"), "8.6", 1, "does not support exl2"),
        ({"quantization": "experts_int8"}, TinyCheckpoint(), "7.5", 1, "experts_int8 needs compute capability 8.0"),
        (
            {"quantization": "fbgemm_fp8"},
            TinyCheckpoint(quantization="fbgemm_fp8"),
            "8.6",
            1,
            "needs allow-deprecated-quantization",
        ),
        ({"max-model-len": "64K"}, TinyCheckpoint(), "8.6", 1, "the model's limit is 40960"),
        ({"max-model-len": 0}, TinyCheckpoint(), "8.6", 1, "max-model-len must be above 0"),
        ({"max-num-seqs": 16, "max-num-batched-tokens": 8}, TinyCheckpoint(), "8.6", 1, "is less than max-num-seqs 16"),
        ({"max-num-seqs": 9000}, TinyCheckpoint(), "8.6", 1, "needs max-num-batched-tokens of at least that"),
        (
            {"no-enable-chunked-prefill": True, "max-num-batched-tokens": 2048},
            *(TinyCheckpoint(), "8.6", 1, "is less than max-model-len 40960"),
        ),
        ({"max-num-partial-prefills": 2}, TinyCheckpoint(), "8.6", 1, "vLLM only accepts 1"),
        ({"max-long-partial-prefills": "2"}, TinyCheckpoint(), "8.6", 1, "vLLM only accepts 1"),
        ({"speculative-config": SPEC}, TinyCheckpoint(), "8.6", 1, "type qwen3 have no MTP layers"),
        ({"speculative-config": {"method": "mtp"}}, MTP, "8.6", 1, "needs num_speculative_tokens"),
        (
            {"speculative-config": {**SPEC, "method": "eagle3"}},
            TinyCheckpoint(),
            "8.6",
            1,
            "eagle3 needs a draft model",
        ),
        ({"speculative-config": {**SPEC, "method": "suffix"}}, TinyCheckpoint(), "8.6", 1, "needs arctic-inference"),
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
            *(TinyCheckpoint(), "8.6", 1, "must be 1 or the model's, 1"),
        ),
        (
            {"kv-cache-dtype": "fp8", "attention-backend": "FLASH_ATTN"},
            TinyCheckpoint(),
            "8.6",
            1,
            "FLASHINFER, TRITON_ATTN",
        ),
        *(
            (options, TinyCheckpoint(), "7.5", 1, f"{name} FLASH_ATTN does not support kv-cache-dtype auto")
            for options, name in (
                ({"attention-backend": "FLASH_ATTN"}, "attention-backend"),
                ({"attention-config": {"backend": "flash_attn"}}, "backend of attention-config"),
                ({"attention-config": '{"backend": "FLASH_ATTN"}'}, "backend of attention-config"),
            )
        ),
        (
            {"enable-auto-tool-choice": True},
            TinyCheckpoint(),
            "8.6",
            1,
            "enable-auto-tool-choice needs tool-call-parser",
        ),
        ({"enable-log-outputs": True}, TinyCheckpoint(), "8.6", 1, "enable-log-outputs needs enable-log-requests"),
        (
            {"max-cudagraph-capture-size": 8, "compilation-config": {"max_cudagraph_capture_size": 8}},
            *(TinyCheckpoint(), "8.6", 1, "is in compilation-config, too"),
        ),
    ],
)
def test_settings_that_would_end_the_engine_are_refused(
    options: dict[str, OptionSetting], model: TinyCheckpoint, card: str, cards: int, text: str
) -> None:
    found = rule_error(options, model, card, cards)
    assert len(found) == 1, found
    assert text in found[0]


def test_the_oldest_card_decides() -> None:
    assert (
        len(
            find_constraint_violations(
                SNAPSHOT, {"dtype": "bfloat16", "tensor-parallel-size": 2}, TinyCheckpoint(), {"12.0", "7.5"}, 2
            )
        )
        == 1
    )


def test_a_variable_lets_longer_texts_be_tried() -> None:
    assert rule_error({"max-model-len": 99_999}, environment={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}) == []


def test_a_draft_model_has_the_same_vocabulary() -> None:
    options: dict[str, OptionSetting] = {"speculative-config": {"model": "d", "num_speculative_tokens": 2}}
    assert rule_error(options, draft=TinyCheckpoint()) == []
    assert "vocabulary has 7 tokens" in rule_error(options, draft=TinyCheckpoint(vocabulary=7))[0]


@pytest.mark.parametrize("kind", [[], {}, 1, None, ["qwen3"]], ids=repr)
def test_a_type_of_model_that_is_no_text_is_only_unknown(kind: object) -> None:
    assert rule_error({"dtype": "half"}, TinyCheckpoint(config={"model_type": kind})) == []
    assert rule_error({}, TinyCheckpoint(config={"model_type": kind})) == []
