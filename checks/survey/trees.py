"""Trees: what is installed and each generation, every file of it, against what root has recorded of it."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Scene, Section
from rigwright.envs.env import prefix
from rigwright.model.installation import MARKER
from rigwright.model.trees import records
from rigwright.plan import trees
from rigwright.supply.root_programs import GPU_EXPORTER, HUB_CLIENT, INSTALLERS, TOOLS
from rigwright.weights.records import PACKAGE, programs

OTHER, MISSING, ADDED, LOOSE = "other", "missing", "added", "loose"


@dataclass(frozen=True)
class Change:
    """One place that is not as it was recorded."""

    what: str
    """OTHER than was recorded, MISSING, ADDED since, or LOOSE: owner, mode or rights are others."""
    path: str
    """From the tree on; empty for the tree itself."""
    expected: str
    found: str
    since: str
    """When it was last changed, by the file system; UTC."""


@dataclass(frozen=True)
class Tree:
    """A folder that a deploy puts on a host whole."""

    path: str
    there: bool
    unrecorded: str
    """Why nobody knows what is to be in it; empty where root's record says it."""
    changes: list[Change]
    """The first of each kind."""
    count: int
    """Of all changes."""
    marker: str
    """The text of its build record; empty for none."""


@dataclass(frozen=True)
class Trees:
    """All of a host."""

    trees: list[Tree]
    """The declared ones, whether they are there or not, and all others that are there."""
    beside: list[str]
    """Absolute paths of what else lies among them."""
    gone: list[str]
    """Absolute paths of those that are recorded, and that are not there."""
    distributions: dict[str, list[str]]
    """Folder -> the names of what describes packages in it: of distributions and of conda packages."""

    def tree(self, path: str) -> Tree:
        """That of an absolute path."""
        absent = Tree(path, False, "", [], 0, "")
        return next((one for one in self.trees if one.path == path), absent)


def _asks(scene: Scene) -> dict[str, object]:
    rig, desired = scene.rig, scene.desired
    declared = trees.declared(desired)
    return {
        "software": rig.roots.software,
        "installed": {
            rig.roots.software: [f"{name}-" for name in (TOOLS, HUB_CLIENT, GPU_EXPORTER, INSTALLERS, "cuda")],
            rig.installations: [""],
            programs(rig): [PACKAGE],
            rig.generations: [str(digit) for digit in range(1, 10)],
        },
        "declared": [*declared, *([f"{programs(rig)}/{PACKAGE}"] if rig.weights else [])],
        "records": {"folder": records(rig), "ledger": rig.ledger},
        "unless": {rig.generations: ["proven"], rig.installations: ["tree", "tree.new"]},
        "marker": MARKER,
        "prefixes": [
            desired.tools.folder,
            *(prefix(rig.installed(desired.installations[env.name].folder)) for env in rig.envs),
        ],
        "deep": scene.deep,
    }


TREES: Section[Trees] = Section("trees", Trees, _asks, limit=60.0)
