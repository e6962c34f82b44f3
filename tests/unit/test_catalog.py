"""The catalogue: the texts of its files, and how folders lie over each other."""

import re
from pathlib import Path

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.build import cuda_architecture, plan_build
from rigwright.engines.llama_cpp.catalog_keys import MANAGED_CMAKE_OPTIONS, MANAGED_FLAGS
from rigwright.model.catalog_schema import Catalog
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from tests.unit.sample_texts import CATALOG
from tests.unit.samples import (
    OperatorFolder,
    sample_card,
    sample_engine,
    sample_entry,
    sample_facts,
    sample_instance,
    sample_rig,
)


def load(folder: Path, text: str) -> Catalog:
    (folder / "a.toml").write_text(text)
    return load_catalog([folder])


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(Invalid) as caught:
        load(folder, text)
    return str(caught.value)


def changed(old: str, new: str) -> str:
    assert old in CATALOG
    return CATALOG.replace(old, new)


def test_a_catalogue_is_read(tmp_path: Path) -> None:
    catalog = load(tmp_path, CATALOG)
    assert sorted(catalog.cards) == ["ampere", "turing"]
    assert catalog.variants["llamacpp/two"].flags == {"threads": "8", "metrics": True}
    assert catalog.models["small"].file == "small"


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("7.5", "75-real"),
        ("8.0", "80-real"),
        ("8.6", "86-real"),
        ("8.9", "89-real"),
        ("9.0", "90-real"),
        ("10.0", "100-real"),
        ("12.0", "120a-real"),
        ("12.1", "121a-real"),
        ("1.2", "12-real"),
    ],
)
def test_machine_code_is_for_the_card_alone_and_blackwells_own_from_12(capability: str, architecture: str) -> None:
    assert cuda_architecture(capability) == architecture


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("vram_mib = 11264", "vram_mb = 11264", "cards.turing.vram_mb: unknown key"),
        ("vram_mib = 11264", "", "cards.turing.vram_mib: missing"),
        ("vram_mib = 11264", "vram_mib = 0", "cards.turing.vram_mib: 0 is refused"),
        ('["10de:2204"]', "[]", "cards.ampere.pci_ids: [] is refused"),
        ('["10de:2204"]', '["10de:2204", "2204"]', "cards.ampere.pci_ids[1]: '2204' is refused"),
        ('"8.6"', "8.6", "cards.ampere.capability: 8.6 is refused"),
        ('"NVIDIA GeForce RTX 3090"', '"a\\nb"', "cards.ampere.name: "),
        ("vram_mib = 11264", 'vram_mib = 11264\nmodule = "open"', "cards.turing.module: 'open' is refused"),
        ("[cards.ampere]", '[cards."../x"]', "cards.../x: '../x' is refused"),
        ("[cards.ampere]", "[card.ampere]", "card: unknown key"),
        ('kind = "llama.cpp"', 'kind = "lama.cpp"', "engines.plain.kind: 'lama.cpp' is refused"),
        (f'commit = "{"0123456789abcdef" * 2}01234567"', 'commit = "main"', "engines.plain.commit: 'main' is refused"),
        ('commit = "0', 'subtree = "../x"\ncommit = "0', "engines.plain.subtree: '../x' is refused"),
        ('commit = "0', 'options = { ggml = "1" }\ncommit = "0', "engines.plain.options.ggml: 'ggml' is refused"),
        ('commit = "0', 'options = { A = "a b" }\ncommit = "0', "engines.plain.options.A: 'a b' is refused"),
        ('commit = "0', 'options = { A = "$(id)" }\ncommit = "0', "engines.plain.options.A: '$(id)' is refused"),
        ('"q8_0"', '"q9_0"', "variants.llamacpp/two.cache_type_k: 'q9_0' is refused"),
        (
            "context = 8192",
            'context = 8192\nmemory_lock = "yes"',
            "variants.llamacpp/two.memory_lock: 'yes' is refused",
        ),
        ("context = 8192", "context = 8192\nthinking = true", "variants.llamacpp/two.thinking: True is refused"),
        ('file = "small"', 'file = "small"\nmmproj = "../x"', "models.small.mmproj: '../x' is refused"),
        ('threads = "8"', 'threads = "--host"', "variants.llamacpp/two.flags.threads"),
        ('threads = "8"', "threads = nan", "variants.llamacpp/two.flags.threads"),
        ('flash_attention = "on"', "flash_attention = true", "variants.llamacpp/two.flash_attention: True is refused"),
        ("cards = 2", "cards = -1", "variants.llamacpp/two.cards: -1 is refused"),
        ("cards = 2", 'cards = "2"', "variants.llamacpp/two.cards: '2' is refused"),
        ("parallel = 2", "parallel = 0", "variants.llamacpp/two.parallel: 0 is refused"),
        ("context = 8192", "", "variants.llamacpp/two.context: missing"),
        ('threads = "8"', '"--threads" = "8"', "variants.llamacpp/two.flags.--threads: '--threads' is refused"),
        ('threads = "8"', 'threads = "8\\nUser=root"', "variants.llamacpp/two.flags.threads"),
        ('threads = "8"', "threads = { a = 2026-11-22 }", "variants.llamacpp/two.flags.threads"),
        ('threads = "8"', "threads = false", "variants.llamacpp/two.flags.threads"),
        ('[variants."llamacpp/two"]', "[variants.two]", "variants.two: 'two' is refused"),
    ],
)
def test_a_mistake_is_refused_with_its_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    lines = refusal(tmp_path, changed(old, new)).splitlines()
    assert any(line.startswith(f"{tmp_path / 'a.toml'}: {place}") for line in lines), lines


