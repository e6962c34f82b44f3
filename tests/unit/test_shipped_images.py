"""The variants of images that are shipped: vLLM's own parser of that version takes them, on the cards they are for."""

from pathlib import Path

import pytest

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.image import KIND
from rigwright.engines.image.catalog_keys import ImageEngine, VllmVariant
from rigwright.model.roots import Roots
from rigwright.project_root import ROOT
from tests.unit import samples, vllm_samples
from tests.unit.image_samples import image_rows
from tests.unit.shipped_inventories import CHECKPOINTS

CATALOG = load_catalog([ROOT / "catalog"])
VARIANTS = {name: one for name, one in CATALOG.variants.items() if isinstance(CATALOG.engines[one.engine], ImageEngine)}


@pytest.mark.parametrize(
    ("name", "card"),
    [(name, card) for name, one in sorted(VARIANTS.items()) for card in (one.purpose.cards if one.purpose else ())],
)
def test_this_version_starts_with_it(name: str, card: str) -> None:
    variant = VARIANTS[name]
    assert isinstance(variant, VllmVariant)
    engine = CATALOG.engines[variant.engine]
    known = KIND.version_data(CATALOG, engine, image_rows())
    made = samples.sample_instance(
        cards=tuple(range(variant.cards)),
        engine_name=variant.engine,
        engine=engine,
        variant=variant,
        variant_name=name,
        model_name=variant.model,
        parts=vllm_samples.checkpoint_parts(CHECKPOINTS[str(CATALOG.models[variant.model].folder)]),
        artefacts=image_rows(),
        known=known,
    )
    assert KIND.refusals(made, Roots(), Path("/box"), frozenset({CATALOG.cards[card].capability})) == []
    assert KIND.forbidden_keys(made) == {}
    assert CATALOG.inputs[engine.image].kind == "image"  # type: ignore[attr-defined] # an image's
