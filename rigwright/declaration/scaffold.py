"""New entries of a catalogue, as the text of a file of it: a model, or a variant that is like another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rigwright import toml
from rigwright.model.engines.evidence import DerivedEvidence
from rigwright.model.engines.keys import VariantKeys
from rigwright.model.engines.purpose import Purpose

# Below this mirror of the inventory's hosts find what no hub publishes.
MIRROR = "own"


def render_model(name: str, repository: str | None, include: Sequence[str]) -> str:
    """A model and the input that it is, as TOML.

    Args:
        name: Of both.
        repository: The hub's; None for files of the operator's own.
        include: Patterns of the files that are wanted; of GGUF files it is a `file`, else a `folder`.
    """
    source: dict[str, Any] = {"kind": "weight"}
    if repository:
        source |= {"repository": repository}
    else:
        source |= {"version": "1", "sources": [f"{MIRROR}:{name}"]}
    if include or not repository:
        source["include"] = list(include) or ["*"]
    key = "file" if any(pattern.endswith(".gguf") for pattern in include) else "folder"
    return _render_tables({f'inputs."{name}"': source, f'models."{name}"': {key: name}})


def render_variant(name: str, like: str, keys: VariantKeys, served: str, cards: int, why: str | None) -> str:
    """A variant, as TOML: another one's keys with a model of its own.

    Args:
        name: Its own, `engine/name`.
        like: The other one's.
        keys: What that declares.
        served: An entry of the table `models`.
        cards: How many it takes.
        why: What it is for; None where nobody says it.
    """
    given = {"model": served, "cards": cards}
    changed = [f"the model {served}"] if served != keys.model else []
    changed += [f"cards: {cards} instead of {keys.cards}"] if cards != keys.cards else []
    evidence = DerivedEvidence(kind="derived", origin=like, change=", ".join(changed) or "nothing yet")
    told: dict[str, Any] = {"evidence": evidence.model_dump()}
    if why:
        old = keys.purpose.model_dump(exclude_unset=True) if keys.purpose else {}
        told["purpose"] = Purpose(**(old | {"why": why})).model_dump(exclude_unset=True)
    declared = keys.model_dump(exclude_unset=True, exclude={"evidence", "purpose"})
    return _render_tables({f'variants."{name}"': declared | given | told})


def _render_tables(entries: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join("\n".join(_render_table(place, entry)) + "\n" for place, entry in entries.items())


def _render_table(place: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """A table and those in it, a line a key."""
    yield f"[{place}]"
    yield from (
        f"{toml.render_key(key)} = {toml.render_value(value)}"
        for key, value in entry.items()
        if not isinstance(value, dict)
    )
    for key, value in entry.items():
        if isinstance(value, dict) and value:
            yield ""
            yield from _render_table(f"{place}.{toml.render_key(key)}", value)
