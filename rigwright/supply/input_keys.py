"""The keys of an input, before the rules that join them."""

from __future__ import annotations

from pydantic import Field

from rigwright.addresses import Source
from rigwright.problems import FrozenModel
from rigwright.supply.lock import ArtefactKind
from rigwright.types import CatalogName, Day, FileName, Name, Pattern, PythonRelease, Repository, Requirement, Revision


class InputKeys(FrozenModel):
    """What an input may say."""

    kind: ArtefactKind = Field(
        description="Kind; `wheel` and `conda` stand for a whole environment, `deb` for an NVIDIA driver, the "
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
