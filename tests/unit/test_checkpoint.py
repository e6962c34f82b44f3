"""Checkpoints: their configs, in the words of each family of models, and missing files of a folder."""

import tracemalloc
from typing import Any

import pytest

from rigwright.model.catalog_schema import MissingModelFile
from rigwright.supply.lock import Artefact
from rigwright.supply.lock_inputs import Input
from rigwright.weights.checkpoint import parse_checkpoint
from tests.unit import checkpoints
from tests.unit.checkpoints import CHECKPOINT_PATHS, LLAMA, TOKENIZER, checkpoint_row, checkpoint_rows

# heads, kv_heads, layers, head_size, vocabulary, dtype, quantization, max_positions, experts
FACTS: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
    "Llama 3.2": (checkpoints.LLAMA, (32, 8, 16, 64, 128256, "bfloat16", "", 131072, 0)),
    "Llama 2": (checkpoints.OLD_LLAMA, (32, 32, 32, 128, 32000, "float16", "", 4096, 0)),
    "Qwen3": (checkpoints.QWEN3, (32, 8, 36, 128, 151936, "bfloat16", "", 40960, 0)),
    "Qwen3, made longer": (checkpoints.QWEN3_YARN, (32, 8, 36, 128, 151936, "bfloat16", "", 131072, 0)),
    "Qwen3 in AWQ": (checkpoints.QWEN3_AWQ, (32, 8, 36, 128, 151936, "float16", "awq", 40960, 0)),
    "Qwen3 of experts": (checkpoints.QWEN3_MOE, (32, 4, 48, 128, 151936, "bfloat16", "", 262144, 128)),
    "Qwen3.6": (checkpoints.QWEN3_6, (24, 4, 64, 256, 248320, "bfloat16", "", 262144, 0)),
    "Qwen3.6 in AWQ": (checkpoints.QWEN3_6_AWQ, (24, 4, 64, 256, 248320, "bfloat16", "awq", 262144, 0)),
    "DeepSeek": (checkpoints.DEEPSEEK, (16, 16, 27, 192, 102400, "bfloat16", "", 163840, 64)),
    "nothing": ({}, (0, 0, 0, 0, 0, "", "", 0, 0)),
}


@pytest.mark.parametrize("family", FACTS)
def test_figures_of_a_config(family: str) -> None:
    config, expected = FACTS[family]
    made = parse_checkpoint(checkpoint_rows(config=config))
    assert (
        *(made.heads, made.kv_heads, made.layers, made.head_size, made.vocabulary),
        *(made.dtype, made.quantization, made.max_positions, made.experts),
    ) == expected
    assert made.config == config
    assert list(made.architectures) == config.get("architectures", [])


QUANTIZED: dict[str, tuple[dict[str, Any], str]] = {
    "in the language model alone": ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, "gptq"),
    "compressed-tensors": ({"quantization_config": {"quant_method": "compressed_tensors"}}, "compressed-tensors"),
    "compressed-tensors of old": ({"compression_config": {"quant_method": "sparseml"}}, "sparseml"),
    "AutoRound": ({"quantization_config": {"bits": 4, "quant_method": "auto-round"}}, "auto-round"),
    "ModelOpt": ({"quantization_config": {"producer": {"name": "modelopt"}, "quant_algo": "FP8"}}, "modelopt"),
    "in capitals": ({"quantization_config": {"quant_method": "AWQ"}}, "awq"),
    "null": ({"quantization_config": None}, ""),
}


@pytest.mark.parametrize("case", QUANTIZED)
def test_how_weights_are_quantised(case: str) -> None:
    config, expected = QUANTIZED[case]
    assert parse_checkpoint(checkpoint_rows(config=config)).quantization == expected


NONSENSE: list[dict[str, Any]] = [
    {"num_attention_heads": "32"},
    {"num_attention_heads": True},
    {"num_attention_heads": -32},
    {"num_attention_heads": 32.0},
    {"num_attention_heads": 10**30},
    {"hidden_size": 64, "num_attention_heads": 0},
    {"max_position_embeddings": 0, "rope_scaling": {"type": "linear", "factor": float("inf")}},
    {"rope_scaling": {"type": "yarn", "factor": float("nan"), "original_max_position_embeddings": "8"}},
    {"rope_parameters": [1, 2]},
    {"architectures": "Llama"},
    {"architectures": ["../x", 3, "a b", "\u00e9"]},
    {"text_config": [], "torch_dtype": {"a": 1}},
    {"torch_dtype": "$(id)", "quantization_config": "awq", "auto_map": []},
    {"quantization_config": {"quant_method": ["awq"], "producer": "x"}},
]


