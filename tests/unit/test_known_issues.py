"""Known problems of instances on their cards, and whether they fit."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rigwright.engines.known_issue_rule import PlacedInstance
from rigwright.engines.known_issues import describe_issues
from rigwright.engines.llama_cpp.catalog_keys import LlamaVariant as LlamaVariant
from rigwright.engines.vllm.catalog_keys import VllmEngine as VllmEngine
from rigwright.engines.vllm.catalog_keys import VllmVariant as VllmVariant
from rigwright.model.catalog_schema import Card
from rigwright.model.instance import Instance, ModelPart
from rigwright.supply.artefact import Artefact, GgufMetadata, KvCacheSize
from tests.unit import image_samples
from tests.unit.checkpoints import QWEN3
from tests.unit.samples import sample_engine, sample_instance

GIB = 1 << 30
INSTANCE = sample_instance()
HYBRID = {"num_hidden_layers": 64, "num_key_value_heads": 4, "head_dim": 256, "full_attention_interval": 4}


def card(gib: int, capability: str = "8.6") -> Card:
    return Card(name="card", pci_ids=("10de:2204",), capability=capability, vram_mib=gib << 10)


def weights(path: str, size: int, header: GgufMetadata | None = None, text: str | None = None) -> Artefact:
    row = INSTANCE.parts[0].files[0]
    return row.model_copy(
        update={"file": path, "size": size, "header": header, "text": text, "folder": None, "group": "model"}
    )


def llama(cards: tuple[Card, ...], size: int, header: GgufMetadata | None, **keys: Any) -> PlacedInstance:
    variant = LlamaVariant(engine="x", model="y", cards=len(cards), **{"context": 131072, **keys})
    part = ModelPart("model", (weights("q4.gguf", size, header),))
    made = replace(INSTANCE, variant=variant, engine=sample_engine(), parts=(part,), cards=tuple(range(len(cards))))
    return PlacedInstance(made, cards, frozenset())


def vllm(cards: tuple[Card, ...], size: int, config: dict[str, Any], *patches: str, **keys: Any) -> PlacedInstance:
    variant = VllmVariant(engine="x", model="y", cards=len(cards), **{"max_model_len": 32768, **keys})
    text = json.dumps(config)
    rows = (
        weights("config.json", len(text), text=text),
        weights("model.safetensors", size),
        weights("tokenizer.json", 9),
    )
    made: Instance = replace(INSTANCE, variant=variant, engine=VllmEngine(kind="vllm", env="vllm"))
    made = replace(made, parts=(ModelPart("model", rows),), cards=tuple(range(len(cards))))
    return PlacedInstance(made, cards, frozenset(patches))


def issue_texts(one: PlacedInstance) -> tuple[list[str], list[str]]:
    return list(describe_issues(one, refused=True)), list(describe_issues(one, refused=False))


# 16 layers with 4 heads of 256 numbers, as Qwen3.6-27B: 64 KiB a token in f16.
KEPT = GgufMetadata(architecture="qwen35", off_card=GIB, cache=KvCacheSize(keys=16 * 1024, values=16 * 1024))
ONLY = "(only weights and KV cache)"
FITS: dict[str, tuple[PlacedInstance, tuple[list[str], list[str]]]] = {
    "it fits": (llama((card(24),), 17 * GIB, KEPT), ([], [])),
    "just": (llama((card(24),), 17 * GIB, KEPT, parallel=4), ([], [])),
    "not this context": (
        llama((card(24),), 18 * GIB, KEPT),
        ([], [f"needs 25.0 of 24.0 GiB: context = 114688 would fit {ONLY}"]),
    ),
    "with a smaller type of cache": (llama((card(24),), 18 * GIB, KEPT, cache_type_v="q8_0"), ([], [])),
    "not next to its weights": (
        llama((card(24),), 25 * GIB, KEPT, context=4096),
        ([], [f"needs 24.2 of 24.0 GiB: no context fits next to its weights {ONLY}"]),
    ),
    "not its weights": (
        llama((card(24),), 26 * GIB, KEPT),
        ([f"its weights need 25.0 of 24.0 GiB: use more cards, or a smaller model {ONLY}"], []),
    ),
    "on two cards": (llama((card(24), card(24)), 26 * GIB, KEPT), ([], [])),
    "on the CPU": (llama((), 26 * GIB, KEPT), ([], [])),
    "a lock of before": (llama((card(24),), 26 * GIB, None), ([], [])),
    "a cache that nobody knows": (llama((card(24),), 24 * GIB, GgufMetadata(architecture="new")), ([], [])),
    "partly in RAM": (llama((card(24),), 26 * GIB, KEPT, flags={"n-cpu-moe": "9"}), ([], [])),
    "a cache in RAM": (llama((card(24),), 18 * GIB, KEPT, flags={"no-kv-offload": True}), ([], [])),
    "windows": (
        llama(
            (card(24),),
            22 * GIB,
            GgufMetadata(cache=KvCacheSize(keys=0, values=0, window=1024, window_keys=65536, window_values=65536)),
            parallel=4,
        ),
        ([], []),
    ),
    "windows that keep all": (
        llama(
            (card(24),),
            22 * GIB,
            GgufMetadata(cache=KvCacheSize(keys=0, values=0, window=1024, window_keys=65536, window_values=65536)),
            flags={"swa-full": True},
        ),
        ([], [f"needs 54.0 of 24.0 GiB: context = 8192 would fit {ONLY}"]),
    ),
    "a checkpoint": (vllm((card(24),), 17 * GIB, HYBRID), ([], [])),
    "not this length": (
        vllm((card(24),), 21 * GIB, HYBRID, gpu_memory_utilization=0.92),
        ([], [f"needs 23.0 of 22.1 GiB: max_model_len = 17408 would fit {ONLY}"]),
    ),
    "in eight bits": (vllm((card(24),), 21 * GIB, HYBRID, kv_cache_dtype="fp8_e5m2"), ([], [])),
    "twice, one beside the other": (
        vllm((card(24), card(24)), 25 * GIB, HYBRID, data_parallel_size=2),
        ([f"its weights need 50.0 of 48.0 GiB: use more cards, or a smaller model {ONLY}"], []),
    ),
    "made smaller while it is loaded": (vllm((card(24),), 30 * GIB, HYBRID, quantization="fp8"), ([], [])),
    "a type of cache of another size": (vllm((card(24),), 21 * GIB, HYBRID, kv_cache_dtype="turboquant"), ([], [])),
}


@pytest.mark.parametrize("case", FITS)
def test_whether_it_fits(case: str) -> None:
    one, expected = FITS[case]
    assert issue_texts(one) == expected


TURING = (card(22, "7.5"), card(22, "7.5"))


def with_wheels(cards: tuple[Card, ...], *wheels: tuple[str, str], **keys: Any) -> PlacedInstance:
    """An instance of vLLM in an environment that has these packages locked: name and version of each."""
    made = vllm(cards, GIB, QWEN3, **keys)
    row = INSTANCE.parts[0].files[0]
    rows = tuple(row.model_copy(update={"name": name, "version": version}) for name, version in wheels)
    return replace(made, instance=replace(made.instance, artefacts=rows))


def in_image(version: str) -> PlacedInstance:
    made = vllm(TURING, GIB, QWEN3)
    return replace(
        made, instance=replace(made.instance, engine=image_samples.ENGINE.model_copy(update={"version": version}))
    )


PADDED = "FlashInfer {} fails at the first prompt on compute capability 7.5"
DROPPED = "vLLM {} has no FlashInfer for compute capability 7.5"
ATTENTION: dict[str, tuple[PlacedInstance, list[str]]] = {
    "as locked": (with_wheels(TURING, ("vllm", "0.21.0"), ("flashinfer-python", "0.6.8.post1")), []),
    "the last version without padding": (with_wheels(TURING, ("flashinfer_python", "0.6.9")), []),
    "the first with it": (with_wheels(TURING, ("flashinfer-python", "0.6.10")), [PADDED.format("0.6.10")]),
    "vLLM 0.22": (
        with_wheels(TURING, ("vllm", "0.22.0"), ("flashinfer-python", "0.6.11.post2")),
        [PADDED.format("0.6.11.post2")],
    ),
    "mended": (with_wheels(TURING, ("vllm", "0.23.0"), ("flashinfer-python", "0.6.16")), []),
    "another card": (with_wheels((card(24),), ("vllm", "0.24.0"), ("flashinfer-python", "0.6.12")), []),
    "another backend": (
        with_wheels(TURING, ("flashinfer-python", "0.6.12"), flags={"attention-backend": "TRITON_ATTN"}),
        [],
    ),
    "vLLM 0.24": (with_wheels(TURING, ("vllm", "0.24.0"), ("flashinfer-python", "0.6.12")), [DROPPED.format("0.24.0")]),
    "an image of 0.21": (in_image("0.21.0"), []),
    "an image of 0.22": (in_image("0.22.0"), [PADDED.format("0.6.11.post2")]),
    "an image of 0.33": (in_image("0.33.1"), [DROPPED.format("0.33.1")]),
    "a version of another form": (with_wheels(TURING, ("vllm", "nightly"), ("flashinfer-python", "main")), []),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention_on_turing_is_warned_of(case: str) -> None:
    one, expected = ATTENTION[case]
    refused, warned = issue_texts(one)
    assert (refused, [text.partition(" (")[0].partition(":")[0] for text in warned]) == ([], expected)


MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}, "flags": {"enable-prefix-caching": True}}
POISON: dict[str, tuple[PlacedInstance, list[str], list[str]]] = {
    "prefix caching with MTP silently gives wrong answers on models with linear attention: use the patch": (
        vllm((card(32),), GIB, HYBRID, **MTP),
        [],
        ["prefix caching with MTP silently"],
    ),
    "with the patch": (vllm((card(32),), GIB, HYBRID, "mamba-prefix-cache-mtp", **MTP), [], []),
    "of a model without linear attention": (vllm((card(32),), GIB, QWEN3, **MTP), [], []),
    "without MTP": (vllm((card(32),), GIB, HYBRID, flags=MTP["flags"]), [], []),
    "without CUDA graphs": (
        vllm((card(32),), GIB, QWEN3, flags={"enforce-eager": True}),
        [],
        ["enforce-eager switches CUDA graphs and compilation off"],
    ),
    "without CUDA graphs, on the CPU": (vllm((), GIB, QWEN3, flags={"enforce-eager": True}), [], []),
    "a long prompt on one card": (
        vllm((card(24),), GIB, HYBRID, max_model_len=65536),
        [],
        ["prompts longer than 50000 tokens have run out of memory"],
    ),
    "on two": (vllm((card(24), card(24)), GIB, HYBRID, max_model_len=65536), [], []),
    "on a large one": (vllm((card(32),), GIB, HYBRID, max_model_len=65536), [], []),
    "quantised values without flash attention": (
        llama((card(24),), GIB, KEPT, cache_type_v="q8_0", flash_attention="off"),
        ["cache_type_v q8_0 needs flash attention"],
        [],
    ),
    "quantised keys without it": (llama((card(24),), GIB, KEPT, cache_type_k="q8_0", flash_attention="off"), [], []),
    "bfloat16 on Turing": (llama(TURING, GIB, KEPT, cache_type_k="bf16"), [], ["a bf16 KV cache is slow on"]),
    "bfloat16 on Ampere": (llama((card(24),), GIB, KEPT, cache_type_k="bf16"), [], []),
    "layers in parts": (llama(TURING, GIB, KEPT, split_mode="tensor"), [], []),
    "layers in parts without flash attention": (
        llama(TURING, GIB, KEPT, split_mode="tensor", flash_attention="off"),
        ["split_mode tensor needs flash attention"],
        [],
    ),
    "layers in parts of a model that has none": (
        llama(TURING, GIB, GgufMetadata(architecture="deepseek2"), split_mode="tensor"),
        ["split_mode tensor: llama.cpp does not support it for deepseek2"],
        [],
    ),
    "rows, and experts in RAM": (
        llama(TURING, GIB, KEPT, split_mode="row", flags={"cpu-moe": True}),
        ["split_mode row and flags.cpu-moe are mutually exclusive"],
        [],
    ),
    "layers, and experts in RAM": (llama(TURING, GIB, KEPT, split_mode="layer", flags={"cpu-moe": True}), [], []),
}


@pytest.mark.parametrize("case", POISON)
def test_known_problems(case: str) -> None:
    one, refused, warned = POISON[case]
    for found, expected in zip(issue_texts(one), (refused, warned), strict=True):
        assert len(found) == len(expected), found
        assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found
