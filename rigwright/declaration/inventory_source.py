"""The source of an inventory: mistakes that Python accepts, found while `hosts()` runs, before pyinfra connects."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from rigwright import local_files
from rigwright.declaration.host_data import GROUP_DATA_RULE, describe_group_data, is_rig_key
from rigwright.declaration.host_file_formats import FORMATS
from rigwright.problems import Problem

RIGS = "rigs"
"""The variable with the rigs, by which commands find an inventory."""
LARGEST = 16 << 20  # bytes of an inventory
GROUP_DATA = "group_data"
"""The folder, next to an inventory or where pyinfra runs, with data of groups: a file a group, `all.py` for all."""


def find_source_problems(file: str, known: Collection[str]) -> list[Problem]:
    """Mistakes in an inventory's source: tables with one key twice, and data of groups.

    Args:
        file: The inventory.
        known: Keys of a rig: in files of groups, other names are the operator's variables.
    """
    if (tree := _parse(file)) is None:
        return []
    return [
        *_find_misnamed_group(file, tree),
        *_find_duplicate_keys(file, tree),
        *_find_group_data(file, tree, known),
        *_find_group_files(file, tree, known),
    ]


def _parse(file: str | Path) -> ast.Module | None:
    """The source of a file; None if it is not Python, or Python cannot read it, which it reports itself."""
    if Path(file).suffix.lower() in FORMATS:
        return None
    try:
        return ast.parse(local_files.read_content(file, LARGEST))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _find_duplicate_keys(file: str, tree: ast.Module) -> Iterator[Problem]:
    for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
        lines: dict[object, int] = {}
        for key in table.keys:
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str | int):
                continue
            if key.value in lines:
                first = lines[key.value]
                place = "this line" if first == key.lineno else f"one table, first in line {first}"
                text = f"is listed twice in {place}: Python keeps only the last"
                yield Problem(file, f"line {key.lineno}", f'"{key.value}" {text}')
            lines[key.value] = key.lineno


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that a module assigns at its top, as pyinfra reads them, with their values."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((target.id, node.value) for target in targets if isinstance(target, ast.Name))


def _find_misnamed_group(file: str, tree: ast.Module) -> Iterator[Problem]:
    """A misspelt `rigs`: pyinfra takes each variable with a list as a group, but commands search for `rigs`."""
    names = [name for name, value in _assignments(tree) if _makes_hosts(value, ())]
    nodes = [*ast.walk(tree)]
    stored = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    imported = {one.asname or one.name for one in nodes if isinstance(one, ast.alias)}
    # names with more than that, such as rigs_b, are groups
    near = [one for one in difflib.get_close_matches(RIGS, names, cutoff=0.7) if len(one) <= len(RIGS) + 1]
    if near and RIGS not in stored | imported and not near[0].startswith(RIGS):
        yield Problem(file, "", f'assigns no "{RIGS}": rename "{near[0]}"')


def _find_group_data(file: str, tree: ast.Module, known: Collection[str]) -> Iterator[Problem]:
    groups: set[str] = set()
    tables: dict[str, ast.Dict] = {}
    for name, value in _assignments(tree):
        if isinstance(value, ast.Dict):
            tables[name] = value
        if _makes_hosts(value, groups) and not isinstance(value, ast.Tuple):
            groups.add(name)
        if name.startswith("_") or not isinstance(value, ast.Tuple) or len(value.elts) != 2:
            continue
        hosts, data = value.elts
        if not _makes_hosts(hosts, groups):
            continue
        table = tables.get(data.id) if isinstance(data, ast.Name) else data
        keys = table.keys if isinstance(table, ast.Dict) else [None]
        # of a value that only the running program knows, the variable is named
        for key in {str(one.value) if isinstance(one, ast.Constant) else "" for one in keys}:
            place = f"{name}.{key}" if key else name
            yield Problem(file, place, describe_group_data(key, known) if key else GROUP_DATA_RULE)


def _makes_hosts(value: ast.expr, groups: Collection[str]) -> bool:
    """Whether an expression is a call of `hosts()`, or a list, variable or call made of one."""
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        # list(hosts(...)) has the same members
        return name == "hosts" or any(_makes_hosts(one, groups) for one in value.args)
    if isinstance(value, ast.List | ast.Tuple):
        return any(_makes_hosts(one.value if isinstance(one, ast.Starred) else one, groups) for one in value.elts)
    if isinstance(value, ast.BinOp):
        return _makes_hosts(value.left, groups) or _makes_hosts(value.right, groups)
    return isinstance(value, ast.Name) and value.id in groups


def _find_group_files(file: str, tree: ast.Module, known: Collection[str]) -> Iterator[Problem]:
    groups = {"all", Path(file).stem, *(name for name, _ in _assignments(tree))}
    folders = {Path(file).resolve().parent / GROUP_DATA: None}
    with suppress(OSError):  # the current folder is gone
        folders[Path.cwd() / GROUP_DATA] = None
    for path in [path for folder in folders for path in sorted(folder.glob("*.py")) if path.stem in groups]:
        made = _parse(path)
        for name, _ in _assignments(made) if made else ():
            if is_rig_key(name, known) and not name.startswith("__"):
                yield Problem(str(path), name, describe_group_data(name, known))
