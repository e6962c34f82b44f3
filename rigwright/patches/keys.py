"""The keys of a patch: patch.toml in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from rigwright.patches.apply import path_refusal
from rigwright.problems import Frozen
from rigwright.types import PLAIN, FileName, Sha256, Text, Version, matching

# What patches of llama.cpp's source tree are of; all others are of a Python distribution.
LLAMA_CPP = "llama.cpp"


def _path(path: str) -> str:
    if wrong := path_refusal(path):
        raise ValueError(f"a relative path inside what it changes: it {wrong}")
    return path


TargetPath = Annotated[str, AfterValidator(_path)]
Paragraph = Annotated[str, matching(PLAIN + "{1,2000}", "1 to 2000 characters on one line")]
Distribution = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", f"a Python distribution, or {LLAMA_CPP}")]
Verdict = Literal["needed", "yours", "included", "impossible"]


def nested(paths: Collection[str]) -> str:
    """One of several files that would be below another one of them; empty where none is."""
    return next((path for path in paths if any(str(one) in paths for one in PurePosixPath(path).parents)), "")


class Target(Frozen):
    """A file that a patch changes, or brings."""

    path: TargetPath = Field(
        description="Relative to where the distribution is installed, as in the wheel's RECORD, such as "
        "`vllm/envs.py`; for llama.cpp, to the top of its source."
    )
    before: Sha256 | None = Field(
        default=None, description="SHA-256 of the file before; without it the file must not exist."
    )
    after: Sha256 = Field(description="SHA-256 of the file after.")
    file: FileName | None = Field(
        default=None, description="A file next to patch.toml that replaces it; without it the diff changes it."
    )

    @model_validator(mode="after")
    def _changes(self) -> Target:
        if self.before == self.after:
            raise ValueError(f"a SHA-256 after that differs from before: {self.path} is not changed")
        return self


class PatchKeys(Frozen):
    """What a patch is for, and what it makes of which files; or why there is none."""

    of: Distribution = Field(
        description="What it changes: a distribution of an environment or image, such as `vllm`, or `llama.cpp`."
    )
    versions: tuple[Version, ...] = Field(min_length=1, description="The exact versions that it is for.")
    verdict: Verdict = Field(
        default="needed",
        description="`needed`: it is applied; `yours`: needed, but your own folder of that name next to the inventory "
        "must contain it; `included`: these versions already have it; `impossible`: it cannot be done. The "
        "last three have no files.",
    )
    why: Paragraph = Field(description="Purpose.")
    source: Text = Field(description="Source.")
    licence: Text = Field(description="Licence of the change, such as Apache-2.0.")
    until: Text = Field(description="When it can be dropped, in words.")
    included_in: Version | None = Field(default=None, description="The first upstream version that has it, if known.")
    marker: Text | None = Field(
        default=None, description="A text in the first target's file of a version that no longer needs it."
    )
    where: Paragraph | None = Field(default=None, description="Where in the code the verdict was established.")
    tested: Paragraph | None = Field(default=None, description="How.")
    diff: FileName | None = Field(default=None, description="A file next to patch.toml: a unified diff.")
    targets: tuple[Target, ...] = Field(default=(), description="Every file that it changes or adds.")

    @field_validator("targets")
    @classmethod
    def _each_once(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        paths = Counter(one.path for one in targets)
        if twice := sorted(path for path, times in paths.items() if times > 1):
            raise ValueError(f"one table per file: {twice[0]} is listed twice")
        if below := nested(paths):
            raise ValueError(f"files: {below} is below another of them")
        return targets

    @model_validator(mode="after")
    def _whole(self) -> PatchKeys:
        if self.verdict != "needed" and (self.targets or self.diff):
            raise ValueError(f"without diff and targets: its verdict is {self.verdict}")
        if self.verdict == "needed" and not self.targets:
            raise ValueError("given targets: it changes no filess")
        if self.diff is None and (without := [one.path for one in self.targets if one.file is None]):
            raise ValueError(f"given a diff, or a file of {without[0]}")
        if self.diff is not None and all(one.file for one in self.targets) and self.targets:
            raise ValueError("without diff: every target has a file of its own")
        return self
