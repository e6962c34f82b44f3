"""The sources of the weights of an inventory's entry: hub, peers and sharing."""

from __future__ import annotations

from rigwright.model import api_keys
from rigwright.model.origins import refuse_token, token_origin
from rigwright.model.resolution import EntryDraft, Feature, Fields, RigDraft
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import HUB_CLIENT


def _validate_weights(draft: EntryDraft) -> Fields:
    entry = draft.entry
    token_file = None
    if entry.hub_token_file is not None:
        token_file = draft.resolve_path(entry.hub_token_file)
        try:
            api_keys.load_api_key(token_file, "token")
        except ValueError as error:
            draft.refuse("hub_token_file", f"{token_file} {error}")
    refuse_token(entry.hub_token_file, entry.hub_token_for, entry.mirrors, draft.refuse)
    return {
        "hub_token_file": token_file,
        "hub_token_origin": token_origin(entry.hub_token_for) if token_file else None,
        "peers": entry.peers,
        "share": entry.share,
        "fs_verity": entry.fs_verity,
    }


def _resolve_weights(draft: RigDraft) -> Fields:
    rows = [row for one in draft.fields["instances"] for row in one.weights]
    client: tuple[Artefact, ...] = ()
    if draft.entry.bundle is None and any(source.startswith(f"{HUB}:") for row in rows for source in row.sources):
        client = draft.select_wheels(
            HUB_CLIENT, "instances", "some weights come from the hub, and its client cannot be used: "
        )
    return {"hub_client": client}


WEIGHTS = Feature("weights", _validate_weights, _resolve_weights)
