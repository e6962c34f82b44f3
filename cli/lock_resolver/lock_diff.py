"""Changes from one lock to the next, a line an artefact or package."""

from __future__ import annotations

from collections.abc import Iterable

from rigwright.model.deb_package_groups import leading_package, locked_version
from rigwright.problems import format_count
from rigwright.supply.lock import Artefact


def describe_changes(old: Iterable[Artefact], new: Iterable[Artefact]) -> list[str]:
    """`+` for what is new, `~` for what is another one, `-` for what is gone; nothing for what stays."""
    old, new = list(old), list(new)
    lines = [line for group in sorted({row.group or "" for row in new}) for line in _describe_request(group, old, new)]
    before, after = _group_by_name(map(_without_request, old)), _group_by_name(map(_without_request, new))
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key, []), after.get(key, [])
        if any(row.kind == "deb" for row in (*one, *other)):
            lines += _diff_packages(key[0], one, other)
        elif any(row.kind == "weight" and row.group for row in (*one, *other)):
            lines += _diff_model(key[0], one, other)
        elif not one:
            lines.append(f"+ {_rows_title(other)} {_describe_versions(other)}  {_describe_extent(other)}")
        elif not other:
            lines.append(f"- {_rows_title(one)} {_describe_versions(one)}")
        elif one != other:
            lines.append(f"~ {_rows_title(other)} {_describe_versions(one, other)}{_describe_details(one, other)}")
    return lines


def _group_by_name(rows: Iterable[Artefact]) -> dict[tuple[str, str], list[Artefact]]:
    named: dict[tuple[str, str], list[Artefact]] = {}
    for row in sorted(rows, key=lambda row: row.order):
        # packages, or a model, are one thing, whatever it is made of
        whole = row.group and row.kind in ("deb", "key", "weight")
        named.setdefault((row.group or "", "" if whole else row.name), []).append(row)
    return named


def _without_request(row: Artefact) -> Artefact:
    """A package without what its whole environment was asked for."""
    asked = {"python": None, "as_of": None} | ({"selection": None} if row.kind == "conda" else {})
    return row.model_copy(update=asked)


def _describe_request(group: str, old: list[Artefact], new: list[Artefact]) -> list[str]:
    """For what, and as of when, an environment is, where that is something else than before."""
    said = []
    for key, word in (("python", "for Python"), ("as_of", "as of")):
        one, other = ({getattr(row, key) for row in rows if row.group == group} for rows in (old, new))
        if group and one and one != other:
            texts = [", ".join(sorted(map(str, values - {None}))) or "none" for values in (one, other)]
            said.append(f"~ environment {group} {word} {' -> '.join(texts)}")
    return said


def _diff_packages(name: str, old: list[Artefact], new: list[Artefact]) -> list[str]:
    versions = " -> ".join(dict.fromkeys(locked_version(name, rows) or "?" for rows in (old, new) if rows))
    what = name if leading_package(name) else f"driver {name}"
    packages = format_count(sum(row.kind == "deb" for row in new), "package")
    if not new:
        return [f"- {what} {versions}"]
    if not old:
        return [f"+ {what} {versions}, {packages}"]
    others = format_count(len(set(new) - set(old)), "other file")
    return [f"~ {what} {versions}, {packages}, {others}"] if old != new else []


def _diff_model(name: str, old: list[Artefact], new: list[Artefact]) -> list[str]:
    if old == new:
        return []
    if not new:
        return [f"- model {name} {_row_path(old[0])}"]
    places = " -> ".join(dict.fromkeys(_row_path(rows[0]) for rows in (old, new) if rows))
    extent = f"{format_amount(sum(row.size for row in new))} in {format_count(len(new), 'file')}"
    said = (
        [extent, *_describe_terms(new)]
        if not old
        else [extent, _describe_revision(old, new), *_describe_terms(new, old)]
    )
    return [f"{'~' if old else '+'} model {name} {places} {', '.join(said)}"]


def _row_path(row: Artefact) -> str:
    return f"{row.repository}@{row.version[:7]}" if row.repository else row.version


def _describe_terms(new: list[Artefact], old: list[Artefact] | None = None) -> list[str]:
    """Licence and gate; beside older rows, only what is another one."""
    licence, gated = new[0].licence, bool(new[0].gated)
    if old is None:
        return [licence or "no licence named"] * bool(new[0].repository) + ["gated"] * gated
    said = []
    if old[0].licence != licence:
        said.append(f"licence {old[0].licence or 'none'} -> {licence or 'none'}")
    if bool(old[0].gated) != gated:
        said.append("now gated" if gated else "no longer gated")
    return said


def _describe_revision(old: list[Artefact], new: list[Artefact]) -> str:
    before, after = ({row.path: row.sha256 for row in rows} for rows in (old, new))
    changed = sum(before[path] != after[path] for path in before.keys() & after.keys())
    return f"{len(after.keys() - before.keys())} new, {changed} changed, {len(before.keys() - after.keys())} gone"


def _rows_title(rows: list[Artefact]) -> str:
    row = rows[0]
    return f"{row.kind} {row.group}/{row.name}" if row.group else f"{row.kind} {row.name}"


def _describe_versions(*sides: list[Artefact]) -> str:
    texts = [", ".join(sorted({" ".join(filter(None, (row.version, row.build))) for row in rows})) for rows in sides]
    return " -> ".join(dict.fromkeys(texts))


def _describe_extent(rows: list[Artefact]) -> str:
    size = format_amount(sum(row.size for row in rows))
    return size if len(rows) == 1 else f"{size} in {len(rows)} files"


def format_amount(size: int) -> str:
    """A size for people, from bytes."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def _describe_details(old: list[Artefact], new: list[Artefact]) -> str:
    if len(old) > 1 or len(new) > 1:
        gone, added = (set(one) - set(other) for one, other in ((old, new), (new, old)))
        return f"  {format_count(len(gone), 'file')} -> {format_count(len(added), 'file')}"
    said = ""
    (before,), (after,) = old, new
    if before.sha256 != after.sha256:
        said += f"  sha256 {before.sha256[:8]}… -> {after.sha256[:8]}…"
    if before.size != after.size:
        said += f"  {format_amount(before.size)} -> {format_amount(after.size)}"
    keys = ("kind", "file", "marker", "machine_code", "header", "sources")
    others = [key.replace("_", " ") for key in keys if getattr(before, key) != getattr(after, key)]
    return said + (f"  another {', '.join(others)}" if others else "")