@pytest.mark.parametrize("flag", sorted(MANAGED_FLAGS))
def test_an_option_that_another_key_sets_is_no_flag(box: OperatorFolder, flag: str) -> None:
    box.write("catalog/box.toml", changed('threads = "8"', f'{flag} = "8"\nnone-such = true'))
    text = "\n".join(box.refusal_lines())
    assert f"box.instances.chat.variant: llamacpp/two: flags.{flag} is not " in text
    assert "flags.none-such is not an option" in text


@pytest.mark.parametrize("option", sorted(MANAGED_CMAKE_OPTIONS - {"CUDAToolkit_ROOT"}))
def test_an_option_that_follows_from_the_cards_is_no_engines(tmp_path: Path, option: str) -> None:
    (line,) = refusal(tmp_path, changed('commit = "0', f'options = {{ {option} = "x" }}\ncommit = "0')).splitlines()
    assert line.startswith(f"{tmp_path / 'a.toml'}: engines.plain.options: ")
    assert f"must be options other than {option}: " in line


def test_the_toolkits_place_is_no_engines(tmp_path: Path) -> None:
    text = refusal(tmp_path, changed('commit = "0', 'options = { CUDAToolkit_ROOT = "/x" }\ncommit = "0'))
    assert "engines.plain.options.CUDAToolkit_ROOT: " in text


def test_a_build_sets_no_option_that_an_engine_could_set_too() -> None:
    made = plan_build(
        sample_rig(sample_instance(cards=(0,)), cards=(sample_card("8.6"),)), "plain", sample_engine(), sample_facts()
    )
    assert set(made.options) <= MANAGED_CMAKE_OPTIONS


def test_numbers_and_true_are_values_of_flags(tmp_path: Path) -> None:
    catalog = load(tmp_path, changed('threads = "8"', "threads = 8\ntemp = 0.7"))
    assert catalog.variants["llamacpp/two"].flags == {"threads": "8", "temp": "0.7", "metrics": True}


def test_mistakes_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("[cards")
    (tmp_path / "c.toml").write_text("[models.x]\n[models.y]\n")
    text = refusal(tmp_path, changed('"8.6"', '"x"'))
    assert re.findall(r"/([abc]\.toml): ([\w. ]+):", text) == [
        ("a.toml", "cards.ampere.capability"),
        ("b.toml", "the file"),
        ("c.toml", "models.x"),
        ("c.toml", "models.y"),
    ]


def test_one_name_twice_in_one_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('[models.small]\nfile = "x"\n')
    assert refusal(tmp_path, CATALOG) == f"{tmp_path / 'b.toml'}: models.small: is listed twice"


def test_a_later_folders_entry_replaces_a_whole_one_of_the_same_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "a.toml").write_text(CATALOG)
    (second / "a.toml").write_text(
        '[variants."llamacpp/two"]\nengine = "plain"\nmodel = "small"\ncontext = 1\n[models.more]\nfile = "more"\n'
    )
    catalog = load_catalog([first, second])
    assert catalog.variants["llamacpp/two"].flags == {}
    assert sorted(catalog.models) == ["more", "small"]
    assert load_catalog([second, first]).variants["llamacpp/two"].context == 8192


def test_shipped_files_are_complete() -> None:
    catalog = load_catalog([ROOT / "catalog"])
    assert {variant.engine for variant in catalog.variants.values()} <= set(catalog.engines)
    assert {variant.model for variant in catalog.variants.values()} <= set(catalog.models)


