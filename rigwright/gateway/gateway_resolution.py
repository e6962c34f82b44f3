"""The gateway of an inventory's entry."""

from __future__ import annotations

from rigwright.gateway.served_models import refuse_gateway
from rigwright.model.resolution import EntryDraft, Feature, Fields, RigDraft


def _validate_gateway(draft: EntryDraft) -> Fields:
    gateway = draft.entry.gateway
    if gateway:
        # few rigs have one
        from rigwright.gateway.operator_files import refuse_files

        refuse_files(gateway, draft.resolve_path, draft.refuse)
    return {"gateway": gateway}


def _resolve_gateway(draft: RigDraft) -> Fields:
    entry = draft.entry
    if entry.gateway:
        taken = {entry.share.port: "the port for sharing weights"} if entry.share else {}
        ports = {name: one.port for name, one in entry.instances.items()}
        refuse_gateway(entry.gateway, draft.fields["instances"], ports, taken, draft.refuse)
    return {}


GATEWAY = Feature("gateway", _validate_gateway, _resolve_gateway)
