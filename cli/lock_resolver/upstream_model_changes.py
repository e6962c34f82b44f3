"""What moved on the hub since a model was locked, as a diff; nothing is fetched."""

from __future__ import annotations

from collections.abc import Iterable

from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.hub import HubFile, HubListing
from cli.lock_resolver.hub_models import ModelResolver, input_revision, select_files
from cli.lock_resolver.lock_diff import format_amount
from cli.lock_resolver.lock_folders import LockInput
from rigwright.problems import printable
from rigwright.supply.lock import Artefact


def describe_model_changes(models: ModelResolver, wanted: LockInput, rows: list[Artefact]) -> list[str]:
    """What a repository has other than is locked, a line each.

    Args:
        models: What asks the hub.
        wanted: The input.
        rows: Its rows.

    Raises:
        DownloadUnavailable: the hub does not answer, or has no such repository.
    """
    if rows[0].repository != wanted.input.repository:
        return []  # the lock does not answer the input, and that is said already
    commit, revision = rows[0].version, input_revision(wanted)
    now = models.read_listing(wanted)
    lines = _describe_terms(wanted.name, rows[0], now)
    if now.commit == commit:
        return lines + _describe_file_changes(_as_hub_files(rows), select_files(wanted, now.files))
    said = f"{wanted.name}: {wanted.input.repository} {revision} is {now.commit[:7]} now, locked is {commit[:7]}"
    try:
        # git's names of small files are in no lock: only the locked commit says them
        before = select_files(wanted, models.read_listing(wanted, commit).files)
    except DownloadUnavailable as error:
        if not error.gone:
            raise
        said += ", which no longer exists"
        before = _as_hub_files(rows)
    after = select_files(wanted, now.files)
    changes = _describe_file_changes(before, after)
    if changes:
        return [said, *changes, *lines]
    blobs = {one.path: one.blob for one in before}
    # without the locked commit, nothing tells a small file from another one of its size
    unsure = any(one.sha256 is None and blobs[one.path] is None for one in after)
    return [f"{said}, with {'files of the same names and sizes' if unsure else 'the same files'}", *lines]


def _describe_terms(name: str, row: Artefact, now: HubListing) -> list[str]:
    lines = []
    if row.licence != now.licence:
        lines.append(f"{name}: the licence is {now.licence or 'none'} now, locked is {row.licence or 'none'}")
    if bool(row.gated) != now.gated:
        lines.append(f"{name}: is {'gated' if now.gated else 'open to all'} now, when it was locked it was not")
    return lines


def _as_hub_files(rows: Iterable[Artefact]) -> list[HubFile]:
    return [HubFile(path=row.path, size=row.size, sha256=row.sha256) for row in rows]


def _describe_file_changes(old: Iterable[HubFile], new: Iterable[HubFile]) -> list[str]:
    before, after = {one.path: one for one in old}, {one.path: one for one in new}
    lines = []
    for path in sorted(before.keys() | after.keys()):
        one, other = before.get(path), after.get(path)
        if one is None and other is not None:
            lines.append(f"  + {path}  {format_amount(other.size or 0)}")
        elif other is None:
            lines.append(f"  - {path}")
        elif one is not None and one.differs_from(other):
            sizes = dict.fromkeys(format_amount(size or 0) for size in (one.size, other.size))
            lines.append(f"  ~ {path}  {' -> '.join(sizes)}")
    return [printable(line) for line in lines]
