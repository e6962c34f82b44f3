"""Imports of the product form one tree, of files and of folders; imports for types alone count."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigwright.paths import ROOT
from tests.structure import Tree, largest_cycle


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


def test_no_files_of_the_product_import_each_other_in_a_circle(tree: Tree) -> None:
    assert len(largest_cycle(tree.graph)) == 1, largest_cycle(tree.graph)


def test_no_folders_of_the_product_import_each_other_in_a_circle(tree: Tree) -> None:
    assert len(largest_cycle(tree.folders)) == 1, largest_cycle(tree.folders)


def test_a_circle_for_types_alone_is_reported(tmp_path: Path) -> None:
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rigwright.{}.one\n"
    (tmp_path / "deploy.py").write_text("")
    for name, other in (("model", "plan"), ("plan", "model")):
        place = tmp_path / "rigwright" / name / "one.py"
        place.parent.mkdir(parents=True)
        place.write_text(types.format(other))
    planted = Tree(tmp_path)
    assert largest_cycle(planted.graph) == ["rigwright/model/one.py", "rigwright/plan/one.py"]
    assert largest_cycle(planted.folders) == ["rigwright/model", "rigwright/plan"]
