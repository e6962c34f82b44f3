"""Patches: keys, files and validation as far as that needs no bytes of an engine."""

from __future__ import annotations

import hashlib
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from packaging.utils import canonicalize_name
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from rigwright import toml
from rigwright.patches.apply import LARGEST, Hunk, PatchRefused, content_refusal, parse, path_refusal
from rigwright.problems import FrozenModel, Invalid, Problem, describe_unknown
from rigwright.validated_types import PLAIN, FileName, Name, Sha256, Text, Version, matching

DESCRIBES = (".dist-info", ".egg-info", ".egg", ".egg-link")
AT_START = ("sitecustomize", "usercustomize")
# The target of patches of llama.cpp's source tree; all other patches change a Python distribution.
LLAMA_CPP = "llama.cpp"


def _path(path: str) -> str:
    if wrong := path_refusal(path):
        raise ValueError(f"a relative path inside its target: it {wrong}")
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
    purpose: Paragraph = Field(description="Purpose of the patch, or the reason for its absence.")
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


# Text of the program that applies patches on hosts.
APPLY_PROGRAM_TEXT = Path(__file__).with_name("apply.py").read_text()
HEAD = "patch.toml"
"""The file of a patch's folder with its keys."""
LARGEST_HEAD = 1_000_000
"""Bytes of that."""
SHOWN = 3
"""Files of a diff that a message names."""
MOST = 20
"""Files of a diff with a message each."""
_NAME: TypeAdapter[str] = TypeAdapter(Name)
_Refuse = Callable[[str, str], None]


@dataclass(frozen=True)
class Patch:
    """A patch of one name."""

    name: str
    keys: PatchKeys
    file: str = ""
    """Its head, for messages."""
    diff: str = ""
    texts: tuple[tuple[str, str], ...] = ()
    """Path of each target that is given whole, and its text."""

    @property
    def patched_digests(self) -> dict[str, str]:
        """Path -> SHA-256 of every patched file: the part of a patch that enters the digest of an installation."""
        return {one.path: one.after for one in self.keys.targets}

    @property
    def plan(self) -> dict[str, Any]:
        """The patch as `rigwright.patches.apply` reads it."""
        texts = dict(self.texts)
        return {
            "name": self.name,
            "diff": self.diff,
            "targets": [
                {"path": one.path, "before": one.before, "after": one.after}
                | ({"text": texts[one.path]} if one.path in texts else {})
                for one in self.keys.targets
            ],
        }

    def __str__(self) -> str:
        return self.name


def load_patches(folders: Iterable[Path]) -> dict[str, Patch]:
    """Every patch of several folders by name, a later folder's in place of an earlier one's.

    Raises:
        Invalid: with every mistake in them.
    """
    found: dict[str, Patch] = {}
    problems: list[Problem] = []
    for folder in folders:
        for place in sorted(folder.iterdir()) if folder.is_dir() else ():
            if place.name.startswith(".") or (place.is_file() and not place.is_symlink()):
                continue  # a page about them may lie there
            try:
                found[place.name] = load_patch(place)
            except Invalid as error:
                problems += error.problems
    if problems:
        raise Invalid(problems)
    return found


def load_patch(place: Path) -> Patch:
    """The patch of a folder.

    Raises:
        Invalid: with every mistake in it.
    """
    head = place / HEAD
    problems: list[Problem] = []

    def refuse(key: str, text: str) -> None:
        problems.append(Problem(str(head), key, text))

    try:
        _NAME.validate_python(place.name)
    except ValidationError:
        refuse(
            "the folder",
            f"{place.name} is not a valid patch name: must be at most 48 lowercase letters, digits and dashes",
        )
    if place.is_symlink():
        refuse("the folder", "is a link: must be a folder")
    elif place.is_dir():
        _load_bytes(place, HEAD, "the file", refuse, LARGEST_HEAD)
    else:
        refuse("the folder", "is not a patch: a patch is a folder")
    if problems:
        raise Invalid(problems)
    keys = toml.load_toml(head, PatchKeys)
    for key, text in find_key_problems(keys):
        refuse(key, text)
    if problems:
        raise Invalid(problems)
    diff = _load_text(place, keys.diff, "diff", refuse) if keys.diff else None
    texts: dict[str, bytes] = {}
    for one in keys.targets:
        key = f"targets.{one.path}"
        if not one.file or (content := _load_text(place, one.file, key, refuse)) is None:
            continue
        texts[one.path] = content
        if (found := hashlib.sha256(content).hexdigest()) != one.after:
            refuse(key, f"{one.file} has SHA-256 {found}, and after is {one.after}")
        if sum(map(len, texts.values())) > LARGEST:
            refuse(key, f"with {one.file} its files have more than {LARGEST:,} bytes together")
            break
    if diff is not None:
        try:
            _compare_targets(keys.targets, _hunks(diff), refuse)
        except PatchRefused as error:
            refuse("diff", f"{keys.diff}: {error}")
    if problems:
        raise Invalid(problems)
    said = tuple((path, content.decode()) for path, content in texts.items())
    return Patch(place.name, keys, str(head), (diff or b"").decode(), said)