@pytest.mark.parametrize("config", NONSENSE)
def test_a_meaningless_config_has_no_figures(config: dict[str, Any]) -> None:
    made = parse_checkpoint(checkpoint_rows(config=config))
    assert (made.heads, made.head_size, made.max_positions) == (0, 0, 0)
    assert (made.dtype, made.quantization, made.architectures) == ("", "", ())


def test_positions_that_each_type_of_layer_has_its_own_embedding_for() -> None:
    scaling = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}
    config = {"max_position_embeddings": 4096, "rope_parameters": scaling}
    assert parse_checkpoint(checkpoint_rows(config=config)).max_positions == 32768
    # the number of these is what they were made long for already
    assert parse_checkpoint(checkpoint_rows(config=config | {"model_type": "gemma3_text"})).max_positions == 4096


SHARDS = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
MISSING: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "config.json": (("model.safetensors", *TOKENIZER), ["no config.json is locked: include it"]),
    "one in another folder": (
        ("sub/config.json", "model.safetensors", *TOKENIZER),
        ["no config.json is locked: include it"],
    ),
    "a tokenizer": (
        ("config.json", "model.safetensors", "tokenizer_config.json"),
        ["no tokenizer is locked, such as tokenizer.json: include it"],
    ),
    "weights": (("config.json", *TOKENIZER), ["no weights are locked: include *.safetensors"]),
    "weights but in pickles": (
        ("config.json", "pytorch_model.bin", *TOKENIZER),
        ["no weights are locked: include *.safetensors"],
    ),
    "weights but deeper": (
        ("config.json", "onnx/model.safetensors", *TOKENIZER),
        ["no weights are locked: include *.safetensors"],
    ),
    "a shard": (
        ("config.json", SHARDS[0], SHARDS[2], *TOKENIZER),
        [f"the lock lacks {SHARDS[1]} of its weights: include it"],
    ),
    "many shards": (
        ("config.json", "model.safetensors-00011-of-00012.safetensors", *TOKENIZER),
        [
            "the lock lacks "
            + ", ".join(f"model.safetensors-0000{number}-of-00012.safetensors" for number in range(1, 9))
            + " and 3 more of its weights: include it"
        ],
    ),
    "everything": (
        ("README.md",),
        [
            "no config.json is locked: include it",
            "no tokenizer is locked, such as tokenizer.json: include it",
            "no weights are locked: include *.safetensors",
        ],
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_parts_are_named_a_line_each(case: str) -> None:
    paths, lines = MISSING[case]
    with pytest.raises(MissingModelFile) as error:
        parse_checkpoint(checkpoint_rows(paths))
    assert str(error.value).splitlines() == [f"big: {line}" for line in lines]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "config.json is locked without its contents: run `rigwright lock --refresh`"),
        ("[]", "config.json is not a JSON object"),
        ("<html>", "config.json is not a JSON object"),
        ("[" * 60000, "config.json is not a JSON object"),
        ('{"a": ' + "1" * 5000 + "}", "config.json is not a JSON object"),
        ("\ufeff{}", "config.json is not a JSON object"),
    ],
)
def test_a_config_that_says_nothing_is_refused(content: str | None, said: str) -> None:
    with pytest.raises(MissingModelFile) as error:
        parse_checkpoint([checkpoint_row("config.json", content), *checkpoint_rows(CHECKPOINT_PATHS[1:])])
    assert str(error.value) == f"big: {said}"


def test_a_config_that_is_larger_than_a_lock_takes_is_refused_for_that() -> None:
    with pytest.raises(MissingModelFile, match=r"config\.json has 4194305 bytes: at most 4194304 can be locked"):
        parse_checkpoint([checkpoint_row("config.json", size=4194305), *checkpoint_rows(CHECKPOINT_PATHS[1:])])


def test_a_draft_model_does_with_the_tokenizer_of_its_big_one() -> None:
    assert parse_checkpoint(checkpoint_rows(("config.json", "model.safetensors")), tokenizer=False).heads == 32


