"""The memory of attention for tokens, by a GGUF's header and by a config.json."""

from typing import Any

import pytest

from rigwright.supply.artefact import KvCacheSize
from rigwright.weights.kv_cache_size import MetadataValue, config_kv_cache, gguf_kv_cache

PLAIN: dict[str, MetadataValue] = {
    "block_count": 4,
    "embedding_length": 512,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
}
ALL = KvCacheSize(keys=4 * 128, values=4 * 128)
# As Qwen3.6-27B has it: 48 of its 64 layers are linear attention, the others have 4 heads of 256 numbers.
HYBRID: dict[str, MetadataValue] = {
    "block_count": 65,
    "nextn_predict_layers": 1,
    "attention.head_count": 24,
    "attention.head_count_kv": 4,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "full_attention_interval": 4,
    "ssm.state_size": 128,
}
SAID: dict[str, tuple[dict[str, MetadataValue], KvCacheSize | None]] = {
    "every layer": (PLAIN, ALL),
    "a head of its own for each query": (
        {key: one for key, one in PLAIN.items() if key != "attention.head_count_kv"},
        KvCacheSize(keys=4 * 512, values=4 * 512),
    ),
    "heads of another size": (
        PLAIN | {"attention.key_length": 192, "attention.value_length": 128},
        KvCacheSize(keys=4 * 384, values=4 * 256),
    ),
    "keys and values as one": (
        PLAIN | {"attention.key_length": 576, "attention.key_length_mla": 192, "attention.head_count_kv": 1},
        KvCacheSize(keys=4 * 576, values=0),
    ),
    "each fourth layer": (HYBRID, KvCacheSize(keys=16 * 1024, values=16 * 1024)),
    "a list of layers that keep nothing": (
        PLAIN | {"attention.recurrent_layers": [True, True, False, True]},
        KvCacheSize(keys=128, values=128),
    ),
    "no heads where nothing is kept": (
        PLAIN | {"attention.head_count_kv": [0, 2, 0, 2], "ssm.state_size": 16},
        KvCacheSize(keys=256, values=256),
    ),
    "nothing is kept": (PLAIN | {"attention.head_count_kv": 0, "ssm.state_size": 16}, KvCacheSize(keys=0, values=0)),
    "layers of two kinds, and nobody says which": (PLAIN | {"ssm.state_size": 16}, None),
    "a window by a list": (
        PLAIN
        | {"attention.sliding_window": 1024, "attention.sliding_window_pattern": [True, True, True, False]}
        | {"attention.key_length_swa": 32},
        KvCacheSize(keys=128, values=128, window=1024, window_keys=3 * 64, window_values=3 * 128),
    ),
    "a window by a number": (
        PLAIN | {"attention.sliding_window": 64, "attention.sliding_window_pattern": 2},
        KvCacheSize(keys=256, values=256, window=64, window_keys=256, window_values=256),
    ),
    "a window, and nobody says whose": (PLAIN | {"attention.sliding_window": 64}, None),
    "layers that read what others keep": (PLAIN | {"attention.shared_kv_layers": 3}, KvCacheSize(keys=128, values=128)),
    "a projector": ({"vision.block_count": 27}, None),
    "too many layers": (PLAIN | {"block_count": 1 << 31}, None),
    "heads that are none": (PLAIN | {"attention.head_count": 0}, None),
    "words for numbers": (PLAIN | {"attention.head_count": "many"}, None),
    "less than nothing": (PLAIN | {"attention.head_count_kv": [-1, -1, -1, -1]}, None),
    "more than there is": (PLAIN | {"attention.key_length": 1 << 60}, None),
}


@pytest.mark.parametrize("case", SAID)
def test_facts_of_a_gguf(case: str) -> None:
    said, kept = SAID[case]
    assert gguf_kv_cache("x", {f"x.{key}": one for key, one in said.items()}) == kept


@pytest.mark.parametrize(("architecture", "full"), [("qwen35", 1), ("gemma2", 2)])
def test_llama_cpps_own_facts_about_architectures(architecture: str, full: int) -> None:
    more: dict[str, MetadataValue] = {"attention.sliding_window": 64} if architecture == "gemma2" else {}
    found = gguf_kv_cache(architecture, {f"{architecture}.{key}": one for key, one in (PLAIN | more).items()})
    assert found
    assert found.keys == full * 128


CONFIGS: dict[str, tuple[dict[str, Any], KvCacheSize | None]] = {
    "every layer": ({}, ALL),
    "each fourth": ({"full_attention_interval": 4}, KvCacheSize(keys=128, values=128)),
    "by a list": ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, KvCacheSize(keys=128, values=128)),
    "windows": (
        {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 512},
        KvCacheSize(keys=128, values=128, window=512, window_keys=384, window_values=384),
    ),
    "windows of no size": ({"layer_types": ["sliding_attention"] * 4}, None),
    "a kind that is not known": ({"layer_types": ["chunked"] * 4}, None),
    "lists in a list": ({"layer_types": [[]] * 4}, None),
    "a window, and nobody says whose": ({"sliding_window": 512}, None),
    "layers of two kinds, and nobody says which": ({"linear_num_key_heads": 16}, None),
    "keys and values as one": ({"kv_lora_rank": 512}, None),
    "heads of two sizes": ({"global_head_dim": 512}, None),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_figures_of_a_config(case: str) -> None:
    said, kept = CONFIGS[case]
    assert config_kv_cache(said, 4, 2, 64) == kept


@pytest.mark.parametrize("numbers", [(0, 2, 64), (4, 0, 64), (4, 2, 0), (1 << 30, 2, 64)])
def test_a_config_that_lacks_a_number_says_nothing(numbers: tuple[int, int, int]) -> None:
    assert config_kv_cache({}, *numbers) is None
