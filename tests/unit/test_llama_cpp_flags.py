"""Flags: the pinned llama-server's own help about them."""

from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.catalog_keys import MANAGED_FLAGS, LlamaEngine
from rigwright.engines.llama_cpp.command import key_options
from rigwright.engines.llama_cpp.option_table import (
    RENAMED,
    LlamaSnapshot,
    find_flag_problems,
    load_snapshot,
    parse_help,
    snapshot_file_name,
)
from rigwright.model.roots import Roots
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import (
    HELP,
    HELP_FILE,
    OperatorFolder,
    chat_instances,
    sample_artefact,
    sample_entry,
    sample_instance,
    sample_parts,
)

OLD = load_snapshot(Path(__file__).parent / "data" / snapshot_file_name("0.3.34", "e3546c7"))
SHIPPED = sorted((ROOT / "catalog" / "flags").glob("*.txt"))


@pytest.mark.parametrize(
    ("name", "spellings", "hint", "allowed", "env"),
    [
        ("model", ("-m", "--model"), "FNAME", (), "LLAMA_ARG_MODEL"),
        ("metrics", ("--metrics",), "", (), "LLAMA_ARG_ENDPOINT_METRICS"),
        ("verbosity", ("-lv", "--verbosity", "--log-verbosity"), "N", (), "LLAMA_ARG_LOG_VERBOSITY"),
        ("n-gpu-layers", ("-ngl", "--gpu-layers", "--n-gpu-layers"), "N", (), "LLAMA_ARG_N_GPU_LAYERS"),
        ("kvo", ("-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"), "", (), "LLAMA_ARG_KV_OFFLOAD"),
        ("no-mmproj", ("--mmproj-auto", "--no-mmproj", "--no-mmproj-auto"), "", (), "LLAMA_ARG_MMPROJ_AUTO"),
        (
            "ot",
            ("-ot", "--override-tensor"),
            "<tensor name pattern>=<buffer type>,...",
            (),
            "LLAMA_ARG_OVERRIDE_TENSOR",
        ),
        ("fa", ("-fa", "--flash-attn"), "[on|off|auto]", ("on", "off", "auto"), "LLAMA_ARG_FLASH_ATTN"),
        ("cpu-strict", ("--cpu-strict",), "<0|1>", ("0", "1"), ""),
        ("poll", ("--poll",), "<0...100>", (), ""),
        ("pooling", ("--pooling",), "{none,mean,cls,last,rank}", ("none", "mean", "cls", "last", "rank"), "L*"),
        ("lm", ("-lm", "--load-mode"), "MODE", ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio"), "L*"),
        ("sm", ("-sm", "--split-mode"), "{none,layer,row,tensor}", ("none", "layer", "row", "tensor"), "L*"),
        ("numa", ("--numa",), "TYPE", ("distribute", "isolate", "numactl"), "LLAMA_ARG_NUMA"),
        ("reasoning-format", ("--reasoning-format",), "FORMAT", ("none", "deepseek", "deepseek-legacy", "auto"), "L*"),
        ("reasoning-effort", ("--reasoning-effort",), "LEVEL", (), "LLAMA_ARG_REASONING_EFFORT"),
        ("chat-template", ("--chat-template",), "JINJA_TEMPLATE", (), "LLAMA_ARG_CHAT_TEMPLATE"),
        ("LLAMA_API_KEY", ("--api-key",), "KEY", (), "LLAMA_API_KEY"),
    ],
)
def test_the_help_is_read(name: str, spellings: tuple[str, ...], hint: str, allowed: tuple[str, ...], env: str) -> None:
    option = HELP.find(name)
    assert option is not None
    assert (option.spellings, option.hint, option.allowed) == (spellings, hint, allowed)
    assert option.env == env or (env == "L*" and option.env.startswith("LLAMA_ARG_"))


def test_every_entry_of_the_help_is_an_option_and_no_spelling_is_two() -> None:
    lines = [line for line in HELP_FILE.read_text().splitlines() if line.startswith("-") and line[:5] != "-----"]
    spellings = [spelling for option in HELP.options for spelling in option.spellings]
    assert len(HELP.options) == len(lines) == 255
    assert len(spellings) == len(set(spellings))
    assert [s for s in spellings if not s.startswith("-") or "," in s] == []


def test_a_value_that_a_list_marks_as_the_default_is_one() -> None:
    head, pad = "--mode MODE".ljust(40), " " * 40
    (option,) = parse_help(f"{head}how, one of:\n{pad}- fast (default): soon\n{pad}- slow: late\n").options
    assert option.allowed == ("fast", "slow")


def test_the_values_of_the_cache_are_those_the_catalogue_takes() -> None:
    option = HELP.find("cache-type-k")
    assert option is not None
    assert option.allowed == ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


RIGHT = {
    "threads": "8",
    "temp": "0.7",
    "temperature": "1e-05",
    "cache-ram": "-1",
    "metrics": True,
    "no-context-shift": True,
    "load-mode": "dio",
    "numa": "numactl",
    "lazy-mode": "off",
    "reasoning": "off",
    "reasoning-format": "auto",
    "reasoning-effort": "high",
    "spec-type": "draft-mtp,ngram-mod",
    "spec-draft-ngl": "all",
    "fit-target": "512,1024",
    "verbosity": "9",
    "chat-template": "chatml",
    "kv-unified": True,
    "no-mmproj-offload": True,
}


@pytest.mark.parametrize("flag", sorted(RIGHT))
def test_settings_that_the_server_takes_are_accepted(flag: str) -> None:
    assert find_flag_problems(HELP, {flag: RIGHT[flag]}, own=MANAGED_FLAGS) == {}


@pytest.mark.parametrize(
    ("flag", "value", "essence"),
    [
        ("thread", "8", 'is not an option of this llama-server; did you mean "threads"?'),
        ("no-such-flag-at-all", True, "is not an option of this llama-server"),
        ("t", "8", 'must be written with its long name, "threads"'),
        ("kvu", True, 'must be written with its long name, "kv-unified"'),
        ("threads", True, "needs a value: N"),
        ("load-mode", True, "needs a value: auto, none, mmap, mlock, mmap+mlock, dio"),
        ("threads", "many", 'takes a number, not "many"'),
        ("metrics", "true", 'takes no value: write true instead of "true"'),
        ("no-context-shift", "1", 'takes no value: write true instead of "1"'),
        ("load-mode", "mmlock", 'does not accept "mmlock"; did you mean "mlock"?'),
        ("reasoning", "1", 'does not accept "1"; allowed: auto, off, on'),
        ("split-mode", "rows", 'does not accept "rows"; did you mean "row"?'),
        ("spec-type", "draft-mtp,ngram", 'does not accept "ngram"; did you mean'),
        ("control-vector-layer-range", "1,2", "takes 2 values, START END: a flag can have only one"),
        ("draft-max", "4", "which says: use --spec-draft-n-max or --spec-ngram-mod-n-max"),
        ("spec-ngram-size-n", "4", "was removed from llama-server, which says: use the respective"),
        ("mlock", True, 'it is now load-mode = "mmap+mlock" (llama.cpp\'s pull requests 20834 and 26135)'),
        ("no-mmap", True, 'it is now load-mode = "none"'),
        ("direct-io", True, 'it is now load-mode = "dio"'),
        ("gpt-oss-20b-default", True, "is not allowed in flags: other keys set gpt-oss-20b-default"),
    ],
)
def test_settings_that_the_server_would_refuse_are_refused(flag: str, value: str | bool, essence: str) -> None:
    wrong = find_flag_problems(HELP, {flag: value, "metrics": True} if flag != "metrics" else {flag: value})
    assert list(wrong) == [flag]
    assert essence in wrong[flag]


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        *(("m", "model"), ("gpu-layers", "gpu-layers"), ("ngl", "gpu-layers"), ("c", "ctx-size"), ("np", "parallel")),
        *(("fa", "flash-attn"), ("ctk", "cache-type-k"), ("mm", "mmproj"), ("no-mmproj", "mmproj-auto")),
        *(("LLAMA_ARG_MODEL", "model"), ("LLAMA_API_KEY", "api-key"), ("HF_TOKEN", "hf-token"), ("hfr", "hf-repo")),
        *(
            ("ag", "agent"),
            ("no-agent", "agent"),
            ("embeddings", "embedding"),
            ("mcp-servers-json", "mcp-servers-json"),
        ),
        *(("hfd", "spec-draft-hf"), ("cl", "cache-list"), ("usage", "help"), ("list-devices", "list-devices")),
    ],
)
def test_an_option_that_another_key_sets_is_refused_by_any_name(flag: str, name: str) -> None:
    assert find_flag_problems(HELP, {flag: "x"}, own=MANAGED_FLAGS) == {
        flag: f"is not allowed in flags: other keys set {name}"
    }


