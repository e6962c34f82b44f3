"""The catalogue's advisories: affected ranges, and the predicates that close each way to a fault."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rigwright import toml
from rigwright.problems import FrozenModel, Invalid, Problem
from rigwright.validated_types import CatalogName, Day, Text

FOLDER = "advisories"
# Components that no index numbers; all others are `PyPI:NAME`, `Debian:12:NAME` and so on.
DRIVER, CONTAINER_TOOLKIT, LLAMA_CPP = "nvidia-driver", "nvidia-container-toolkit", "llama.cpp"
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{2,99}$")]
Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,79}$")]
ApiPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9_/.-]{0,199}$")]
ShortVersion = Annotated[str, Field(pattern=r"^[0-9A-Za-z.+~:_-]{1,64}$")]
AttackVector = Literal["request", "weights", "process"]


class PredicateKeys(FrozenModel):
    """One predicate: exactly one of these keys, each a function of `rigwright.advisories.predicates`."""

    flag_absent: Word | None = Field(default=None, description="The command line has no such option.")
    flag_set: Word | None = Field(default=None, description="The command line has this option.")
    gateway_closes_path: ApiPath | None = Field(default=None, description="The gateway has no such path.")
    gateway_refuses_field: Word | None = Field(
        default=None, description="The gateway refuses requests with this field, by its table of refused fields."
    )
    no_network: Literal[True] | None = Field(default=None, description="The instance has no network.")
    locked_folder: Literal[True] | None = Field(
        default=None, description="The model is a local folder of which the lock has every file."
    )
    no_video_model: Literal[True] | None = Field(default=None, description="The model accepts no video.")
    no_image_model: Literal[True] | None = Field(default=None, description="The model accepts no images.")
    model_architecture_not: tuple[Text, ...] | None = Field(
        default=None, min_length=1, description="The model has none of these architectures."
    )
    python_keeps_asserts: Literal[True] | None = Field(default=None, description="Python runs without -O.")
    package_absent: CatalogName | None = Field(default=None, description="The environment has no such wheel.")
    unused_by_vllm: tuple[ShortVersion, ...] | None = Field(
        default=None,
        min_length=1,
        description="Versions of vLLM of which all locked packages were searched: none uses the code in question.",
    )
    flag_is: tuple[Word, Text] | None = Field(default=None, description="The command line has this option and value.")
    answers_completions: Literal[True] | None = Field(
        default=None, description="The instance is ready once it answers a completion: it serves no pooling model."
    )
    build_option_off: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = Field(
        default=None, description="The engine is compiled without this CMake option, which is off by default."
    )
    code_absent: tuple[ShortVersion, ...] | None = Field(
        default=None,
        min_length=1,
        description="Versions whose source was read and lacks the code in question, although their number is in range.",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> PredicateKeys:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"one predicate: {', '.join(type(self).model_fields)}")
        return self

    @property
    def name(self) -> str:
        """Its key."""
        return next(iter(self.model_fields_set))

    @property
    def argument(self) -> object:
        """The value of its key."""
        return getattr(self, self.name)


class RangeKeys(FrozenModel):
    """A range of affected versions."""

    introduced: ShortVersion = Field(default="0", description="First affected version; `0`: every one before.")
    fixed: ShortVersion | None = Field(default=None, description="First version that is not affected.")
    last_affected: ShortVersion | None = Field(default=None, description="Last affected version, if no fix is known.")

    @model_validator(mode="after")
    def _one_end(self) -> RangeKeys:
        if self.fixed is not None and self.last_affected is not None:
            raise ValueError("either fixed or last_affected")
        return self


class AdvisoryKeys(FrozenModel):
    """One advisory that was read, and what closes it here."""

    component: Text = Field(description="`PyPI:NAME`, `llama.cpp`, `nvidia-driver` or `nvidia-container-toolkit`.")
    aliases: tuple[Identifier, ...] = Field(default=(), description="Its other ids.")
    summary: Text = Field(description="One sentence.")
    source: Text = Field(description="Where its text was read.")
    date: Day | None = Field(default=None, description="When it was published, if that was read.")
    listed: tuple[ShortVersion, ...] = Field(
        default=(), description="Affected versions or commits beside those of the ranges: their source was read."
    )
    affected: tuple[RangeKeys, ...] = Field(default=(), description="Affected versions; none: not known.")
    reached_by: AttackVector = Field(
        default="request",
        description="`request`: a request to the API; `weights`: the files of a model; `process`: a process that "
        "opens the cards' device files.",
    )
    closed_by: tuple[tuple[PredicateKeys, ...], ...] = Field(
        default=(), description="Lists of predicates: one list of which all hold closes a way. None: nothing closes it."
    )
    assessed: bool = Field(
        default=True, strict=True, description="False where its text was not read: it is unknown, never closed."
    )
    note: Text | None = Field(default=None, description="What the operator can do about it.")


class BulletinKeys(FrozenModel):
    """One bulletin of NVIDIA's, with the first fixed version of each branch."""

    component: Literal["nvidia-driver", "nvidia-container-toolkit"] = Field(description="What it is about.")
    cves: tuple[Identifier, ...] = Field(min_length=1, description="Those that concern Linux.")
    summary: Text = Field(description="One sentence.")
    source: Text = Field(description="Its address.")
    date: Day = Field(description="When it was published.")
    fixed: dict[Word, ShortVersion] = Field(
        description="Branch, such as 580, -> its first fixed version; a branch that is not listed is unknown, and "
        "`all` stands for components without branches."
    )
    since: int = Field(
        default=0, ge=0, strict=True, description="Branches above this number were published with the fixes; 0: none."
    )


