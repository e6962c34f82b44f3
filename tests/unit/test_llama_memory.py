"""The computed memory of llama-server: drafts and the parts of cards."""

from dataclasses import replace
from fractions import Fraction

import pytest

from rigwright.engines.known_issues import place_instance
from rigwright.engines.llama_cpp.known_issues import estimate_memory
from rigwright.engines.memory_assessment import assess_memory
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.model.catalog_schema import Card
from rigwright.supply.artefact import Artefact, GgufMetadata, KvCacheSize
from tests.unit.samples import sample_artefact, sample_card, sample_instance, sample_parts

GIB = 1 << 30
HEADER = GgufMetadata(architecture="llama", cache=KvCacheSize(keys=1000, values=500))


def locked_file(name: str, header: GgufMetadata) -> Artefact:
    """A file of weights with a header."""
    return sample_artefact(name=name, file=f"{name}.gguf", size=GIB, header=header)


def estimate(
    draft: GgufMetadata | None = None, cards: tuple[Card, ...] = (), **changes: object
) -> tuple[MemoryNeed, object]:
    """The estimate, and the answer on a card with 24 GiB."""
    others = {"spec_draft_model": locked_file("draft", draft)} if draft else {}
    parts = sample_parts(locked_file("model", HEADER), **others)
    made = sample_instance(cards=tuple(range(len(cards) or 1)), parts=parts)
    variant = made.variant.model_copy(update=changes)
    one = place_instance(replace(made, variant=variant), cards or (sample_card("8.6"),), ())
    found = estimate_memory(one)
    assert found is not None
    answer = assess_memory(one, (), (24 * GIB,) * len(one.cards))
    assert answer is not None
    return found, answer.verdict


def test_the_kv_cache_of_a_draft_counts_in_its_own_type() -> None:
    alone, _ = estimate(cache_type_k="q8_0")
    draft = HEADER.model_copy(update={"cache": KvCacheSize(keys=170, values=50, window=512, window_keys=17)})
    both, verdict = estimate(draft, cache_type_k="q8_0")
    assert both.is_complete
    assert both.cache is not None
    assert both.cache.window > 0
    assert both.token_bytes - alone.token_bytes == pytest.approx(170 * 2 + 50 * 2, abs=2)
    assert both.cache.window_keys * both.key_bytes == pytest.approx(Fraction(34), abs=2)
    assert verdict == "fits"


@pytest.mark.parametrize("flags", [{"spec-type": "draft-mtp"}, {"spec-draft-type-k": "other"}])
def test_drafting_of_unknown_size_never_fits_without_a_record(flags: dict[str, str]) -> None:
    draft = HEADER if "spec-draft-type-k" in flags else None
    found, verdict = estimate(draft, flags=flags)
    assert (found.is_complete, verdict) == (False, "may not fit")


def test_a_draft_whose_header_states_no_cache_never_fits_without_a_record() -> None:
    found, verdict = estimate(GgufMetadata(architecture="llama"))
    assert (found.is_complete, verdict) == (False, "may not fit")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, (24576.0, 12288.0)),
        ({"shares": (1, 3)}, (1.0, 3.0)),
        ({"split_mode": "none"}, (1.0, 0.0)),
        ({"split_mode": "none", "flags": {"main-gpu": "1"}}, None),
        ({"split_mode": "row"}, None),
    ],
)
def test_each_card_has_its_declared_part(changes: dict[str, object], parts: tuple[float, ...] | None) -> None:
    pair = (sample_card("8.6"), sample_card("8.6").model_copy(update={"vram_mib": 12288}))
    found, _ = estimate(cards=pair, **changes)
    assert found.parts == parts
