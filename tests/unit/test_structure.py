"""The tree's structure: imports form one tree, of files and of folders, and names say what they name.

Imports for types alone count.
"""

import pytest

from rigwright.project_root import ROOT
from tests.structure import Tree, duplicate_classes, largest_cycle

# A new text of these files is another generation, exporter, settings program or self-test on hosts.
DIGESTED = (
    *("roles/gateway/host/router/", "roles/monitoring/host/gpu.py", "roles/nvidia_cards/host/power.py"),
    "rigwright/plugins/verdict.py",
)


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(ROOT)


def test_no_files_of_the_product_import_each_other_in_a_circle(tree: Tree) -> None:
    assert len(largest_cycle(tree.graph)) == 1, largest_cycle(tree.graph)


def test_no_folders_of_the_product_import_each_other_in_a_circle(tree: Tree) -> None:
    assert len(largest_cycle(tree.folders)) == 1, largest_cycle(tree.folders)


def test_each_class_name_is_defined_once(tree: Tree) -> None:
    assert duplicate_classes(tree, but=DIGESTED) == []


def test_no_module_function_or_class_has_a_name_that_says_nothing(tree: Tree) -> None:
    named = [one for one in tree.banned() if not one.startswith(DIGESTED)]
    assert named == []