def test_removed_options_are_not_suggested() -> None:
    (text,) = find_flag_problems(HELP, {"draft-maxi": "4"}).values()
    assert "draft-max" not in text.replace("draft-n-max", "").replace("draft-maxi", "")


def test_one_option_by_two_names_is_refused() -> None:
    flags: dict[str, str | bool] = {"temp": "1", "temperature": "1", "context-shift": True, "no-context-shift": True}
    assert find_flag_problems(HELP, flags) == {
        "temperature": "duplicates --temp",
        "no-context-shift": "duplicates --context-shift",
    }


def test_every_name_that_is_the_rigs_own_is_one_of_the_pinned_servers() -> None:
    assert [name for name in sorted(MANAGED_FLAGS) if not HELP.find(name)] == []


def test_a_renamed_option_belongs_only_to_the_older_version() -> None:
    for old, (new, value, _) in RENAMED.items():
        assert (OLD.find(old) is None, HELP.find(old)) == (False, None)
        assert find_flag_problems(OLD, {old: True}) == find_flag_problems(HELP, {new: value}) == {}
    assert "not an option of this llama-server" in find_flag_problems(OLD, {"load-mode": "mmap"})["load-mode"]


EVERY_KEY = {
    "cpu": sample_instance(),
    "all": sample_instance(
        cards=(0,), parts=sample_parts(mmproj=sample_artefact(name="eye")), memory_lock=True, thinking="off", parallel=4
    ),
}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
@pytest.mark.parametrize("name", EVERY_KEY)
def test_options_of_our_own_keys_are_taken_by_every_shipped_version(path: Path, name: str) -> None:
    one = EVERY_KEY[name]
    assert find_flag_problems(load_snapshot(path), key_options(one, Roots())) == {}


