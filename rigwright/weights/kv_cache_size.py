"""The memory of a model's attention for tokens that it has read: of a GGUF's header, and of a config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rigwright.supply.artefact import KvCacheSize

MetadataValue = int | float | bool | str | list[Any]
"""Of a header's key."""
MOST_LAYERS = 1024
# Architectures of llama.cpp whose layers are linear attention but each nth, where their files do not say n; their
# files, under src/models, of 0c1e570.
INTERVALS = {"qwen35": 4, "qwen35moe": 4, "qwen3next": 4}
# ... and those of which each nth layer keeps all tokens, the others a window.
PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2}
# Keys of config.json by which layers differ in what a token takes, or take it in another form.
KV_APART = {"kv_lora_rank", "global_head_dim"}
# The names of layers that keep all tokens, a window of them, and none (transformers, layer_types). Other words for the
# same are of Granite 4, Nemotron-H, Falcon-H1, Bamba and LFM2.
FULL, WINDOWED, LINEAR = "full_attention", "sliding_attention", "linear_attention"
NAMES = {
    FULL: FULL,
    "attention": FULL,
    WINDOWED: WINDOWED,
    LINEAR: LINEAR,
    "mamba": LINEAR,
    "mamba2": LINEAR,
    "conv": LINEAR,
}
# Letters of `hybrid_override_pattern`: Mamba, attention, and blocks without either (transformers, NemotronHConfig).
LETTERS = {"M": LINEAR, "*": FULL, "-": "", "E": ""}
# Keys whose presence tells of layers that keep a state in place of tokens, whatever their names.
STATEFUL = (
    "mamba_num_heads",
    "mamba_d_state",
    "ssm_state_size",
    "mamba_n_heads",
    "linear_num_value_heads",
    "conv_L_cache",
)


def combine_layers(layers: Sequence[tuple[int, int, bool]], window: int) -> KvCacheSize | None:
    """The memory of layers, together.

    Args:
        layers: Of each, the numbers in a token's keys and in its values, and whether it keeps a window of them.
        window: Tokens in that.

    Returns:
        None where such numbers are no model's.
    """
    try:
        return KvCacheSize(
            keys=sum(keys for keys, _, windowed in layers if not windowed),
            values=sum(values for _, values, windowed in layers if not windowed),
            window=window if any(windowed for *_, windowed in layers) else 0,
            window_keys=sum(keys for keys, _, windowed in layers if windowed),
            window_values=sum(values for _, values, windowed in layers if windowed),
        )
    except ValidationError:
        return None


def gguf_kv_cache(architecture: str, said: Mapping[str, MetadataValue]) -> KvCacheSize | None:
    """The KV cache of a model by its GGUF header, as llama.cpp reads that (src/llama-model.cpp, src/llama-hparams.cpp).

    Args:
        architecture: Its general.architecture.
        said: Key -> value.

    Returns:
        None where that is not known: layers of more than one kind, and nothing that says which is which.
    """

    def number(key: str, otherwise: int = 0) -> int:
        found = said.get(f"{architecture}.{key}", otherwise)
        return found if type(found) is int and found >= 0 else otherwise

    def one_each(key: str) -> list[int] | None:
        found = said.get(f"{architecture}.{key}")
        given = [found] * count if isinstance(found, int) else found
        if not isinstance(given, list) or len(given) < count or not all(isinstance(one, int) for one in given):
            return None
        return [int(one) for one in given[:count]]

    count = number("block_count") - number("nextn_predict_layers")
    if not 0 < count <= MOST_LAYERS:
        return None
    heads = one_each("attention.head_count")
    kv_heads = one_each("attention.head_count_kv") or heads
    if not heads or not kv_heads or not (most := max(heads)):
        return None
    size = number("embedding_length") // most
    keys, values = number("attention.key_length", size), number("attention.value_length", size)
    if number("attention.key_length_mla"):
        values = 0  # both are kept as one
    linear = _find_linear_layers(architecture, said, one_each("attention.recurrent_layers"), count)
    windowed = _find_windowed_layers(architecture, said, count)
    if linear is None or windowed is None:
        return None
    short = number("attention.key_length_swa", keys), number("attention.value_length_swa", values)
    own = count - number("attention.shared_kv_layers")  # the last ones read what others keep
    sizes = {False: (keys, values), True: short}
    layers = [
        (kv_heads[at] * sizes[windowed[at]][0], kv_heads[at] * sizes[windowed[at]][1], windowed[at])
        for at in range(count)
        if at < own and not linear[at]
    ]
    return combine_layers(layers, number("attention.sliding_window"))


