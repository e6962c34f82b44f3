"""The monitoring of an inventory's entry."""

from __future__ import annotations

from rigwright.model.resolution import Feature, Fields, RigDraft
from rigwright.monitoring.validation import refuse_monitoring
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import GPU_EXPORTER


def _resolve_monitoring(draft: RigDraft) -> Fields:
    entry = draft.entry
    exporter: tuple[Artefact, ...] = ()
    if entry.monitoring:
        refuse_monitoring(entry, draft.resolve_path, draft.refuse)
        if entry.cards:
            exporter = draft.select_wheels(GPU_EXPORTER, "monitoring", "the card exporter cannot be used: ")
    draft.artefacts += exporter
    return {"monitoring": entry.monitoring, "scrape_targets": draft.scrape_targets, "gpu_exporter": exporter}


MONITORING = Feature("monitoring", resolve=_resolve_monitoring)
