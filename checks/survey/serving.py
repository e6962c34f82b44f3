"""Generations on a host, and what its instances were started from."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.survey.section import Section, SurveyScope
from checks.survey.units import WORD
from rigwright.host.generation_layout import ACTIVATING, META, PROVEN
from rigwright.host.systemd import STARTED_FROM_FOLDER, UNIT_FOLDER
from rigwright.serving.instance_units import credential_path


@dataclass(frozen=True)
class InstanceKeyFile:
    """A file with an instance's key."""

    mode: str
    """In octal; empty where there is no file."""
    owner: int
    given: bool
    """Whether the service that runs was given the same."""
    leaks: list[str]
    """Paths of processes' arguments and environments, and of unit files, that have it in them."""


@dataclass(frozen=True)
class StartRecord:
    """An instance's start, as root has noted it."""

    lines: list[str]
    """The files that it was started from, then `DEVICE:INODE PATH` of each of its weights."""
    now: list[str]
    """The latter as they are now."""
    said: list[str]
    first: list[str]
    """The files of its first start from the same ones, and its output then."""
    key: InstanceKeyFile | None


@dataclass(frozen=True)
class ServingSurvey:
    """All of it."""

    started: dict[str, StartRecord]
    """By service."""
    records: list[str]
    """Names of what root has noted."""
    exposure: dict[str, str]
    """Service -> what systemd calls its exposure."""


def _asks(scene: SurveyScope) -> object:
    rig = scene.rig
    keys = {instance.unit: credential_path(rig.roots, instance) for instance in rig.instances}
    return {
        "units": [unit_state.unit for unit_state in scene.desired.generation.unit_states],
        "keys": keys,
        "records": STARTED_FROM_FOLDER,
        "starts": rig.roots.startup_records,
        "folder": UNIT_FOLDER,
        "word": WORD,
    }


SERVING: Section[ServingSurvey] = Section(
    "serving",
    ServingSurvey,
    _asks,
    blind="the behaviour of an instance between two checks",
    phase="probed",
    start_order=9,
)


@dataclass(frozen=True)
class StoredGeneration:
    """A generation that lies there."""

    number: int
    sealed: str
    """Its digest when it was written, by itself."""
    files: dict[str, str]
    """Path -> SHA-256 and mode, with a space between; of a link `-> ` and where it leads."""
    lost: list[str]
    """The missing files that it refers to."""
    proven: bool
    """Whether all its instances have answered once."""


@dataclass(frozen=True)
class Generations:
    """All of them."""

    kept: list[StoredGeneration]
    current: str
    """The link's target; empty for none."""
    activating: bool
    """Whether an activation was begun and not finished."""
    beside: list[str]
    """Names in the configuration's folder."""
    texts: dict[str, str] = field(default_factory=dict)
    """Path in the current generation's folder -> text, of its manifest, unit and environment files."""


GENERATIONS: Section[Generations] = Section(
    "generations",
    Generations,
    lambda scene: {
        "config": scene.rig.roots.config,
        "folder": scene.rig.roots.generations,
        "meta": META,
        "proven": PROVEN,
        "activating": ACTIVATING,
    },
    blind="a change that was made and undone between two checks",
    start_order=19,
)
