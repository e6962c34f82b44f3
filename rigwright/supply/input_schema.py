"""Keys of inputs, and inputs that become environments: wheels and conda packages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PythonRequirement
from packaging.utils import canonicalize_name
from pydantic import Field, TypeAdapter, ValidationError

from rigwright.address_types import Source
from rigwright.problems import FrozenModel
from rigwright.supply.artefact import Artefact
from rigwright.supply.lock import ArtefactKind
from rigwright.validated_types import (
    CatalogName,
    Day,
    FileName,
    MatchSpec,
    Name,
    Pattern,
    PythonRelease,
    Repository,
    Requirement,
    Revision,
)


class InputKeys(FrozenModel):
    """The keys of an input."""

    kind: ArtefactKind = Field(
        description="Kind; `wheel` and `conda` are for a complete environment, `deb` for an NVIDIA driver, the "
        "container toolkit or Docker with all its packages, `image` for a container image with its layers."
    )
    version: Revision | None = Field(
        default=None,
        description="Exact version; of a repository, the branch, tag or commit to follow (default: the main branch); "
        "of packages, the version of driver, toolkit or Docker; of an image, its tag.",
    )
    repository: Repository | None = Field(
        default=None, description="Weights: the repository on the hub, such as owner/name."
    )
    include: tuple[Pattern, ...] = Field(
        default=(), description="Weights of many files: patterns of paths to include; default: all."
    )
    exclude: tuple[Pattern, ...] = Field(default=(), description="Patterns of paths to exclude from these.")
    file: FileName | None = Field(
        default=None, description="File name; default: the last part of the first source's path."
    )
    sources: tuple[Source, ...] = Field(
        default=(),
        description="Where to fetch it, in order, as in the lock: `index:PROJECT`, `NAME:PATH` or a URL; packages: one "
        "archive, `nvidia:FOLDER`, `apt:COMPONENT`, `container-toolkit:FOLDER` or `docker:FOLDER`; an image: "
        "`REGISTRY:REPOSITORY`, such as `docker-hub:vllm/vllm-openai`; an inventory's mirrors of that name "
        "are registries.",
    )
    requirements: tuple[Requirement, ...] = Field(
        default=(),
        description="Environments: the requested Python packages, or match specs for kind `conda`; dependencies are "
        "resolved.",
    )
    channels: tuple[Name, ...] = Field(
        default=(),
        description="Kind `conda`: channels, in order; from an inventory's mirrors of that name, or else conda's "
        "default address.",
    )
    python: PythonRelease | None = Field(
        default=None,
        description="Kind `wheel`: the one Python that it is for, on Linux x86_64; default: the Python of every host.",
    )
    as_of: Day | None = Field(
        default=None,
        description="Environments: only packages published before this day (UTC) are considered.",
    )
    for_other_cards: tuple[Pattern, ...] = Field(
        default=(),
        description="Kind `plugin`, and `wheel` with `python`: patterns of files used only by other cards; a card that "
        "cannot run them is not refused.",
    )

    patches: tuple[CatalogName, ...] = Field(
        default=(),
        description="Input `cuda`: the patches of the CUDA toolkit: folders in `patches/`, shipped or next to the "
        "inventory.",
    )


# Sources and mirrors of these names are something else: an inventory's mirrors of NVIDIA's archive of drivers have the
# name of a channel.
TAKEN = ("apt", "http", "https", "hub", "index", "nvidia")
_WHEELS = {"kind", "requirements", "python", "as_of", "for_other_cards", "patches"}
_CONDA = {"kind", "requirements", "channels", "as_of"}


def refuse_environment_input(wanted: InputKeys) -> None:
    """Refuse an environment of wheels or of conda packages that says too much or too little.

    Raises:
        ValueError: with what it must be.
    """
    if wanted.kind == "wheel":
        _refuse_keys(wanted, "an environment: requirements, and at most python, as_of and for_other_cards", _WHEELS)
        if other := [text for text in wanted.requirements if not _is_python_requirement(text)]:
            raise ValueError(f"of Python requirements, not {other[0]!r}")
        if wanted.for_other_cards and not wanted.python:
            raise ValueError("given a python for its for_other_cards: machine code is only inspected with one")
        return
    _refuse_keys(wanted, "conda packages: requirements and channels, and at most as_of", _CONDA)
    if not wanted.channels:
        raise ValueError('given its channels, such as channels = ["conda-forge"]')
    if other := [text for text in wanted.requirements if not _is_match_spec(text)]:
        raise ValueError(f"of requirements such as python ==3.10.20, not {other[0]!r}")
    if taken := [name for name in wanted.channels if name in TAKEN]:
        raise ValueError(f"from channels other than {taken[0]!r}: {', '.join(TAKEN)} mean something else")
    if len(set(wanted.channels)) < len(wanted.channels):
        raise ValueError("from distinct channels")


def _refuse_keys(wanted: InputKeys, text: str, allowed: set[str]) -> None:
    if not wanted.requirements or (wanted.model_fields_set - allowed):
        raise ValueError(f"{text}, nothing else")


def _is_python_requirement(text: str) -> bool:
    try:
        return PythonRequirement(text).url is None
    except InvalidRequirement:
        return False


def _is_match_spec(text: str) -> bool:
    try:
        TypeAdapter(MatchSpec).validate_python(text)
    except ValidationError:
        return False
    return True


def selection_digest(wanted: InputKeys) -> str:
    """Digest of what conda packages are chosen by: a lock that was made with others is not the answer to it."""
    return hashlib.sha256(json.dumps([wanted.requirements, wanted.channels]).encode()).hexdigest()[:12]


def describe_environment_mismatch(wanted: InputKeys, rows: Sequence[Artefact]) -> str:
    """The difference between the lock and an environment: "" where they agree.

    Args:
        wanted: Its input.
        rows: The rows of its group, one at least.
    """
    if others := {row.kind for row in rows} - {wanted.kind}:
        return f"is locked with kind {min(others)}, not {wanted.kind}"
    for row in rows:
        if row.python != wanted.python:
            return f"is locked for Python {row.python or 'of every host'}, not {wanted.python or 'of every host'}"
        if row.as_of != wanted.as_of:
            return f"is locked as of {row.as_of or 'no day'}, not {wanted.as_of or 'no day'}"
    if wanted.kind == "conda":
        return _describe_conda_mismatch(wanted, rows)
    missing = [text for text in wanted.requirements if not _is_met(text, rows)]
    return f"is locked without {', '.join(missing)}" if missing else ""


def _describe_conda_mismatch(wanted: InputKeys, rows: Sequence[Artefact]) -> str:
    if others := {channel_of(row) for row in rows} - set(wanted.channels):
        return f"is locked from channel {min(others)}, not {', '.join(wanted.channels)}"
    locked = {row.name: row.version for row in rows}
    for text in wanted.requirements:
        name, _, version = text.partition(" ")
        exact = re.fullmatch(r" *==([A-Za-z0-9._+!]+)(?: .*)?", version)
        if name not in locked or (exact and locked[name] != exact[1]):
            return f"is locked with {f'{name} {locked[name]}' if name in locked else f'no {name}'}, not {text}"
    if any(row.selection != selection_digest(wanted) for row in rows):
        return "is locked with different requirements or channels"
    return ""


def channel_of(row: Artefact) -> str:
    """The channel that a conda package is from."""
    return row.sources[0].partition(":")[0]


def _is_met(text: str, rows: Iterable[Artefact]) -> bool:
    requirement = PythonRequirement(text)
    if requirement.marker:  # it may be for no host that there is
        return True
    name = canonicalize_name(requirement.name)
    return any(row.name == name and requirement.specifier.contains(row.version, prereleases=True) for row in rows)
