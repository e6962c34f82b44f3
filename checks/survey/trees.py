"""Trees: what is installed and each generation, every file of it, against what root has recorded of it."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.envs.environment import prefix_folder
from rigwright.model.installation import MARKER
from rigwright.model.instance import loaded_weights
from rigwright.model.trees import records_folder
from rigwright.plan import tree_records
from rigwright.supply.root_programs import GPU_EXPORTER, HUB_CLIENT, INSTALLERS, TOOLS
from rigwright.weights.verification import PACKAGE, weights_program_folder

OTHER, MISSING, ADDED, LOOSE = "other", "missing", "added", "loose"


@dataclass(frozen=True)
class TreeChange:
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
class InstalledTree:
    """A folder that a deploy puts on a host whole."""

    path: str
    there: bool
    unrecorded: str
    """Why nobody knows what is to be in it; empty where root's record says it."""
    changes: list[TreeChange]
    """The first of each kind."""
    count: int
    """Of all changes."""
    marker: str
    """The text of its build record; empty for none."""


@dataclass(frozen=True)
class Trees:
    """All of a host."""

    trees: list[InstalledTree]
    """The declared ones, whether they are there or not, and all others that are there."""
    beside: list[str]
    """Absolute paths of what else lies among them."""
    gone: list[str]
    """Absolute paths of those that are recorded, and that are not there."""
    distributions: dict[str, list[str]]
    """Folder -> the names of what describes packages in it: of distributions and of conda packages."""

    def tree(self, path: str) -> InstalledTree:
        """That of an absolute path."""
        absent = InstalledTree(path, False, "", [], 0, "")
        return next((one for one in self.trees if one.path == path), absent)


def _asks(scene: SurveyScope) -> dict[str, object]:
    rig, desired = scene.rig, scene.desired
    declared = tree_records.declared_trees(desired)
    return {
        "software": rig.roots.software,
        "installed": {
            rig.roots.software: [f"{name}-" for name in (TOOLS, HUB_CLIENT, GPU_EXPORTER, INSTALLERS, "cuda")],
            rig.roots.installations: [""],
            weights_program_folder(rig.roots): [PACKAGE],
            rig.roots.generations: [str(digit) for digit in range(1, 10)],
        },
        "declared": [
            *declared,
            *([f"{weights_program_folder(rig.roots)}/{PACKAGE}"] if loaded_weights(rig.instances) else []),
        ],
        "records": {"folder": records_folder(rig.roots), "ledger": rig.roots.ledger},
        "unless": {rig.roots.generations: ["proven"], rig.roots.installations: ["tree", "tree.new"]},
        "marker": MARKER,
        "prefixes": [
            desired.tools.folder,
            *(prefix_folder(rig.roots.installation_path(desired.installations[env.name].folder)) for env in rig.envs),
        ],
        "deep": scene.deep,
    }


TREES: Section[Trees] = Section(
    "trees",
    Trees,
    _asks,
    limit=60.0,
    blind="silent disk corruption in files whose inode, size and times are unchanged: --deep reads them",
    phase="probed",
    start_order=7,
)
