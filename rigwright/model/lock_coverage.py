"""Whether the lock answers an input, and whether a rig can have what it names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from rigwright.model.deb_package_groups import locked_version
from rigwright.problems import describe_unknown
from rigwright.supply import image_manifest, input_schema
from rigwright.supply.lock import Artefact, ArtefactKind, Lock
from rigwright.supply.lock_inputs import GROUPED, Input, is_stand_in
from rigwright.validated_types import CatalogName

UNLOCKED = "is not locked"
"""The problem of an input that the lock does not have."""


def describe_mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    """The difference between the lock and an input: "" where they agree.

    Args:
        wanted: The input.
        rows: Its row, or the rows of its group.
    """
    if not rows:
        return UNLOCKED
    if wanted.kind in ("wheel", "conda"):
        return input_schema.describe_environment_mismatch(wanted, rows)
    if wanted.kind == "deb":
        return _describe_packages_mismatch(wanted, rows)
    if wanted.kind == "image":
        return image_manifest.describe_image_mismatch(wanted, rows)
    if wanted.is_many_files:
        return _describe_weights_mismatch(wanted, rows)
    if len(rows) > 1 or rows[0].group:
        return f"is locked as {len(rows)} files, not one"
    (row,) = rows
    for key in ("kind", "version", "sources"):
        if getattr(row, key) != getattr(wanted, key):
            return f"is locked with {key} {_format_value(getattr(row, key))}, not {_format_value(getattr(wanted, key))}"
    if wanted.file_name not in (None, row.file):
        return f"is locked with file {row.file}, not {wanted.file_name}"
    return ""


def _describe_weights_mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    for row in rows:
        if row.kind != wanted.kind:
            return f"is locked with kind {row.kind}, not {wanted.kind}"
        if row.repository != wanted.repository:
            return f"is locked from {row.repository or 'no repository'}, not {wanted.repository or 'your own files'}"
        if row.sources != wanted.sources_of(row.path):
            return (
                f"is locked with sources {_format_value(row.sources)}, not {_format_value(wanted.sources_of(row.path))}"
            )
        if row.selection != wanted.selection:
            return "is locked with a different version, or different include and exclude patterns"
        if not wanted.selects(row.path):
            return f"is locked with {row.path}, which its include and exclude patterns do not select"
    exact = wanted.version if not wanted.repository or re.fullmatch("[0-9a-f]{40}", wanted.version or "") else None
    if exact and (others := {row.version for row in rows} - {exact}):
        return f"is locked with version {min(others)}, not {exact}"
    return ""


def _describe_packages_mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    if (version := locked_version(str(rows[0].group), rows)) != wanted.version:
        return f"is locked with {f'version {version}' if version else 'no version'}, not {wanted.version}"
    (source,) = wanted.sources
    # the archive says which part of it a package of the distribution's lies in
    place = "apt:" if source.startswith("apt:") else f"{source}/"
    for row in rows:
        if row.kind == "deb" and not row.sources[0].startswith(place):
            return f"is locked with sources {row.sources[0]}, not {source}"
    if place != "apt:" and not any(row.kind == "key" for row in rows):
        return "is locked without its archive's key"
    return ""


def _format_value(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe_uncovered(
    name: str, kind: ArtefactKind, inputs: Mapping[CatalogName, Input], lock: Lock, inventory: str
) -> str:
    """Why a rig cannot have what it names: "" where it can.

    Args:
        name: The artefact's or environment's name.
        kind: The required kind; `wheel` and `conda` stand for an environment, `deb` for packages of an archive, `image`
            for an image.
        inputs: The catalogue's.
        lock: The lock.
        inventory: The file to lock for, for messages.
    """
    asked = inputs.get(name)
    if asked and asked.kind != kind:
        return f"the catalogue's input {name} is a {asked.kind}, not a {kind}"
    if kind in GROUPED:
        names = {group for group, found in lock.groups.items() if any(row.kind == kind for row in found)}
        rows = lock.groups.get(name, ())
    else:
        names = {row.name for row in lock.artefacts.values() if row.kind == kind}
        rows = tuple(row for row in lock.artefacts.values() if row.name == name)
        if kind == "weight":
            names |= {group for group, found in lock.groups.items() if found[0].kind == kind}
            rows = rows or lock.groups.get(name, ())
    if asked and (wrong := describe_mismatch(asked, rows)):
        return f"{name} {wrong}: run `rigwright lock {shlex.quote(inventory)}`"
    if name not in names and not rows:
        names |= {other for other, one in inputs.items() if one.kind == kind}
        called = {"wheel": "locked environment", "conda": "locked environment of conda packages"}
        return describe_unknown(called.get(kind, f"locked {kind}"), name, names)
    if others := {row.kind for row in rows} - ({kind, "key"} if kind == "deb" else {kind}):
        return f"the lock's {name} is a {min(others)}, not a {kind}"
    # without an input, too: the manifest is the image
    judges_blobs = kind == "image" and not is_stand_in(rows)
    return f"{name} {wrong}" if judges_blobs and (wrong := image_manifest.describe_blob_mismatch(rows)) else ""
