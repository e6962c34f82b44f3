"""The fingerprint of the host: entries that nothing explains, and how many are explained."""

from __future__ import annotations

import os
from typing import Any

from checks.survey.host import entry_authors, entry_origins, entry_problems
from checks.survey.host.accepted_entries import AcceptedEntries
from checks.survey.host.entry_collection import EntryCollection
from checks.survey.host.entry_debs import DebComparison, compare_debs
from checks.survey.host.host_entry import HostEntry

MOST_TOLD = 2500  # entries of an answer
MOST_GONE = 100  # accepted entries that are gone, of which the author is looked for


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: As `EntryCollection` has it; and what attribution is to know.
    """
    collection = EntryCollection(asked)
    if os.path.isdir(asked["folder"]):
        collection.digests.make_key()
    packages, index = entry_origins.attribute(collection.entries, asked)
    comparison = DebComparison()
    if asked["deep"]:
        comparison = compare_debs(collection.entries, index)
    entry_problems.judge(collection.entries)
    unexplained = [entry for entry in collection.entries if not entry.origin or entry.problem]
    # users' files come last: a user may make as many as fill an answer
    unexplained.sort(key=lambda entry: entry.uid != 0)
    collection.complete(unexplained)
    explained: dict[str, int] = {}
    for entry in collection.entries:
        if entry.origin and not entry.problem:
            explained[entry.kind] = explained.get(entry.kind, 0) + 1
    accepted = AcceptedEntries(asked["folder"], asked["classes"])
    told = [_describe(entry, collection, accepted) for entry in unexplained[:MOST_TOLD]]
    new = [place for place, one in enumerate(told) if one["value"] != one["before"]]
    changed = [unexplained[one] for one in new]
    gone = accepted.find_gone(collection.entries)[:MOST_GONE]
    authors = entry_authors.describe([*gone, *changed], asked["state"], accepted.moment)
    for place, (since, author) in authors.items():
        if place >= len(gone):
            told[new[place - len(gone)]] |= {"since": since, "author": author}
    if len(unexplained) > MOST_TOLD:
        bound = HostEntry("answer", "(bound reached)", f"too many entries: {len(unexplained)} of {MOST_TOLD}")
        told.append(_describe(bound, collection, accepted))
    collection.digests.save()
    return {
        "entries": told,
        "packages": packages,
        "archives": comparison.describe(),
        "explained": explained,
        "excluded": collection.excluded,
        "accepted_serial": accepted.serial,
        "accepted_digest": accepted.digest,
        "gone": [(one.kind, one.key, authors.get(place, (0.0, ""))[1]) for place, one in enumerate(gone)],
        "accepted_explained": [
            (entry.kind, entry.key)
            for entry in collection.entries
            if entry.origin and not entry.problem and accepted.value(entry)
        ],
    }


def _describe(entry: HostEntry, collection: EntryCollection, accepted: AcceptedEntries) -> dict[str, object]:
    value, before = collection.value(entry), accepted.value(entry)
    return {
        "kind": entry.kind,
        "key": entry.key,
        "value": value,
        "run_value": collection.run_value(entry),
        "problem": entry.problem,
        "expected_from": entry.expected_from,
        "since": 0.0,
        "author": "",
        "before": before,
        "difference": accepted.difference(entry) if before and before != value else [],
    }