def test_a_snapshot_of_every_engine_ships() -> None:
    lock = Lock.load([ROOT / "locks"])
    declared = load_catalog([ROOT / "catalog"]).engines.values()
    engines = [engine for engine in declared if isinstance(engine, LlamaEngine)]
    names = {snapshot_file_name(lock.artefacts[engine.source].version, engine.commit) for engine in engines}
    assert names == {path.name for path in SHIPPED}


def test_an_option_of_ours_that_a_version_lacks_is_reported() -> None:
    lacking = LlamaSnapshot(tuple(o for o in OLD.options if o.name not in ("reasoning", "api-key-file")))
    one = replace(EVERY_KEY["all"], known=lacking)
    assert sorted(find_flag_problems(lacking, key_options(one, Roots()))) == ["api-key-file", "reasoning"]


@pytest.mark.parametrize("text", ["", "bash: llama-server: command not found\n", "-x\n", "\n".join(["-"] * 50)])
def test_a_file_that_is_no_help_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(Invalid, match=r"x\.txt: the file: is not the output of `llama-server --help`"):
        load_snapshot(tmp_path / "x.txt")


def test_text_around_the_options_is_passed_over() -> None:
    assert parse_help("load_backend: loaded CPU\n\n" + HELP_FILE.read_text() + "\nusage: x\n").options == HELP.options


FLAGS_FILE = f"catalog/flags/{snapshot_file_name('1.0', '0123456')}"