_hunks = cache(parse)


def _load_bytes(place: Path, name: str, key: str, refuse: _Refuse, most: int = LARGEST) -> bytes | None:
    """A plain file of a patch's folder; None after refusing it."""
    path = place / name
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            refuse(key, f"{name} is {'a link' if path.is_symlink() else 'not a regular file'}: must be the file itself")
            return None
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        said = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        refuse(key, f"{name} {said}")
        return None
    if len(content) > most:
        refuse(key, f"{name} has more than {most:,} bytes")
        return None
    return content


def _load_text(place: Path, name: str, key: str, refuse: _Refuse) -> bytes | None:
    """The text of a file beside a head; None after refusing it."""
    content = _load_bytes(place, name, key, refuse)
    if content is not None and (wrong := content_refusal(content)):
        refuse(key, f"{name} {wrong}")
        return None
    return content


def _compare_targets(targets: Iterable[PatchTarget], hunks: Mapping[str, tuple[Hunk, ...]], refuse: _Refuse) -> None:
    """Have a diff change exactly the targets that no file is given of."""
    by_diff = {one.path for one in targets if one.file is None}
    whole = {one.path for one in targets if one.file}
    for path in sorted(whole & hunks.keys()):
        refuse(f"targets.{path}", "the diff changes it, but it has a replacement file, too")
    without = sorted(hunks.keys() - by_diff - whole)
    for path in without[:MOST]:
        refuse("targets", f"the diff changes {path}: it needs a table with SHA-256 before and after")
    if len(without) > MOST:
        refuse("targets", f"the diff changes {len(without) - MOST} more files without a table")
    there = ", ".join([*sorted(hunks)[:SHOWN], *(["..."] if len(hunks) > SHOWN else [])])
    for path in sorted(by_diff - hunks.keys()):
        refuse(f"targets.{path}", f"the diff does not change it; it changes {there}")


def collect_digests(patches: Iterable[Patch]) -> dict[str, str]:
    """Path -> SHA-256 of all files that patches change: part of the digest of an installation."""
    return dict(sorted(item for one in patches for item in one.patched_digests.items()))


def describe_patches(patches: Iterable[Patch]) -> str:
    """The end of a plan's line about an installation; empty without patches."""
    names = ", ".join(map(str, patches))
    return f", patched by {names}" if names else ""


def select_patches(
    names: Iterable[str], patches: Mapping[str, Patch], versions: Mapping[str, str] | None, what: str
) -> tuple[tuple[Patch, ...], list[str]]:
    """The patches that an engine or an environment names, and its mistakes, a line each.

    Args:
        names: Names of patches.
        patches: All patches by name.
        versions: Distribution that a patch may change -> its version; names as an index spells them. None before the
            lock has the versions.
        what: The engine or environment, for people.
    """
    found: list[Patch] = []
    wrong: list[str] = []
    changed: dict[str, str] = {}
    for name in names:
        one = patches.get(name)
        if one is None:
            wrong.append(describe_unknown("patch", name, patches))
        elif one in found:
            wrong.append(f"patch {name} is listed twice")
        elif refusal := _describe_mismatch(one, versions, what):
            wrong.append(f"patch {name} {refusal}")
        else:
            found.append(one)
            for path in one.patched_digests:
                if path in changed:
                    wrong.append(f"patches {changed[path]} and {name} both change {path}: merge them into one")
                changed.setdefault(path, name)
    if below := find_nested_path(changed):
        wrong.append(f"patch {changed[below]} adds {below}, which is below a file of another patch")
    return tuple(found), wrong


def _describe_mismatch(one: Patch, versions: Mapping[str, str] | None, what: str) -> str:
    """Why a patch does not fit the engine or environment that names it; empty if it fits."""
    keys = one.keys
    if keys.verdict == "yours":
        return f"must come from you: {one.file} describes it, and your own folder of that name must contain it"
    if keys.verdict != "needed":
        words = {"included": "is not needed", "impossible": "cannot be"}
        return f"{words[keys.verdict]} with {keys.target_distribution} {', '.join(keys.versions)}: {keys.purpose}"
    if versions is None:
        return ""
    there = versions.get(canonicalize_name(keys.target_distribution))
    if there is None:
        return f"is of {keys.target_distribution}, which {what} does not have"
    if there not in keys.versions:
        return f"is for {keys.target_distribution} {', '.join(keys.versions)}, but {what} has {there}"
    return ""
