"""Keeps on the host what the operator has accepted: serial and digest of the record, values, and copies of contents."""

from __future__ import annotations

from typing import Any

from checks.survey.host import entry_origins
from checks.survey.host.accepted_entries import AcceptedEntries
from checks.survey.host.entry_collection import EntryCollection


def look(asked: dict[str, Any]) -> dict[str, object]:
    """Store it; entries that have changed since they were shown are not accepted.

    Args:
        asked: As `EntryCollection` has it; `serial` and `digest` of the record; `entries`, each with class, key, value.
    """
    collection = EntryCollection(asked)
    collection.digests.make_key()
    # packages of no archive are entries that attribution adds
    entry_origins.attribute(collection.entries, asked)
    there = {(entry.kind, entry.key): entry for entry in collection.entries}
    shown = {(kind, key): value for kind, key, value in asked["entries"]}
    collection.complete([there[one] for one in shown if one in there])
    now = {one: collection.value(there[one]) if one in there else "" for one in shown}
    changed = sorted(one for one, value in shown.items() if now[one] != value)
    accepted = AcceptedEntries(asked["folder"], asked["classes"])
    copies = 0
    if not changed and asked["serial"] > accepted.serial:
        values = {f"{kind}\n{key}": value for (kind, key), value in shown.items()}
        entries = [there[one] for one in shown if one in there]
        copies = accepted.store(asked["serial"], asked["digest"], values, entries)
        accepted = AcceptedEntries(asked["folder"], asked["classes"])
    collection.digests.save()
    return {
        "serial": accepted.serial,
        "digest": accepted.digest,
        "changed": [list(one) for one in changed],
        "copies": copies,
    }
