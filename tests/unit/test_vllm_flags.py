"""Flags and variables of vLLM: the pinned version's own parser about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines.vllm import forbidden_keys
from rigwright.engines.vllm.option_snapshot import (
    OptionSetting,
    VllmSnapshot,
    load_snapshot,
    parse_snapshot,
    snapshot_file_name,
)
from rigwright.engines.vllm.option_validation import (
    MANAGED_FLAGS,
    MANAGED_VARIABLES,
    REMOVED,
    REMOVED_VARIABLES,
    find_option_problems,
    find_variable_problems,
    parse_count,
)
from rigwright.problems import Invalid
from rigwright.project_root import ROOT

SHIPPED = sorted((ROOT / "catalog" / "flags").glob("vllm-*.json"))
NEW, OLD = (
    load_snapshot(ROOT / "catalog" / "flags" / snapshot_file_name(version)) for version in ("0.21.0+cpu", "0.20.2")
)


def validation_message(name: str, value: OptionSetting, snapshot: VllmSnapshot = NEW) -> str:
    return find_option_problems(snapshot, {name: value}).get(name, "")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_snapshot_is_of_the_version_that_its_name_has(path: Path) -> None:
    made = load_snapshot(path)
    assert path.name == snapshot_file_name(made.version)
    assert len(made.options) > 230
    assert len(made.variables) > 240
    assert {"qwen3", "deepseek_r1"} <= {*made.registered["reasoning-parser"]}
    assert made.methods["awq"].capability == 75


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "0.21.0", "options": [], "models": {}}'])
def test_an_invalid_snapshot_is_one_problem(text: str, tmp_path: Path) -> None:
    (tmp_path / "vllm-0.21.0.json").write_text(text)
    with pytest.raises(Invalid, match=r"is not what `python -m lab\.vllm_snapshot` prints"):
        load_snapshot(tmp_path / "vllm-0.21.0.json")


@pytest.mark.parametrize(
    ("change", "value"),
    [("names", ["--x\n"]), ("names", ["/bin/sh"]), ("kind", None), ("bounds", {"least": 1, "run": 2}), ("other", 1)],
)
def test_a_row_with_something_else_is_refused(change: str, value: object) -> None:
    made: dict[str, Any] = json.loads(SHIPPED[-1].read_text())
    made["options"][3] = {**made["options"][3], change: value}
    with pytest.raises((ValueError, TypeError, KeyError)):
        parse_snapshot(json.dumps(made))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tensor-parallel-size", 2), ("max-model-len", "16k"), ("max-model-len", "auto"), ("max-model-len", -1)),
        *(("gpu-memory-utilization", 0.9), ("gpu-memory-utilization", ".5"), ("dtype", "half")),
        *(("enable-prefix-caching", True), ("no-enable-prefix-caching", True), ("disable-log-stats", True)),
        *(("kv-cache-dtype", "fp8"), ("attention-backend", "TRITON_ATTN"), ("quantization", "awq_marlin")),
        *(("cudagraph-capture-sizes", [1, 2, 4]), ("cudagraph-capture-sizes", 8), ("max-lora-rank", 16)),
        *(("moe-backend", "flashinfer-cutlass"), ("hf-overrides", {"max_position_embeddings": 8}), ("seed", "-1")),
        ("speculative-config", {"method": "mtp", "num_speculative_tokens": 3}),
        ("speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'),
        ("compilation-config", {"cudagraph_mode": "PIECEWISE", "pass_config": {"enable_sp": True}, "mode": 3}),
        ("default-chat-template-kwargs", {"enable_thinking": False}),
        ("allowed-origins", ["https://chat.example"]),
        ("kv-cache-memory-bytes", "None"),
        ("optimization-level", 3),
        ("reasoning-parser", "qwen3"),
    ],
)
def test_options_that_the_parser_takes_are_let_through(name: str, value: OptionSetting) -> None:
    assert validation_message(name, value) == ""


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("tensor-parallel-sise", 2, 'is not an option of vLLM 0.21.0; did you mean "tensor-parallel-size"?'),
        ("tensor-par", 2, 'is an abbreviation: write "tensor-parallel-size"'),
        ("tensor_parallel_size", 2, 'must be written with dashes, "tensor-parallel-size"'),
        ("tp", 2, 'must be written with its long name, "tensor-parallel-size"'),
        ("compilation-config.cudagraph_mode", "NONE", "must be a table: compilation-config = {...}"),
        ("tensor-parallel-size", "two", "takes a whole number, not 'two'"),
        ("tensor-parallel-size", [1, 2], "takes one value: a whole number"),
        ("tensor-parallel-size", True, "needs a value: a whole number"),
        ("max-model-len", "1.5K", "takes a number such as 16k, or auto, not '1.5K'"),
        ("max-num-seqs", 0, "must be at least 1, not 0"),
        ("gpu-memory-utilization", 92, "must be at most 1, not 92"),
        ("gpu-memory-utilization", 0, "must be above 0, not 0"),
        ("gpu-memory-utilization", "nan", "takes a number, not 'nan'"),
        ("enable-prefix-caching", False, "write true instead of False, or no-enable-prefix-caching = true"),
        ("enforce-eager", "yes", "takes no value: write true instead of 'yes'"),
        ("dtype", "fp16", 'does not accept "fp16"; did you mean "float16"?'),
        ("quantization", "awqq", 'does not know "awqq"; did you mean "awq"?'),
        ("reasoning-parser", "qwen4", 'does not know "qwen4"; did you mean "qwen3"?'),
        ("tool-call-parser", "qwen", 'does not know "qwen"'),
        ("attention-backend", "TRITON", 'does not know "TRITON"'),
        ("load-format", "dummy", "does not load safetensors from the model's folder"),
        ("speculative-config", {"num_tokens": 3}, 'has no key num_tokens; did you mean "num_speculative_tokens"?'),
        ("speculative-config", {"method": "mpt"}, "method: 'mpt' is not accepted; did you mean \"mtp\"?"),
        ("speculative-config", "{method: mtp}", "takes JSON: "),
        ("speculative-config", {"num_speculative_tokens": 0}, "num_speculative_tokens: must be above 0, not 0"),
        ("compilation-config", {"pass_config": {"no": 1}}, "has no key pass_config.no"),
        ("compilation-config", {"cudagraph_mode": "PIECE"}, "cudagraph_mode: 'PIECE' is not accepted"),
        ("compilation-config", {"cudagraph_capture_sizes": [1, "2"]}, "cudagraph_capture_sizes: '2' is not integer"),
        ("compilation-config", [1], "takes a table, not [1]"),
        ("default-chat-template-kwargs", "off", "takes JSON: "),
        ("ignore-patterns", ["-x"], "does not accept '-x'"),
        ("speculative-model", "x", "instead: speculative-config = {model = ...}"),
        ("num-speculative-tokens", 3, "instead: speculative-config = {num_speculative_tokens = ...}"),
        ("log-level", "debug", "instead: the variable VLLM_LOGGING_LEVEL"),
    ],
)
def test_options_that_the_parser_refuses_or_would_mistake_are_refused(
    name: str, value: OptionSetting, text: str
) -> None:
    assert text in validation_message(name, value)


def test_each_version_has_its_own_options() -> None:
    flags: dict[str, OptionSetting] = {"fingerprint-mode": "none"}
    assert find_option_problems(NEW, flags) == {}
    assert "is not an option of vLLM 0.20.2" in find_option_problems(OLD, flags)["fingerprint-mode"]


def test_an_option_of_a_key_is_refused_in_flags() -> None:
    found = find_option_problems(
        NEW, {"enforce-eager": True, "no-enforce-eager": True, "tensor-parallel-size": 2, "port": 80}, OWN
    )
    assert found["no-enforce-eager"] == "duplicates --enforce-eager"
    assert found["tensor-parallel-size"] == "is not allowed in flags: other keys set it"
    assert found["port"] == "is not allowed in flags: an instance listens where its unit says"


OWN = MANAGED_FLAGS.keys() | {"tensor-parallel-size"}


@pytest.mark.parametrize("snapshot", [NEW, OLD], ids=lambda one: one.version)
def test_facts_about_options_are_about_existing_ones(snapshot: VllmSnapshot) -> None:
    listed = {*MANAGED_FLAGS, *forbidden_keys.RESERVED, *forbidden_keys.TEXTS, *forbidden_keys.WORDS}
    new = {"fingerprint-value", *(name for name in listed if name.startswith("mm-encoder-fp8"))}
    assert {name for name in listed if not snapshot.find(name)} - new == set()
    assert not [name for name in REMOVED if snapshot.find(name)]
    assert not [name for name in REMOVED_VARIABLES if name in snapshot.variables]
    assert not [name for name in MANAGED_VARIABLES if name.startswith("VLLM_") and name not in snapshot.variables]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("VLLM_USE_FLASHINFER_SAMPLR", "0", 'did you mean "VLLM_USE_FLASHINFER_SAMPLER"?'),
        ("VLLM_USE_FLASHINFER_SAMPLER", "false", 'does not accept "false"; allowed: 0, 1'),
        ("VLLM_RPC_TIMEOUT", "10s", "takes a whole number, not '10s'"),
        ("VLLM_ATTENTION_BACKEND", "FLASHINFER", "instead: the flag attention-backend"),
        ("VLLM_USE_V1", "1", "instead: nothing: there is no other engine"),
        ("VLLM_API_KEY", "x", "is not allowed in a catalogue: an instance's key is a credential"),
        ("CUDA_VISIBLE_DEVICES", "0", "is not allowed in a catalogue: an instance's unit sets it"),
        ("HOME", "/root", "is not allowed in a catalogue"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "thread", 'does not accept "thread"; allowed: fork, spawn'),
        ("A B", "x", "is not a valid variable name"),
    ],
)
def test_a_variable_that_would_do_nothing_or_is_not_for_catalogues_is_refused(name: str, value: str, text: str) -> None:
    assert text in find_variable_problems(NEW, {name: value}).get(name, "")


def test_variables_of_vllm_and_of_what_it_runs_are_let_through() -> None:
    environment = {
        **{"VLLM_USE_FLASHINFER_SAMPLER": "0", "VLLM_LOGGING_LEVEL": "DEBUG", "NCCL_P2P_DISABLE": "1"},
        **{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "OMP_NUM_THREADS": "8", "NCCL_DEBUG": "INFO"},
        **{"TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_COMPILE_THREADS": "4", "VLLM_KV_CACHE_LAYOUT": "NHD"},
    }
    assert find_variable_problems(NEW, environment) == {}
    assert forbidden_keys.forbidden_variables(NEW, environment) == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("LD_PRELOAD", "x.so"), ("LD_LIBRARY_PATH", "/tmp"), ("PYTHONPATH", "/tmp"), ("PATH", "/tmp")),
        *(("VLLM_PLUGINS", "x"), ("VLLM_ALLOW_INSECURE_SERIALIZATION", "1"), ("VLLM_SERVER_DEV_MODE", "1")),
        *(("VLLM_NCCL_SO_PATH", "/tmp/x.so"), ("NCCL_NET_PLUGIN", "x"), ("NCCL_CONF_FILE", "1")),
        *(("TRITON_PTXAS_PATH", "/tmp/x"), ("TRITON_PTXAS_BLACKWELL_PATH", "x"), ("CC", "gcc"), ("BASH_ENV", "x")),
        *(("VLLM_LOGGING_CONFIG_PATH", "x"), ("VLLM_LOGGING_STREAM", "ext://sys.stdout"), ("S3_ENDPOINT_URL", "x")),
        *(("TORCHINDUCTOR_CUTLASS_DIR", "x"), ("HTTP_PROXY", "x"), ("PYTHONSTARTUP", "x"), ("NCCL_DEBUG_FILE", "0")),
        *(("VLLM_LOGGING_LEVEL", "/etc"), ("CUDA_INJECTION64_PATH", "x"), ("TORCH_LOGS", "/tmp/x")),
        ("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"),
    ],
)
def test_variables_that_name_programs_files_or_servers_are_the_inventorys(name: str, value: str) -> None:
    assert list(forbidden_keys.forbidden_variables(NEW, {name: value, "OMP_NUM_THREADS": "1"})) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "x") for name in ("tool-parser-plugin", "reasoning-parser-plugin", "worker-cls", "middleware")),
        *((name, "x") for name in ("logits-processors", "scheduler-cls", "log-config-file", "tool-server")),
        *(("kv-transfer-config", {"kv_connector": "x"}), ("trust-remote-code", True), ("lora-modules", "a=/b")),
        *(("allowed-local-media-path", "/"), ("otlp-traces-endpoint", "http://h"), ("enable-prompt-embeds", True)),
        *(("enable-mm-embeds", True), ("trust-request-chat-template", True)),
        *(("distributed-executor-backend", "own.Executor"), ("generation-config", "vllm"), ("dtype", "/x")),
        ("speculative-config", {"method": "eagle3", "model": "hub/name", "num_speculative_tokens": 3}),
        ("speculative-config", {"draft_load_config": {"download_dir": "x"}}),
        ("compilation-config", {"backend": "own.compiler"}),
        ("compilation-config", {"inductor_passes": {"post": "own.pass"}}),
        ("compilation-config", {"inductor_compile_config": {"cpp.cxx": "own"}}),
        ("compilation-config", {"cache_dir": "x"}),
        ("hf-overrides", {"auto_map": {"AutoConfig": "own.Config"}}),
        ("hf-overrides", "own.function"),
        ("additional-config", {"a": {"b": "/etc"}}),
        ("structured-outputs-config", {"reasoning_parser_plugin": "x"}),
        ("mm-processor-kwargs", {"image_processor_class": "x"}),
    ],
)
def test_options_that_name_code_files_or_servers_are_the_inventorys(name: str, value: OptionSetting) -> None:
    assert list(forbidden_keys.forbidden_flags(NEW, {name: value, "seed": 1})) == [name]


def test_a_catalogues_own_snapshot_opens_nothing() -> None:
    said_ = json.loads((ROOT / "catalog" / "flags" / snapshot_file_name("0.21.0")).read_text())
    libraries = {
        name: {"kind": "choice", "choices": ["/models/x.so"]} for name in ("CUDA_INJECTION64_PATH", "NCCL_NET")
    }
    said_["variables"] |= libraries | {"NCCL_CONF_FILE": {"kind": "choice", "choices": ["own"]}}
    # a parser takes the beginning of a name for all of it
    said_["options"] += [
        {"names": ["--trust-remote-cod"], "dest": "a", "kind": "bare"},
        {"names": ["--kv-transfer-confi"], "dest": "b", "kind": "json"},
    ]
    said_["models"]["SpeculativeConfig"]["model"]["values"] = ["/models/x"]
    own = parse_snapshot(json.dumps(said_))
    declared: dict[str, OptionSetting] = {
        "trust-remote-cod": True,
        "kv-transfer-confi": {"kv_connector": "x"},
        "speculative-config": {"model": "/models/x"},
    }
    assert forbidden_keys.forbidden_flags(own, declared).keys() == declared.keys()
    environment = {**dict.fromkeys(libraries, "/models/x.so"), "NCCL_CONF_FILE": "own"}
    assert forbidden_keys.forbidden_variables(own, environment).keys() == environment.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max-model-len", "16K"), ("kv-cache-dtype", "fp8"), ("attention-backend", "FLASHINFER"), ("seed", 3)),
        *(("disable-custom-all-reduce", True), ("distributed-executor-backend", "mp"), ("max-num-seqs", "8")),
        *(("no-enable-prefix-caching", True), ("cudagraph-capture-sizes", [1, 2]), ("optimization-level", 3)),
        ("speculative-config", {"method": "mtp", "num_speculative_tokens": 3, "attention_backend": "TRITON_ATTN"}),
        ("compilation-config", {"cudagraph_mode": "PIECEWISE", "custom_ops": ["+rms_norm"], "backend": "inductor"}),
        ("default-chat-template-kwargs", '{"enable_thinking": false}'),
        ("hf-overrides", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
        ("additional-config", {"caovan": True}),
    ],
)
def test_switches_numbers_and_registered_names_are_let_through(name: str, value: OptionSetting) -> None:
    assert forbidden_keys.forbidden_flags(NEW, {name: value}) == {}


def test_a_value_is_joined_to_its_option() -> None:
    def words(name: str, value: OptionSetting) -> list[str]:
        option = NEW.find(name)
        assert option
        return option.render_words(name, value)

    assert words("no-enable-prefix-caching", True) == ["--no-enable-prefix-caching"]
    assert words("gpu-memory-utilization", 0.9) == ["--gpu-memory-utilization=0.9"]
    assert words("cudagraph-capture-sizes", [1, 2]) == ["--cudagraph-capture-sizes", "1", "2"]
    assert words("middleware", ["a", "b"]) == ["--middleware=a", "--middleware=b"]
    assert words("speculative-config", {"method": "mtp"}) == ['--speculative-config={"method": "mtp"}']
    assert words("allowed-origins", ["*"]) == ['--allowed-origins=["*"]']


@pytest.mark.parametrize(
    ("text", "number"), [("16k", 16_000), ("16K", 16_384), ("25.6k", 25_600), ("2G", 2 << 30), ("-1", -1)]
)
def test_numbers_are_read_as_vllm_reads_them(text: str, number: int) -> None:
    assert parse_count(text) == number
