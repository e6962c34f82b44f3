"""Trees: folders that a deploy has put on a host whole, of which root keeps a record of what it saw of each file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rigwright.declaration.rig import Rig
from rigwright.host import channel

if TYPE_CHECKING:
    from rigwright.host.plan import Desired

PENDING: channel.Schema = {
    "pending": (
        channel.one_of("missing", "unrecorded", "extra", "loose", "touched", "changed", "stale"),
        channel.path,
        channel.text,
    ),
}
"""What roles/trees/host/look.py tells: what is to be done, of which tree, and the first place in it."""


def records(rig: Rig) -> str:
    """The folder on the host with the record of each tree."""
    return f"{rig.roots.state}/trees"


def record(rig: Rig, tree: str) -> str:
    """Where the record of a tree lies: its absolute path names it."""
    return f"{records(rig)}/{hashlib.sha256(tree.encode()).hexdigest()[:16]}-{tree.rpartition('/')[2]}"


def declared(wanted: Desired) -> tuple[str, ...]:
    """The absolute paths of what is installed for a rig."""
    toolkit = wanted.toolkit.folder if wanted.toolkit else ""
    made = [wanted.rig.installed(one.folder) for one in wanted.installations.values()]
    return tuple(path for path in (wanted.tools.folder, toolkit, *made) if path)


def asked(wanted: Desired, texts: Mapping[str, Mapping[str, bytes]]) -> dict[str, object]:
    """What the program that looks at them on the host is told.

    Args:
        wanted: What the rig comes to there.
        texts: Path of a tree -> name -> content of its files; it has no others.
    """
    rig = wanted.rig
    return {
        "software": rig.roots.software,
        "engines": rig.installations,
        "generations": rig.generations,
        "records": records(rig),
        "ledger": rig.ledger,
        "wanted": declared(wanted),
        "sealed": wanted.generation.digest,
        "texts": {
            tree: {name: hashlib.sha256(text).hexdigest() for name, text in files.items()}
            for tree, files in texts.items()
        },
    }