X = '[variants."plan/x"]\n'
WHOLE = f'{X}engine = "plain"\nmodel = "small"\ncontext = 4096\n'
ENGINES = "allowed: plain"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            WHOLE.replace('engine = "plain"\n', ""),
            [f"variants.plan/x.engine: missing; {ENGINES}"],
        ),
        (
            WHOLE.replace("engine", "engin").replace("plain", "plane"),
            [
                'variants.plan/x.engin: unknown key; did you mean "engine"?; '
                'there is no engine "plane"; did you mean "plain"?'
            ],
        ),
        (
            WHOLE.replace("engine", "Engine"),
            ['variants.plan/x.Engine: unknown key; did you mean "engine"?'],
        ),
        (
            f"{X}cards = -1\n",
            [
                "variants.plan/x.cards: -1 is refused: must be at least 0",
                f"variants.plan/x.engine: missing; {ENGINES}",
                "variants.plan/x.model: missing",
            ],
        ),
        (
            '[engines.x]\nsource = "s"\nimage = "i"\n',
            ["engines.x.kind: missing; allowed: image, llama.cpp, llama.cpp-wheel, vllm"],
        ),
        (
            f'{WHOLE}evidence.kind = "boted"\n',
            [
                "variants.plan/x.evidence.kind: 'boted' is refused; did you mean \"booted\"?; "
                "allowed: booted, derived, parsed, published"
            ],
        ),
        (
            f'{WHOLE}evidence.card = "x"\n',
            ["variants.plan/x.evidence.kind: missing; allowed: booted, derived, parsed, published"],
        ),
        (
            f'{WHOLE}split_mode = "rows"\n',
            [
                "variants.plan/x.split_mode: 'rows' is refused: must be 'none', 'layer', 'row' or 'tensor'; "
                'did you mean "row"?'
            ],
        ),
        (
            WHOLE.replace("4096", "2026-11-26"),
            ["variants.plan/x.context: 2026-11-26 is refused: must be a whole number"],
        ),
        (f"\ufeff{WHOLE}", ["the file: cannot be read as TOML: it begins with a byte order mark: save it as UTF-8"]),
    ],
)
def test_missing_or_misspelt_keys_are_reported_once_with_the_allowed_ones(tmp_path, text, said):
    (tmp_path / "b.toml").write_text(text)
    lines = refusal(tmp_path, CATALOG).splitlines()
    assert len(lines) == len(said)
    for line, start in zip(lines, said, strict=True):
        assert line.startswith(f"{tmp_path / 'b.toml'}: {start}")


def test_a_key_that_its_kind_does_not_have_is_reported_with_the_nearest_one(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, changed("parallel = 2", "paralel = 2")).splitlines()
    path = tmp_path / "a.toml"
    assert line.startswith(f'{path}: variants.llamacpp/two.paralel: unknown key; did you mean "parallel"?')


def test_a_variant_of_an_engine_that_is_not_there_is_reported_by_what_uses_it(box: OperatorFolder) -> None:
    """Its allowed keys are unknown; a rig that does not use it has no harm from it."""
    catalog = CATALOG.replace(
        '[variants."llamacpp/cpu"]\nengine = "plain"', '[variants."llamacpp/cpu"]\nengine = "plane"'
    )
    box.write("catalog/box.toml", catalog)
    (line,) = box.refusal_lines()
    assert line == (
        f"{box.inventory}: box.instances.code.variant: llamacpp/cpu: "
        'there is no engine "plane"; did you mean "plain"?; allowed: llama.cpp, llama.cpp-wheel, plain, vllm, '
        "vllm-0.20, vllm-image, vllm-mtp"
    )
    assert box.load_group({"box": sample_entry(instances={})})


def test_a_variant_is_of_the_kind_of_the_engine_that_is_on_top(tmp_path: Path) -> None:
    """A later folder may have another engine of that name, and a variant is judged by that one."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "a.toml").write_text(CATALOG)
    (second / "b.toml").write_text('[engines.plain]\nkind = "llama"\n')
    with pytest.raises(Invalid) as caught:
        load_catalog([first, second])
    assert (
        str(caught.value)
        == f"{second / 'b.toml'}: engines.plain.kind: 'llama' is refused; did you mean \"llama.cpp\"?; "
        "allowed: image, llama.cpp, llama.cpp-wheel, vllm"
    )


@pytest.mark.parametrize("text", ["engines = 7", "[engines]\nplain = 7", '[variants]\n"a/b" = "x"', "variants = []"])
def test_an_invalid_table_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    (line,) = refusal(tmp_path, f"{text}\n").splitlines()
    assert line.startswith(f"{tmp_path / 'a.toml'}: {text.strip('[').partition(']')[0].partition(' ')[0]}")
    assert "must be a table of" in line
