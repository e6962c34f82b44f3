"""Imports of the product form one tree, of files and of folders; imports for types alone count."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from rigwright.paths import ROOT

TOPS = ("rigwright", "roles", "checks", "cli", "lab", "bench")
# Each layer imports only itself and earlier ones. A name without a layer is a top-level module of rigwright.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("host",),
    ("supply", "patches"),
    ("plugins",),
    ("model",),
    ("debs", "weights"),
    ("delivery",),
    ("nvidia",),
    ("containers", "envs"),
    ("engines",),
    ("gateway",),
    ("monitoring", "serving"),
    ("declaration", "plan", "operate"),
)
LAYER = {f"rigwright/{name}": index for index, names in enumerate(LAYERS) for name in names}
OUTER = {"rigwright": 0, "bench": 2, "lab": 1, "roles": 1, "checks": 2, "cli": 3}

Graph = Mapping[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file below the root."""
    files = [path for top in TOPS for path in (root / top).rglob("*.py")]
    files += [path for path in [root / "deploy.py"] if path.exists()]
    relative = [path.relative_to(root) for path in files]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in relative}


def targets(node: ast.AST, known: Iterable[str]) -> Iterable[str]:
    """The modules that an import names."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [longer if (longer := f"{node.module}.{alias.name}") in known else node.module for alias in node.names]
    return [name for name in names if name in known]


@cache
def imports(root: Path) -> Graph:
    """Module -> those that it imports, wherever in it."""
    known = modules(root)
    return {
        name: {one for node in ast.walk(ast.parse((root / path).read_text())) for one in targets(node, known)} - {name}
        for name, path in known.items()
    }


def folder(path: Path) -> str:
    """A folder of two levels, or a single module above it."""
    if len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return path.parts[0] if path.name == "__init__.py" else str(path)


def folders(root: Path) -> Graph:
    """Folder -> those that its modules import from."""
    known = modules(root)
    found: dict[str, set[str]] = {}
    for name, others in imports(root).items():
        own = folder(known[name])
        found.setdefault(own, set()).update(folder(known[one]) for one in others)
        found[own].discard(own)
    return found


def cycle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_files_of_the_product_import_each_other_in_a_circle() -> None:
    assert cycle(imports(ROOT)) == []


def test_no_folders_of_the_product_import_each_other_in_a_circle() -> None:
    assert cycle(folders(ROOT)) == []


def test_each_layer_imports_only_earlier_ones() -> None:
    graph = folders(ROOT)
    assert set(LAYER) <= set(graph)
    wrong = [(one, other) for one in LAYER for other in graph[one] if LAYER.get(other, -1) > LAYER[one]]
    assert wrong == []


def test_the_domain_is_imported_by_roles_and_these_by_checks_and_the_command_line() -> None:
    tops: set[tuple[str, str]] = set()
    for one, others in imports(ROOT).items():
        tops |= {(one.partition(".")[0], other.partition(".")[0]) for other in others}
    assert [(one, other) for one, other in sorted(tops) if OUTER.get(one, 9) < OUTER.get(other, 0)] == []


@pytest.mark.parametrize("graph", [imports, folders])
def test_a_circle_for_types_alone_is_reported(graph: object, tmp_path: Path) -> None:
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {}\n"
    for name, other in (("model", "plan"), ("plan", "model")):
        place = tmp_path / "rigwright" / name / "one.py"
        place.parent.mkdir(parents=True)
        place.write_text(types.format(f"rigwright.{other}.one"))
    assert len(cycle(graph(tmp_path))) == 3  # type: ignore[operator]
