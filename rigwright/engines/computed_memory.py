"""The computed memory of an instance on its cards or in RAM: the input of predictions and a part of each record."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from rigwright.engines import kind_of
from rigwright.engines.known_issue_rule import PlacedInstance
from rigwright.engines.memory_fit import MemoryNeed
from rigwright.engines.memory_prediction import ComputedMemory
from rigwright.engines.reported_memory import FAILURE_PATTERNS
from rigwright.model.instance import Instance

# Keys of variants that the memory is computed from: other values are neighbours.
COMPUTED_KEYS = frozenset({"context", "parallel", "cache_type_k", "cache_type_v", "max_model_len", "max_num_seqs"})
# ... and those that say nothing about memory.
IRRELEVANT_KEYS = frozenset({"model", "engine", "evidence", "ready_timeout", "purpose", "thinking", "cards", "blocked"})


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def engine_label(instance: Instance) -> str:
    """The kind and the version of an instance's engine."""
    version = next((one.version for one in instance.artefacts), "")
    return f"{instance.engine.kind} {version}".strip()


def compute_memory(
    one: PlacedInstance,
    need: MemoryNeed,
    *,
    driver: str = "",
    context: int | None = None,
    parallel: int | None = None,
) -> ComputedMemory:
    """The computed sizes of an instance.

    Args:
        one: The instance on its cards.
        need: Its kind's estimate.
        driver: The version of the driver.
        context: Tokens over all sequences in place of its own.
        parallel: Sequences in place of its own.
    """
    instance = one.instance
    sequences, tokens = need.requests if parallel is None else parallel, need.tokens if context is None else context
    sized = need.with_tokens(tokens, sequences)
    # of a cache of unknown size, each value of these keys is another variant
    computed = COMPUTED_KEYS if need.is_complete else frozenset()
    keys = instance.variant.model_dump(mode="json", exclude={*computed, *IRRELEVANT_KEYS})
    on_cards = bool(one.cards)
    files = sum(artefact.size for artefact in instance.weights)
    weights = sized.weights if on_cards else files
    work, later = sized.work_bytes(on_cards=on_cards)
    return ComputedMemory(
        engine=engine_label(instance),
        model=_digest(sorted(artefact.sha256 for artefact in instance.weights)),
        options=_digest([keys, sorted(artefact.sha256 for artefact in instance.artefacts), sorted(one.patches)]),
        cards=tuple(card.name for card in one.cards),
        driver=driver,
        context=tokens,
        parallel=sequences,
        weights=weights,
        cache=sized.cache_bytes,
        work=work,
        later=later,
        host=max(0, files - weights),
        share=sized.share if sized.takes_share and on_cards else 0.0,
        parts=sized.parts,
    )


def render_memory_declaration(one: PlacedInstance, fingerprint: str) -> str:
    """The file that the recorder on the host copies into each record of an instance."""
    need = kind_of(one.instance).memory(one)
    sizes = asdict(compute_memory(one, need)) if need else {}
    sizes.pop("parts", None)
    computed = {**sizes, "indexes": one.instance.cards} if sizes else None
    patterns = kind_of(one.instance).memory_patterns
    texts = {"patterns": list(patterns), "failure_patterns": list(FAILURE_PATTERNS)}
    value = {"fingerprint": fingerprint, "computed": computed, **texts}
    return json.dumps(value, indent=1, sort_keys=True) + "\n"
