"""The keys of a patch: patch.toml in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from rigwright.patches.apply import path_refusal
from rigwright.problems import FrozenModel
from rigwright.types import PLAIN, FileName, Sha256, Text, Version, matching

DESCRIBES = (".dist-info", ".egg-info", ".egg", ".egg-link")
AT_START = ("sitecustomize", "usercustomize")
# The target of patches of llama.cpp's source tree; all other patches change a Python distribution.
LLAMA_CPP = "llama.cpp"


def _path(path: str) -> str:
    if wrong := path_refusal(path):
        raise ValueError(f"a relative path inside what it changes: it {wrong}")
    return path


TargetPath = Annotated[str, AfterValidator(_path)]
Paragraph = Annotated[str, matching(PLAIN + "{1,2000}", "1 to 2000 characters on one line")]
Distribution = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", f"a Python distribution, or {LLAMA_CPP}")]
PatchVerdict = Literal["needed", "yours", "included", "impossible"]


def find_nested_path(paths: Collection[str]) -> str:
    """One of several files that would be below another one of them; empty where none is."""
    return next((path for path in paths if any(str(one) in paths for one in PurePosixPath(path).parents)), "")


class PatchTarget(FrozenModel):
    """A file that a patch changes or adds."""

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


class PatchKeys(FrozenModel):
    """The purpose of a patch and the files that it changes; or the reason why there is none."""

    RENAMED: ClassVar[dict[str, str]] = {
        "of": "target_distribution",
        "why": "purpose",
        "until": "obsolete_when",
        "where": "evidence",
        "tested": "test_notes",
    }

    target_distribution: Distribution = Field(
        description="The target: a distribution of an environment or image, such as `vllm`, or `llama.cpp`."
    )
    versions: tuple[Version, ...] = Field(min_length=1, description="The exact versions that it is for.")
    verdict: PatchVerdict = Field(
        default="needed",
        description="`needed`: it is applied; `yours`: needed, but your own folder of that name next to the inventory "
        "must contain it; `included`: these versions already have it; `impossible`: it cannot be done. The "
        "last three have no files.",
    )
    purpose: Paragraph = Field(description="Purpose of the patch, or the reason why there is none.")
    source: Text = Field(description="Source.")
    licence: Text = Field(description="Licence of the change, such as Apache-2.0.")
    obsolete_when: Text = Field(description="When it can be dropped, in words.")
    included_in: Version | None = Field(default=None, description="The first upstream version that has it, if known.")
    marker: Text | None = Field(
        default=None, description="A text in the first target's file of a version that no longer needs it."
    )
    evidence: Paragraph | None = Field(default=None, description="Where in the code the verdict was established.")
    test_notes: Paragraph | None = Field(default=None, description="How it was tested, and with which result.")
    diff: FileName | None = Field(default=None, description="A file next to patch.toml: a unified diff.")
    targets: tuple[PatchTarget, ...] = Field(default=(), description="Every file that it changes or adds.")


def find_key_problems(keys: PatchKeys) -> Iterator[tuple[str, str]]:
    """Keys of a patch.toml that contradict each other: the key at fault and the problem."""
    if keys.verdict != "needed":
        for key in ("diff", "targets"):
            if getattr(keys, key):
                yield key, f"must be left out: its verdict is {keys.verdict}"
        return
    if not keys.targets:
        yield "targets", "missing: it changes no files"
    elif keys.diff and all(one.file for one in keys.targets):
        yield "diff", "must be left out: every target has a file of its own"
    paths = Counter(one.path for one in keys.targets)
    for path, times in sorted(paths.items()):
        if times > 1:
            yield f"targets.{path}", "is listed twice: one table per file"
    if below := find_nested_path(paths):
        yield f"targets.{below}", "is below another of them"
    for one in keys.targets:
        if one.before == one.after:
            yield f"targets.{one.path}", "after is the same as before: it is not changed"
        if one.file is None and keys.diff is None:
            yield f"targets.{one.path}", "must be given a file, or the patch a diff"
        if keys.target_distribution != LLAMA_CPP and (wrong := describe_unpatchable(one.path)):
            yield f"targets.{one.path}", f"{wrong}: no patch may change or add it"


def describe_unpatchable(path: str) -> str:
    """Why no patch may change a path among installed packages; empty if a patch may."""
    top, folder, _ = path.partition("/")
    if top.lower().endswith(DESCRIBES):
        return "describes a package to Python"
    if top.partition(".")[0] in AT_START or (not folder and top.endswith(".pth")):
        return "is run by every Python"
    return ""
