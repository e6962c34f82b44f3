"""Every variant that is shipped: it can be declared on each of its cards, and says what is known of it and what for.

An inventory's declaration is judged whole: each option by the pinned engine's own rules, with model and card.
"""

from pathlib import Path

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.inventory import hosts, load_rig
from rigwright.model.engine_schema import BootedEvidence, ParsedEvidence
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from tests.unit.shipped_inventories import write_lock

CATALOG = load_catalog([ROOT / "catalog"])
# Of a machine that has to be there first: their models are made there
MADE_THERE = {"llamacpp/demo", "llamacpp/demo-wheel", "llamacpp/metal"}
DECLARED = [
    (name, card)
    for name, one in sorted(CATALOG.variants.items())
    if one.purpose and name not in MADE_THERE
    for card in one.purpose.cards or ("rtx-3090",)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's, with all that is shipped locked."""
    made = tmp_path_factory.mktemp("box")
    write_lock(made)
    return made


def load_variant_rig(folder: Path, variant: str, card: str) -> Rig:
    """A rig that has as many of a card as a variant takes, and serves that."""
    count = CATALOG.variants[variant].cards
    instance = {"variant": variant, "cards": list(range(count)), "port": 8020}
    entry = {"ssh_hostname": "192.0.2.7", "cards": [card] * count, "instances": {"chat": instance}}
    scope = {"hosts": hosts, "entry": entry}
    exec(compile("rigs = hosts({'box': entry})", str(folder / "rig.py"), "exec"), scope)
    ((_, data),) = scope["rigs"]  # type: ignore[misc] # what hosts() returns
    return load_rig(data["rig"])


@pytest.mark.parametrize(("variant", "card"), [one for one in DECLARED if not one[0].startswith("image/")])
def test_it_can_be_declared_on_its_cards(folder: Path, variant: str, card: str) -> None:
    one = load_variant_rig(folder, variant, card)
    assert [instance.variant_name for instance in one.instances] == [variant]
    # the wheel's own table of fields judges its options
    wheel = CATALOG.engines[CATALOG.variants[variant].engine].kind == "llama.cpp-wheel"
    assert wheel or one.instances[0].known is not None, "nothing judged its options"


@pytest.mark.parametrize("name", sorted(CATALOG.variants))
def test_it_says_what_is_known_of_it_and_what_it_is_for(name: str) -> None:
    one = CATALOG.variants[name]
    assert one.evidence is not None
    assert one.purpose is not None
    # every shipped variant was looked at
    assert not isinstance(one.evidence, ParsedEvidence)


def test_evidence_of_a_boot_names_the_booted_variant() -> None:
    seen = (ROOT / "docs" / "reference" / "evidence.md").read_text()
    booted = {name: one.evidence for name, one in CATALOG.variants.items() if isinstance(one.evidence, BootedEvidence)}
    assert booted.keys() == MADE_THERE
    for one in booted.values():
        assert one.date in seen
        assert one.driver is None or f"driver {one.driver}" in seen


@pytest.mark.parametrize(
    ("image", "environment"),
    [
        ("image/default", "vllm/qwen3.6-27b-int4"),
        ("image/dual", "vllm/dual"),
        ("image/long-vision", "vllm/long-vision"),
        ("image/turbo", "vllm/turbo"),
        ("image/qwen3-30b-a3b-awq", "vllm/qwen3-30b-a3b-awq"),
    ],
)
def test_an_image_serves_as_much_as_the_environment_that_it_is_in_place_of(image: str, environment: str) -> None:
    own, other = (CATALOG.variants[name].model_dump() for name in (image, environment))
    sizes = ("model", "cards", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype")
    sizes += ("gpu_memory_utilization", "reasoning_parser", "tool_call_parser", "speculative_config")
    assert {key: own[key] for key in sizes} == {key: other[key] for key in sizes}


@pytest.mark.parametrize("name", sorted(CATALOG.blocked))
def test_a_blocked_one_says_what_there_is_instead(name: str) -> None:
    one = CATALOG.blocked[name]
    assert one.alternative
    assert set(one.alternative) <= CATALOG.variants.keys()
    assert name not in CATALOG.variants


def test_speculative_decoding_has_no_prefix_cache_without_the_patch() -> None:
    """github.com/vllm-project/vllm/issues/43559."""
    guessing = {
        name: one for name, one in CATALOG.variants.items() if getattr(one, "speculative_config", None) is not None
    }
    assert len(guessing) > 5
    for name, one in guessing.items():
        engine = CATALOG.engines[one.engine]
        env = CATALOG.envs.get(getattr(engine, "env", ""))
        carried = "mamba-prefix-cache-mtp" in (env.patches if env else ())
        assert ("enable-prefix-caching" in one.flags) == carried, name  # type: ignore[attr-defined] # vLLM's