@pytest.mark.parametrize("tokenizer", ["tokenizer.model", "tekken.json", "vocab.json", "qwen.tiktoken"])
def test_tokenizers_of_other_kinds(tokenizer: str) -> None:
    assert parse_checkpoint(checkpoint_rows(("config.json", "model.safetensors", tokenizer))).heads == 32


LOADED: dict[str, tuple[tuple[str, ...], int]] = {
    "all shards": (SHARDS, 3000),
    "what stands beside shards": ((*SHARDS, "model_mtp.safetensors"), 4000),
    "not what is deeper": (("model.safetensors", "onnx/model.safetensors"), 1000),
    "not the publisher's own format": (("model.safetensors", "consolidated.safetensors"), 1000),
    "that format where it is all": (("consolidated.safetensors",), 1000),
}


@pytest.mark.parametrize("case", LOADED)
def test_the_size_is_that_of_the_weights_that_are_loaded(case: str) -> None:
    paths, size = LOADED[case]
    assert parse_checkpoint(checkpoint_rows(("config.json", *paths, *TOKENIZER))).size == size


def test_the_folder_on_hosts_and_its_files_the_config_first() -> None:
    made = parse_checkpoint(checkpoint_rows(("a.json", "model.safetensors", "tokenizer.json", "config.json")))
    assert [file.path for file in made.files] == ["config.json", "a.json", "model.safetensors", "tokenizer.json"]
    assert f"{made.folder}/config.json" == made.files[0].weight_path
    own = Input(kind="weight", version="2026-11", include=("*",), sources=("office:big",))
    changes = {"repository": None, "version": "2026-11", "sources": own.sources_of("x")}
    mine: list[Artefact] = [one.model_copy(update=changes) for one in made.files]
    assert parse_checkpoint(mine).folder == "big/2026-11"


def test_code_that_a_checkpoint_brings_or_has_fetched_from_elsewhere() -> None:
    made = parse_checkpoint(
        checkpoint_rows((*CHECKPOINT_PATHS, "modeling_deepseek.py", "sub/x.py"), checkpoints.DEEPSEEK)
    )
    assert made.foreign_code == ()
    plain = parse_checkpoint(checkpoint_rows())
    assert plain.foreign_code == ()
    elsewhere = {
        "auto_map": {"AutoConfig": "a/b--configuration.C", "AutoTokenizer": ["c/d--x.Y", None], "AutoModel": 3}
    }
    assert parse_checkpoint(checkpoint_rows(config=elsewhere)).foreign_code == ("a/b", "c/d")


def test_names_that_ask_for_more_parts_than_can_be_listed_cost_nothing() -> None:
    names = [f"{number:04}-00001-of-99999.safetensors" for number in range(2000)]
    tracemalloc.start()
    with pytest.raises(MissingModelFile, match=r"0000-00009-of-99999\.safetensors and 199995992 more of its weights"):
        parse_checkpoint(checkpoint_rows((*CHECKPOINT_PATHS, *names)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100 << 20


@pytest.mark.parametrize(
    ("changes", "hybrid", "known"),
    [
        ({"hybrid_override_pattern": "MEMEM*EM" * 2}, True, True),
        ({"layer_types": ["mamba"] * 15 + ["attention"]}, True, True),
        ({"layers_block_type": ["mamba2"] * 14 + ["attention"] * 2}, True, True),
        ({"layer_types": ["conv"] * 8 + ["full_attention"] * 8}, True, True),
        ({"layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 4}, False, False),
        ({"layer_types": ["full_attention"] * 7}, False, False),
        ({"hybrid_override_pattern": "MX" * 8}, True, False),
        ({"mamba_num_heads": 64}, True, False),
        ({}, False, True),
    ],
)
def test_kinds_of_layers_are_read_as_families_write_them(changes: dict[str, Any], hybrid: bool, known: bool) -> None:
    found = parse_checkpoint(checkpoint_rows(config=LLAMA | changes))
    assert (found.hybrid, found.cache is not None) == (hybrid, known)


def test_a_repository_in_mistrals_format_is_named_as_such() -> None:
    with pytest.raises(MissingModelFile, match=r"in Mistral's own format \(params\.json"):
        parse_checkpoint(
            [checkpoint_row("params.json"), checkpoint_row("tekken.json"), checkpoint_row("consolidated.safetensors")]
        )