class AdvisoryFile(FrozenModel):
    """One file in catalog/advisories/."""

    as_of: Day = Field(description="The day on which its sources were read.")
    advisories: dict[Identifier, AdvisoryKeys] = Field(default_factory=dict)
    bulletins: dict[Identifier, BulletinKeys] = Field(default_factory=dict)
    builds: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")], Annotated[int, Field(ge=1, strict=True)]] = Field(
        default_factory=dict, description="Commit of llama.cpp -> the number of its build (`git rev-list --count`)."
    )


@dataclass(frozen=True)
class MaintainedData:
    """All files in catalog/advisories/."""

    advisories: dict[str, AdvisoryKeys] = field(default_factory=dict)
    bulletins: dict[str, BulletinKeys] = field(default_factory=dict)
    builds: dict[str, int] = field(default_factory=dict)
    as_of: str = ""
    """The oldest day of its files; empty without any."""

    @property
    def by_alias(self) -> dict[str, str]:
        """Id or alias -> the id under which the advisory is kept."""
        return {name: identifier for identifier, one in self.advisories.items() for name in (identifier, *one.aliases)}


def load_maintained(catalog: Path) -> MaintainedData:
    """Read every *.toml of a catalogue's `advisories`. Only the shipped catalogue has it: a predicate that closes an
    advisory is code, with a test that opens it again.

    Args:
        catalog: The catalogue's folder.

    Raises:
        Invalid: a mistake in a file, or one id in two files.
    """
    merged = MaintainedData()
    days: list[str] = []
    problems: list[Problem] = []
    for path in sorted((catalog / FOLDER).glob("*.toml")):
        try:
            one = toml.load_toml(path, AdvisoryFile)
        except Invalid as error:
            problems += error.problems
            continue
        days.append(str(one.as_of))
        for name in one.advisories.keys() & merged.advisories.keys() | one.bulletins.keys() & merged.bulletins.keys():
            problems.append(Problem(str(path), name, "is listed in two files"))
        merged.advisories.update(one.advisories)
        merged.bulletins.update(one.bulletins)
        merged.builds.update(one.builds)
    if problems:
        raise Invalid(problems)
    return MaintainedData(merged.advisories, merged.bulletins, merged.builds, min(days, default=""))
