"""Inventory of the weights on a host: verified files, their users, and removals."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rigwright.host import script_output
from rigwright.host.deploy_lock_state import parse_holder
from rigwright.host.script_output import free_text, hexadecimal, matching, number, seconds, text, tolerant
from rigwright.model.instance import Instance, instance_of, loaded_weights
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.serving.serving_state import ObservedServing
from rigwright.weights.verification import PACKAGES, RECORD, RecordedFile, records_folder

COMMIT = re.compile(r"[0-9a-f]{40}")
# the remainder of an unfinished fetch, and a foreign file that the fetch has found to be wrong and put aside
LEFT_OVER = (".part", ".wrong")


@dataclass(frozen=True)
class WeightEntry:
    """A file, folder or link below the models' root."""

    mode: int
    """With its kind, as in st_mode."""
    owner: int
    """A user's number."""
    state: str
    """Its state in a record: size, mtime, ctime and inode."""

    @property
    def size(self) -> int:
        """Bytes."""
        return int(self.state.split(" ")[0])


@dataclass(frozen=True)
class WeightInventory:
    """The findings of a look at one host."""

    root: str = "/srv/models"
    """Of all models."""
    now: int = 0
    """The host's clock, seconds since the epoch."""
    entries: Mapping[str, WeightEntry] = field(default_factory=dict)
    """By absolute path."""
    records: Mapping[str, str] = field(default_factory=dict)
    """Record's name -> its line: state and path."""
    hashed: Mapping[str, float] = field(default_factory=dict)
    """Record's name -> when the file's bytes were last hashed, and right."""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Record's name -> what the bytes were found to be instead, and when."""
    starts: Mapping[str, str] = field(default_factory=dict)
    """Instance of the current generation -> the command that starts it."""

    @cached_property
    def verified_paths(self) -> Mapping[str, str]:
        """Path of every file that is as it was when its bytes were verified -> its record's name."""
        found = {}
        for name, line in self.records.items():
            state, _, path = line.partition(" /")
            if f"/{path}" in self.entries and self.entries[f"/{path}"].state == state:
                found[f"/{path}"] = name
        return found

    def is_wrong(self, path: str) -> bool:
        """Whether a file's bytes were found to be other ones, and have not been replaced since."""
        end = RecordedFile(self.root, path.removeprefix(f"{self.root}/"), "").record
        marks = {name for name in self.wrong if name.endswith(end)}
        return bool(marks) and self.verified_paths.get(path, next(iter(marks))) in marks


@dataclass(frozen=True)
class StoredModel:
    """All files of one version of a model on one host."""

    name: str
    """The repository, or what the catalogue calls it."""
    version: str
    """The commit, or the catalogue's version."""
    folder: str
    """Absolute path."""
    files: int
    size: int
    """Bytes, without what is left over."""
    verified: int
    """Files that are as they were when their bytes were verified."""
    wrong: int
    """Files whose bytes were found to be other ones."""
    hashed: float | None
    """When the bytes of the file that comes first in that were last hashed, seconds since the epoch."""
    left_over: int
    """Bytes of files that were not fetched to their end, or were put aside."""
    users: tuple[str, ...]
    """Instances of the current generation, other generations and the inventory."""

    @property
    def state_word(self) -> str:
        """How its bytes are known to be."""
        if self.wrong:
            return f"wrong ({self.wrong} of {self.files} files)"
        if not self.files:
            return "not completely fetched"
        if self.verified == self.files:
            return "verified"
        return f"not verified ({self.files - self.verified} of {self.files} files)"


def render_weights_query(roots: Roots) -> str:
    """The look at a host, for a shell."""
    return render("probe/weights.sh.j2", root=roots.models, records=records_folder(roots), config=roots.config)


_record = tolerant(RECORD)
SCHEMA: script_output.Schema = {
    "now": (number,),
    # of a file with any name; one that cannot be written in one line is foreign
    "entry": (
        hexadecimal,
        number,
        matching(r"[0-9]+ -?[0-9.]+ -?[0-9.]+ [0-9]+", "a file's state"),
        tolerant(script_output.path),
    ),
    "record": (_record, text),
    "deep": (_record, seconds),
    "wrong": (_record, free_text),
    "start": (matching(r"rigwright-[a-z0-9-]+\.service", "an instance's unit"), text),
}
"""The output of templates/probe/weights.sh.j2."""


