"""Trees on a host: recorded, patched, and the permissions of folders above them."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.envs.environment import Environment, prefix_folder, site_packages
from rigwright.model.installation import MARKER, records_folder
from rigwright.model.instance import CACHES, loaded_weights
from rigwright.model.roots import Roots
from rigwright.patches.new_files import shadow_pattern
from rigwright.patches.patch import collect_digests
from rigwright.plan import plan_inputs
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
    """Why its contents are unknown; empty where root's record has them."""
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


def _tree_questions(scene: SurveyScope) -> dict[str, object]:
    rig, desired = scene.rig, scene.desired
    declared = plan_inputs.declared_trees(desired)
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
    _tree_questions,
    limit=60.0,
    blind="silent disk corruption in files whose inode, size and times are unchanged: --deep reads them",
    phase="probed",
    start_order=7,
)


@dataclass(frozen=True)
class ParentFolder:
    """One on the way to a root, or the root itself."""

    path: str
    kind: str
    """`folder`, `link`, `other` or `nothing`."""
    uid: int
    gid: int
    mode: int
    rights: list[str]
    """Names of access lists that it has."""


@dataclass(frozen=True)
class PathMount:
    """A mount at, above or below a root, the one of / among them."""

    point: str
    root: str
    """The folder of its file system that it shows: / for all of it."""
    kind: str
    """Of the file system."""
    source: str
    options: list[str]
    boot: bool
    """Whether fstab or a unit mounts it when the host is started."""

    def holds(self, path: str) -> bool:
        """Whether it is mounted at a path or above it."""
        return f"{path}/".startswith(self.point.rstrip("/") + "/")


@dataclass(frozen=True)
class PathPermissions:
    """All of a host."""

    folders: dict[str, list[ParentFolder]]
    """Root -> the folders from / to it; where links lead elsewhere, those too."""
    real: dict[str, str]
    """Root -> the path that its links lead to."""
    mounts: list[PathMount]
    """In the order in which they were made."""
    waiting: list[str]
    """Where, at, above or below a root, something would be mounted at the next boot and is not now."""

    def mount_of(self, path: str) -> PathMount | None:
        """The mount that holds a path; None where the kernel names none."""
        holding = [one for one in self.mounts if one.holds(path)]
        return max(reversed(holding), key=lambda one: len(one.point), default=None)


def _permission_questions(scene: SurveyScope) -> dict[str, object]:
    roots = scene.rig.roots
    return {
        "roots": [roots.software, roots.config, roots.state, roots.models, CACHES],
        "below": roots_without_mounts(scene),
    }


def roots_without_mounts(scene: SurveyScope) -> list[str]:
    """The roots in which nothing is mounted; disks for single models are their operator's."""
    roots = scene.rig.roots
    return [roots.software, roots.config, roots.state, CACHES]


WAYS: Section[PathPermissions] = Section(
    "path_permissions",
    PathPermissions,
    _permission_questions,
    blind="mounts in namespaces that none of Rigwright's processes is in",
    start_order=20,
)


@dataclass(frozen=True)
class PatchedFile:
    """One of them."""

    digest: str
    """SHA-256; empty where it is not there."""
    written: float
    """When it was last, or what Python has compiled of it, in seconds since 1970."""
    stale: list[str]
    """The files that Python has compiled of another file in its place."""
    shadowed: list[str]
    """The modules that Python imports in its place."""


@dataclass(frozen=True)
class InstanceProcess:
    """A process of an instance."""

    pid: int
    begun: float
    """In seconds since 1970."""
    elsewhere: list[str]
    """The parts of its Python that are, are mapped or are looked for outside of its environment."""


@dataclass(frozen=True)
class PatchSurvey:
    """All of them."""

    files: dict[str, PatchedFile]
    """By its path."""
    units: dict[str, list[InstanceProcess]]
    """Service of an instance that runs in a patched environment -> its processes."""


def patched_file_digests(roots: Roots, made: Environment) -> dict[str, str]:
    """The absolute path of every file that patches have changed, and its SHA-256."""
    folder = f"{prefix_folder(roots.installation_path(made.folder))}/{site_packages(made)}"
    return {f"{folder}/{path}": digest for path, digest in collect_digests(made.patches).items()}


def _patch_questions(scene: SurveyScope) -> dict[str, object] | None:
    rig, made = scene.rig, scene.desired.installations
    patched = {name: one for name, one in made.items() if isinstance(one, Environment) and one.patches}
    paths = {path: shadow_pattern(path) for one in patched.values() for path in patched_file_digests(rig.roots, one)}
    if scene.desired.toolkit:
        paths |= {path: shadow_pattern(path) for path in scene.desired.toolkit.patched_files}
    # a launcher has the door to what it starts in a generation's folder
    own = [f"{rig.roots.generations}/", f"{rig.roots.config}/current/"]
    units = {
        one.unit: [f"{rig.roots.installation_path(patched[one.installed_as].folder)}/", *own]
        for one in rig.instances
        if one.installed_as in patched
    }
    return {"files": paths, "units": units} if paths else None


PATCHED: Section[PatchSurvey] = Section(
    "patched_files",
    PatchSurvey,
    _patch_questions,
    blind="code that a process has loaded: only its start time and its files are visible",
    phase="probed",
    start_order=11,
)
