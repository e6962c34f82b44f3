"""Checkpoints: models that are folders of safetensors, and what their config.json says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rigwright.model.catalog_schema import MissingModelFile
from rigwright.supply.artefact import CONFIG, TEXT, Artefact, KvCacheSize
from rigwright.weights.kv_cache_size import config_kv_cache, is_hybrid

WEIGHTS = ".safetensors"
# How weights in several files are named where they are published; the rest is found by the index beside them.
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.safetensors")
# The name of the same weights in the publisher's own format, where a folder has both (Mistral's).
OTHER_FORMAT = "consolidated"
PARAMS = "params.json"  # the config.json of that format
# Files of which each is a tokenizer's vocabulary: of tokenizers, of sentencepiece, of tiktoken and of Mistral.
TOKENIZERS = ("tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model", "tiktoken.model", "tekken.json")
# Where a model of several kinds of input has what is its language model's, each inside of what was found by the last
# (transformers, PretrainedConfig.get_text_config; vLLM 0.21.0, transformers_utils/config.py).
INNER = (("thinker_config",), ("text_config", "llm_config", "language_config"))
# The keys that say how far positions go (vLLM 0.21.0, _get_and_verify_max_len).
POSITIONS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
# Rotary embeddings whose `factor` is in the number of positions already (the same place).
SCALED = ("su", "longrope", "llama3")
FEW = 8  # names that a message lists
LARGEST = 1 << 40  # of what a config counts; more is no count


@dataclass(frozen=True)
class Checkpoint:
    """A model that is a folder. Of what a config does not say numbers are 0 and texts are empty."""

    config: Mapping[str, Any]
    """Its config.json."""
    architectures: tuple[str, ...]
    """The classes that can load it."""
    heads: int
    """Of attention, of a layer's queries."""
    kv_heads: int
    """Of a layer's keys and values."""
    layers: int
    head_size: int
    """Numbers in a head; where keys and values are compressed together, those of a query's."""
    vocabulary: int
    """Tokens."""
    dtype: str
    """The type of the weights that are not quantised, such as `bfloat16`."""
    quantization: str
    """How the others were quantised, as `quant_method` says it."""
    max_positions: int
    """The longest text that it was made for, tokens, with what its rotary embedding adds."""
    experts: int
    """Of which each token takes some; 0 where it has none."""
    cache: KvCacheSize | None
    """The memory of its attention for tokens; None where that is not known."""
    hybrid: bool
    """Whether some of its layers are linear attention, which keeps no tokens."""
    files: tuple[Artefact, ...]
    """All of its rows, config.json first."""
    size: int
    """Of the weights that are loaded, bytes."""

    @property
    def folder(self) -> str:
        """Where it lies in the folder of all models, on hosts, in bundles and on peers."""
        return self.files[0].weight_folder

    @property
    def foreign_code(self) -> tuple[str, ...]:
        """The repositories, other than its own, that it would have those files from: no lock knows them."""
        named = self.config.get("auto_map")
        values = named.values() if isinstance(named, dict) else ()
        texts = [one for value in values for one in (value if isinstance(value, list) else [value])]
        # transformers, dynamic_module_utils.get_class_from_dynamic_module: REPOSITORY--module.Class
        found = {text.partition("--")[0] for text in texts if isinstance(text, str) and "--" in text}
        return tuple(sorted(found))


def parse_checkpoint(rows: Sequence[Artefact], *, tokenizer: bool = True) -> Checkpoint:
    """The locked files of a folder as a model.

    Args:
        rows: All of them, in any order.
        tokenizer: Whether one has to be among them; a draft model does with that of its big one.

    Raises:
        MissingModelFile: it is no whole checkpoint; a line for each thing that is not there.
    """
    by_path = {row.path: row for row in rows}
    name = rows[0].name if rows else "the model"
    wrong = []
    config: dict[str, Any] = {}
    try:
        config = _load_config(by_path.get(CONFIG), by_path)
    except MissingModelFile as error:
        wrong.append(str(error))
    if tokenizer and not any(path in TOKENIZERS or path.endswith(".tiktoken") for path in by_path):
        wrong.append(f"no tokenizer is locked, such as {TOKENIZERS[0]}: include it")
    weights = loaded_files(by_path)
    if not weights:
        wrong.append(f"no weights are locked: include *{WEIGHTS}")
    first, count = missing_shards(weights)
    if count:
        wrong.append(f"the lock lacks {format_some(first, count)} of its weights: include it")
    if wrong:
        raise MissingModelFile("\n".join(f"{name}: {line}" for line in wrong))
    text = _language_config(config)
    heads = _find_number(text, "num_attention_heads", "n_head", "n_heads")
    # vLLM 0.21.0, model_arch_config_convertor.py: without one of these keys, each query head has its own
    kv_heads = _find_number(text, "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num") or heads
    layers, head_size = (
        _find_number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        _head_size(text, heads),
    )
    return Checkpoint(
        config=config,
        architectures=_class_names(config.get("architectures")),
        heads=heads,
        kv_heads=kv_heads,
        layers=layers,
        head_size=head_size,
        cache=config_kv_cache(text, layers, kv_heads, head_size),
        hybrid=is_hybrid(text),
        vocabulary=_find_number(text, "vocab_size") or _find_number(config, "vocab_size"),
        dtype=_dtype(config) or _dtype(text),
        quantization=_quantization(config) or _quantization(text),
        max_positions=_max_positions(text, str(config.get("model_type"))),
        experts=_find_number(text, "num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"),
        files=tuple(sorted(rows, key=lambda row: (row.path != CONFIG, row.order))),
        size=sum(by_path[path].size for path in weights),
    )


