"""Files of environments and of the CUDA toolkit that patches have changed, and since when processes of environments
have been running."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.envs.environment import Environment, prefix_folder, site_packages
from rigwright.model.roots import Roots
from rigwright.patches.import_shadowing import shadow_pattern
from rigwright.patches.patch import collect_digests


@dataclass(frozen=True)
class PatchedFile:
    """One of them."""

    digest: str
    """SHA-256; empty where it is not there."""
    written: float
    """When it was last, or what Python has compiled of it, in seconds since 1970."""
    stale: list[str]
    """What Python has compiled of another file in its place."""
    shadowed: list[str]
    """What Python imports in its place."""


@dataclass(frozen=True)
class InstanceProcess:
    """A process of an instance."""

    pid: int
    begun: float
    """In seconds since 1970."""
    elsewhere: list[str]
    """What its Python is, has mapped or looks for outside of its environment."""


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


def _asks(scene: SurveyScope) -> dict[str, object] | None:
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
    "patched",
    PatchSurvey,
    _asks,
    blind="what a process has really loaded: only its start time and what it was meant to load are seen",
    phase="probed",
    start_order=11,
)