def _find_linear_layers(
    architecture: str, said: Mapping[str, MetadataValue], listed: list[int] | None, count: int
) -> list[bool] | None:
    """Which layers keep no tokens; None where nothing says it."""
    if listed is not None:
        return [bool(one) for one in listed]
    every = said.get(f"{architecture}.full_attention_interval", INTERVALS.get(architecture))
    if type(every) is int and every > 0:
        return [(at + 1) % every != 0 for at in range(count)]
    # of others with such layers the number of KV heads says it, which is 0 for those: one for each layer
    heads = said.get(f"{architecture}.attention.head_count_kv")
    if any(key.startswith(f"{architecture}.ssm.") for key in said) and not isinstance(heads, list):
        return [True] * count if heads == 0 else None
    return [False] * count


def _find_windowed_layers(architecture: str, said: Mapping[str, MetadataValue], count: int) -> list[bool] | None:
    """Which layers keep a window; None where nothing says it."""
    if not said.get(f"{architecture}.attention.sliding_window"):
        return [False] * count
    pattern = said.get(f"{architecture}.attention.sliding_window_pattern", PATTERNS.get(architecture))
    if isinstance(pattern, list):
        return [bool(one) for one in pattern[:count]] if len(pattern) >= count else None
    if type(pattern) is not int or pattern < 1:
        return None
    return [at % pattern < pattern - 1 for at in range(count)]


def config_kv_cache(text: Mapping[str, Any], layers: int, kv_heads: int, head_size: int) -> KvCacheSize | None:
    """The KV cache of a model by its config.json, as far as vLLM makes one.

    Args:
        text: Its facts about the language model.
        layers: How many it has.
        kv_heads: Of a layer's keys and values.
        head_size: Numbers in a head.

    Returns:
        None where that is not known.
    """
    if not (0 < layers <= MOST_LAYERS and kv_heads and head_size) or KV_APART & text.keys():
        return None
    kinds = layer_kinds(text, layers)
    if kinds is None:
        return None
    window = text.get("sliding_window")
    size = window if type(window) is int and window > 0 else 0
    each = kv_heads * head_size
    kept = [(each, each, kind == WINDOWED) for kind in kinds if kind in (FULL, WINDOWED)]
    return None if any(windowed for *_, windowed in kept) and not size else combine_layers(kept, size)


def layer_kinds(text: Mapping[str, Any], layers: int) -> list[str] | None:
    """The kind of each layer by a config.json: FULL, WINDOWED, LINEAR, or "" for a layer without attention.

    Returns:
        None where that is not known: an unknown word, another number of layers, or a sign of layers that keep a state.
    """
    listed = text.get("layer_types") or text.get("layers_block_type")
    pattern = text.get("hybrid_override_pattern")
    every = text.get("full_attention_interval")
    if isinstance(listed, list):
        kinds = [NAMES.get(one) if isinstance(one, str) else None for one in listed]
    elif isinstance(pattern, str):
        kinds = [LETTERS.get(letter) for letter in pattern]
    elif type(every) is int and every > 0:
        kinds = [FULL if (at + 1) % every == 0 else LINEAR for at in range(layers)]
    elif not text.get("sliding_window") and not any("mamba" in key or "linear" in key for key in text):
        kinds = [FULL] * layers
    else:
        return None
    return [one for one in kinds if one is not None] if len(kinds) == layers and None not in kinds else None


def is_hybrid(text: Mapping[str, Any]) -> bool:
    """Whether a config.json says of the language model that some layers keep a state in place of tokens."""
    listed = text.get("layer_types") or text.get("layers_block_type")
    names = {NAMES.get(one) for one in listed if isinstance(one, str)} if isinstance(listed, list) else set()
    pattern, every = text.get("hybrid_override_pattern"), text.get("full_attention_interval")
    return (
        LINEAR in names
        or (isinstance(pattern, str) and "M" in pattern)
        or (type(every) is int and every > 1)
        or any(text.get(key) for key in STATEFUL)
    )