def parse_weight_inventory(roots: Roots, output: Iterable[str]) -> WeightInventory:
    """Read what templates/probe/weights.sh.j2 has told.

    Raises:
        ValueError: that is not what was asked for.
    """
    told = script_output.parse_output(output, SCHEMA)
    return WeightInventory(
        root=roots.models,
        now=told.one("now"),
        entries={path: WeightEntry(mode, owner, state) for mode, owner, state, path in told.many("entry") if path},
        # a power cut can leave one without its content
        records={name: line for name, line in told.many("record") if name and line},
        hashed={name: when for name, when in told.many("deep") if name},
        wrong={name: line for name, line in told.many("wrong") if name},
        starts={instance_of(name): line for name, line in told.many("start")},
    )


def model_of_path(path: str) -> tuple[str, str] | None:
    """Name and version of the model that a path from the models' root on belongs to; None for none."""
    parts = path.split("/")
    if path.startswith(".") or parts[0] == PACKAGES:
        return None  # a fetch's own, and what environments are installed from
    if len(parts) > 3 and COMMIT.fullmatch(parts[2]):
        return f"{parts[0]}/{parts[1]}", parts[2]
    return (parts[0], parts[1]) if len(parts) > 2 else None


def list_models(
    stored: WeightInventory, served: ObservedServing, roots: Roots, instances: tuple[Instance, ...]
) -> tuple[StoredModel, ...]:
    """The models on a host, by name and version."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for path, entry in stored.entries.items():
        where = model_of_path(path.removeprefix(f"{stored.root}/"))
        if where and not stat.S_ISDIR(entry.mode):
            grouped.setdefault(where, []).append(path)
    return tuple(
        _stored_model(stored, served, roots, instances, where, paths) for where, paths in sorted(grouped.items())
    )


def _stored_model(
    stored: WeightInventory,
    served: ObservedServing,
    roots: Roots,
    instances: tuple[Instance, ...],
    where: tuple[str, str],
    paths: list[str],
) -> StoredModel:
    folder = f"{stored.root}/{'/'.join(where)}"
    files = [path for path in paths if not path.endswith(LEFT_OVER)]
    verified = [path for path in files if path in stored.verified_paths]
    hashed = [stored.hashed.get(stored.verified_paths[path], 0.0) for path in verified]
    return StoredModel(
        name=where[0],
        version=where[1],
        folder=folder,
        files=len(files),
        size=sum(stored.entries[path].size for path in files),
        verified=len(verified),
        wrong=sum(stored.is_wrong(path) for path in files),
        hashed=min(hashed, default=None),
        left_over=sum(stored.entries[path].size for path in paths if path.endswith(LEFT_OVER)),
        users=list_dependents(stored, served, roots, instances, folder),
    )


def list_dependents(
    stored: WeightInventory,
    served: ObservedServing,
    roots: Roots,
    declared_instances: tuple[Instance, ...],
    folder: str,
) -> tuple[str, ...]:
    """List the users of the files in a model's folder."""
    inside = f"{folder}/"
    instances = [name for name, line in sorted(stored.starts.items()) if inside in line]
    referring = [kept.number for kept in served.generations if any(path.startswith(inside) for path in kept.references)]
    found = instances + [f"generation {n}" for n in referring if not (n == served.current and instances)]
    if not found and any(roots.weight_path(row).startswith(inside) for row in loaded_weights(declared_instances)):
        found.append("the inventory")
    return tuple(found)


REMOVAL_SCHEMA: script_output.Schema = {
    "held": (parse_holder,),
    "busy": (free_text,),
    "kept": (free_text,),
    # of files that may have any name
    "removed": (free_text,),
    "stays": (free_text,),
}
"""The output of templates/removal/model.sh.j2."""


@dataclass(frozen=True)
class RemovalOutcome:
    """The result of the removal."""

    refusal: str
    """Why nothing was done; empty where something was."""
    gone: tuple[str, ...]
    """Paths of files that were removed."""
    stays: tuple[str, ...]
    """Paths of files that stayed, because they are foreign."""


def parse_removal(output: Iterable[str]) -> RemovalOutcome:
    """Read it.

    Raises:
        ValueError: the host told something else, or was cut off.
    """
    told = script_output.parse_output(output, REMOVAL_SCHEMA)
    refusals = [str(one) for one in told.all("held")]
    refusals += [f"{unit} is running" for unit in told.all("busy")]
    refusals += [f"{file} refers to it" for file in told.all("kept")]
    return RemovalOutcome("; ".join(refusals), tuple(told.all("removed")), tuple(told.all("stays")))
