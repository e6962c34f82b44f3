"""The weights of an inventory's entry: the hub's client for them, and sharing."""

from __future__ import annotations

from rigwright.model.resolution import EntryDraft, Feature, Fields, RigDraft
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT


def _validate_weights(draft: EntryDraft) -> Fields:
    return {"share": draft.entry.share, "fs_verity": draft.entry.fs_verity}


def _resolve_weights(draft: RigDraft) -> Fields:
    rows = [row for one in draft.fields["instances"] for row in one.weights]
    client: tuple[Artefact, ...] = ()
    if draft.entry.bundle is None and any(source.startswith(f"{HUB}:") for row in rows for source in row.sources):
        client = draft.select_wheels(
            HUB_CLIENT, "instances", "some weights come from the hub, and its client cannot be used: "
        )
    return {"hub_client": client}


WEIGHTS = Feature("weights", _validate_weights, _resolve_weights)