@pytest.mark.parametrize(
    ("old", "new", "essence"),
    [
        (
            'threads = "8"',
            'thread = "8"',
            'flags.thread is not an option of this llama-server; did you mean "threads"?',
        ),
        ('threads = "8"', 'm = "x"', "flags.m is not allowed in flags: other keys set model"),
        ('threads = "8"', "no-agent = true", "flags.no-agent is not allowed in flags: other keys set agent"),
        ("metrics = true", 'metrics = "on"', 'flags.metrics takes no value: write true instead of "on"'),
    ],
)
def test_an_instance_with_a_wrong_flag_is_refused(box: OperatorFolder, old: str, new: str, essence: str) -> None:
    box.write("catalog/box.toml", CATALOG.replace(old, new))
    assert box.refusal_lines() == [
        line for line in box.refusal_lines() if line.startswith(f"{box.inventory}: box.instances.chat")
    ]
    assert f"box.instances.chat.variant: llamacpp/two: {essence}" in "\n".join(box.refusal_lines())


def test_a_snapshot_beside_the_inventory_lies_over_ours(box: OperatorFolder) -> None:
    row = box.folder / "locks" / "box.lock.toml"
    box.write("locks/box.lock.toml", row.read_text().replace('name = "engine-source"', 'name = "another"'))
    box.write("catalog/box.toml", CATALOG.replace('engine = "plain"', 'engine = "llama.cpp"'))
    assert len(box.load_group({"box": sample_entry()})) == 1
    box.write(f"catalog/flags/{HELP_FILE.name}", HELP_FILE.read_text().replace("--metrics ", "--metriks "))
    (line,) = box.refusal_lines()
    assert 'flags.metrics is not an option of this llama-server; did you mean "metriks"?' in line


def test_a_variant_that_no_instance_uses_is_not_judged(box: OperatorFolder) -> None:
    box.write("catalog/box.toml", CATALOG.replace('threads = "8"', 'thread = "8"'))
    assert len(box.load_group({"box": {"mirrors": {"store": ["http://h/"]}, "instances": chat_instances()}})) == 1


KEYS = {"flags": "flags.metrics = true", "memory": "memory_lock = true", "thinking": 'thinking = "off"', "none": ""}


@pytest.mark.parametrize("key", KEYS)
def test_an_engine_without_a_snapshot_is_refused_where_one_is_needed(box: OperatorFolder, key: str) -> None:
    (box.folder / FLAGS_FILE).unlink()
    box.write("catalog/box.toml", CATALOG.replace("context = 4096\n", f"context = 4096\n{KEYS[key]}\n", 1))
    if key == "none":
        assert len(box.load_group({"box": {"mirrors": {"store": ["http://h/"]}, "instances": chat_instances()}})) == 1
        return
    assert box.refusal_lines(instances=chat_instances()) == [
        f"{box.inventory}: box.instances.chat.variant: llamacpp/cpu: the options of plain are unknown: "
        f"run its `llama-server --help > {box.folder / FLAGS_FILE}`"
    ]


def test_a_snapshot_that_is_invalid_is_reported_with_its_file(box: OperatorFolder) -> None:
    box.write(FLAGS_FILE, "")
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.endswith(
        f"llamacpp/cpu: {box.folder / FLAGS_FILE}: the file: is not the output of `llama-server --help`"
    )


def test_a_version_without_an_option_that_a_key_needs_is_refused(box: OperatorFolder) -> None:
    kept = [line for line in HELP_FILE.read_text().splitlines(keepends=True) if "--reasoning [on" not in line]
    box.write(FLAGS_FILE, "".join(kept))
    box.write("catalog/box.toml", CATALOG.replace("context = 4096\n", 'context = 4096\nthinking = "on"\n', 1))
    (line,) = box.refusal_lines(instances=chat_instances())
    assert "llamacpp/cpu: plain cannot be started: --reasoning is not an option of this llama-server" in line


def test_a_key_and_a_flag_that_set_one_option_are_refused(box: OperatorFolder) -> None:
    keys = 'context = 4096\nmemory_lock = true\nflags.load-mode = "dio"\n'
    box.write("catalog/box.toml", CATALOG.replace("context = 4096\n", keys, 1))
    (line,) = box.refusal_lines(instances=chat_instances())
    assert line.endswith("llamacpp/cpu: flags.load-mode is not allowed in flags: other keys set load-mode")
