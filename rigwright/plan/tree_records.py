"""Trees: folders that a deploy has put on a host whole, of which root keeps a record of what it saw of each file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rigwright.host import channel
from rigwright.model.roots import Roots
from rigwright.model.trees import records_folder

if TYPE_CHECKING:
    from rigwright.plan.plan_inputs import TargetState

SCAN_SCHEMA: channel.Schema = {
    "there": (channel.path, channel.text),
    "pending": (
        channel.one_of("unrecorded", "extra", "loose", "touched", "changed", "stale"),
        channel.path,
        channel.text,
    ),
}
"""What roles/trees/host/tree_records.py tells: which trees are there, of a generation with the digest that it says it
has; and what is to be done, of which tree, and the first place in it."""


def declared_trees(wanted: TargetState) -> tuple[str, ...]:
    """The absolute paths of what is installed for a rig."""
    toolkit = wanted.toolkit.folder if wanted.toolkit else ""
    made = [wanted.rig.roots.installation_path(one.folder) for one in wanted.installations.values()]
    return tuple(path for path in (wanted.tools.folder, toolkit, *made) if path)


def scan_request(roots: Roots, texts: Mapping[str, Mapping[str, bytes]]) -> dict[str, object]:
    """What the program that looks at them on the host is told.

    Args:
        roots: Directories on the host.
        texts: Path of a tree -> name -> content of its files; it has no others.
    """
    return {
        "software": roots.software,
        "engines": roots.installations,
        "generations": roots.generations,
        "records": records_folder(roots),
        "ledger": roots.ledger,
        "texts": {
            tree: {name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
            for tree, files in texts.items()
        },
    }


def find_missing_trees(wanted: TargetState, texts: Iterable[str], there: Mapping[str, str]) -> list[str]:
    """The absolute paths of trees that a rig is to have and has not; that of all generations where it lacks its own.

    Args:
        wanted: What the rig comes to on its host.
        texts: Trees of programs of ours.
        there: Tree -> for a generation, the digest of what it says of itself.
    """
    rig = wanted.rig
    lacking = [path for path in (*declared_trees(wanted), *texts) if path not in there]
    return lacking + ([] if wanted.generation.digest in there.values() else [rig.roots.generations])