def loaded_files(paths: Iterable[str]) -> tuple[str, ...]:
    """The weights of a folder that are loaded: safetensors that lie directly in it, each once."""
    found = sorted(path for path in paths if path.endswith(WEIGHTS) and "/" not in path)
    own = [path for path in found if not path.startswith(OTHER_FORMAT)]
    return tuple(own or found)


def missing_shards(paths: Sequence[str]) -> tuple[list[str], int]:
    """The parts of weights in several files that are not among paths, by the names of those that are.

    Returns:
        The names of the first few, and how many there are: a name alone can say that there are 99,999.
    """
    parts: dict[tuple[str, str], set[int]] = {}
    for path in paths:
        if split := SHARD.fullmatch(path):
            parts.setdefault((split["stem"], split["count"]), set()).add(int(split["number"]))
    count = sum(int(total) - sum(1 <= one <= int(total) for one in found) for (_, total), found in parts.items())
    names = (
        f"{stem}-{number:05}-of-{total}{WEIGHTS}"
        for (stem, total), found in sorted(parts.items())
        for number in range(1, int(total) + 1)
        if number not in found
    )
    return list(islice(names, FEW)), count


def format_some(names: Sequence[str], count: int | None = None) -> str:
    """The first names of many.

    Args:
        names: Of all, or of no fewer than are listed.
        count: How many there are, where these are not all.
    """
    more = (len(names) if count is None else count) - FEW
    return ", ".join(names[:FEW]) + (f" and {more} more" if more > 0 else "")


def _load_config(row: Artefact | None, paths: Collection[str]) -> dict[str, Any]:
    if row is None:
        if PARAMS in paths:
            raise MissingModelFile(
                f"the repository is in Mistral's own format ({PARAMS}, {OTHER_FORMAT}*), which has no {CONFIG}: use a "
                "repository in Hugging Face's format"
            )
        raise MissingModelFile(f"no {CONFIG} is locked: include it")
    if row.size > TEXT:
        raise MissingModelFile(f"{CONFIG} has {row.size} bytes: at most {TEXT} can be locked")
    if row.text is None:
        raise MissingModelFile(f"{CONFIG} is locked without its contents: run `rigwright lock --refresh`")
    try:
        found = json.loads(row.text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise MissingModelFile(f"{CONFIG} is not a JSON object")
    return found


def _language_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a config."""
    for names in INNER:
        config = next((found for name in names if isinstance(found := config.get(name), dict)), config)
    return config


def _find_number(config: Mapping[str, Any], *names: str) -> int:
    """The first count that goes by one of these names."""
    for name in names:
        value = config.get(name)
        if type(value) is int and 0 < value <= LARGEST:
            return value
    return 0


def _class_names(value: object) -> tuple[str, ...]:
    """Names of classes; anything else is left out."""
    names = value if isinstance(value, list) else []
    return tuple(name for name in names if isinstance(name, str) and name.isidentifier() and name.isascii())


def _head_size(text: Mapping[str, Any], heads: int) -> int:
    if found := _find_number(text, "head_dim"):
        return found
    apart = _find_number(text, "qk_nope_head_dim"), _find_number(text, "qk_rope_head_dim")
    if all(apart):
        return sum(apart)
    return _find_number(text, "hidden_size", "n_embd", "d_model") // heads if heads else 0


def _word_or_empty(value: object) -> str:
    """A word of a config's; anything else is empty."""
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", value) else ""


def _dtype(config: Mapping[str, Any]) -> str:
    found = _word_or_empty(config.get("dtype")) or _word_or_empty(config.get("torch_dtype"))
    return found.removeprefix("torch.")


def _quantization(config: Mapping[str, Any]) -> str:
    # compressed-tensors had a key of its own (vLLM 0.21.0, model_arch_config_convertor.py)
    declared = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(declared, dict):
        return ""
    producer = declared.get("producer")
    found = _word_or_empty(declared.get("quant_method")) or _word_or_empty(
        producer.get("name") if isinstance(producer, dict) else None
    )
    return found.lower().replace("compressed_tensors", "compressed-tensors")


def _max_positions(text: Mapping[str, Any], model_type: str) -> int:
    """As vLLM 0.21.0 derives the longest context (config/model.py, _get_and_verify_max_len)."""
    said = [found for name in POSITIONS if (found := _find_number(text, name))]
    length = _find_number(text, "model_max_length") or min(said, default=0)
    scaling = text.get("rope_parameters") or text.get("rope_scaling")
    if not isinstance(scaling, dict) or "gemma3" in model_type:
        return length
    factor = 1.0
    # one embedding, or one for each type of layer
    inner = [one for one in scaling.values() if isinstance(one, dict)]
    for one in inner or [scaling]:
        kind = one.get("rope_type", one.get("type"))
        if kind in SCALED:
            continue
        given = one.get("factor")
        if isinstance(given, (int, float)) and 0 < given <= LARGEST:  # nan is in no range
            factor = float(given)
        if kind == "yarn":
            length = _find_number(one, "original_max_position_embeddings") or length
    return int(length * factor)
