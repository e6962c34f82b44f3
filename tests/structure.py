"""Figures of the tree's structure: `python -m tests.structure`, with what each is to become."""

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

PRODUCT = ("rigwright", "checks", "cli", "roles", "lab", "bench", "inventory", "deploy.py")
BANNED = re.compile(
    "_*(said|told|theirs|given|wanted|found|asked|alone|ahead|beside|whole|brought|leaving|settled|recorded|looking|seen"
    "|noted|spent|watched|carried|own|begun|ending|judged|chosen)_*",
    re.IGNORECASE,
)
"""Words that say nothing as the complete name of a module, function or class."""
CONVENTIONS = ("np", "tomllib")
"""Names under which other projects import numpy and tomli."""
LONGEST = 400
"""Lines of a file."""
Graph = Mapping[str, set[str]]


class Tree:
    """The Python files of a checkout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.product = list(self._files(*PRODUCT))
        self.tests = list(self._files("tests"))

    def _files(self, *names: str) -> Iterator[str]:
        for name in names:
            path = self.root / name
            found = [path] if path.suffix else sorted(path.rglob("*.py"))
            yield from (str(one.relative_to(self.root)) for one in found if "__pycache__" not in one.parts)

    @cached_property
    def texts(self) -> dict[str, str]:
        """File -> text."""
        return {file: (self.root / file).read_text() for file in (*self.product, *self.tests)}

    @cached_property
    def parsed(self) -> dict[str, ast.Module]:
        """File -> what it is parsed to."""
        return {file: ast.parse(text) for file, text in self.texts.items()}

    @cached_property
    def modules(self) -> dict[str, str]:
        """Dotted name of a product module -> file."""
        return {re.sub(r"(/__init__)?\.py$", "", file).replace("/", "."): file for file in self.product}

    def imports(self, file: str) -> Iterator[tuple[str, ast.alias]]:
        """Module that a file imports from, and the name; empty module for `import x`. With those of type checkers."""
        for node in ast.walk(self.parsed[file]):
            if isinstance(node, ast.ImportFrom):
                yield from ((node.module or "", one) for one in node.names)
            elif isinstance(node, ast.Import):
                yield from (("", one) for one in node.names)

    @cached_property
    def graph(self) -> Graph:
        """Product file -> those that it imports."""
        edges: dict[str, set[str]] = {file: set() for file in self.product}
        for file, targets in edges.items():
            for module, one in self.imports(file):
                inner = f"{module}.{one.name}".lstrip(".")
                if target := self.modules.get(inner) or self.modules.get(module):
                    targets.add(target)
            targets.discard(file)
        return edges

    @cached_property
    def folders(self) -> Graph:
        """The same of folders: the first two parts of a file's path."""
        edges: dict[str, set[str]] = {}
        for file, targets in self.graph.items():
            edges.setdefault(folder(file), set()).update({*map(folder, targets)} - {folder(file)})
        return edges

    @cached_property
    def definitions(self) -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
        """File and definition of each class and function, those of tests too."""
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        return [
            (file, node) for file, tree in self.parsed.items() for node in ast.walk(tree) if isinstance(node, kinds)
        ]

    def banned(self) -> list[str]:
        """Modules, functions and classes whose complete name is a banned word."""
        names = [(file, Path(file).stem) for file in self.parsed]
        names += [(file, node.name) for file, node in self.definitions]
        return [f"{file}: {name}" for file, name in names if BANNED.fullmatch(name)]

    def aliases(self) -> Iterator[str]:
        """Imports under another name, but for those of a convention."""
        for file in self.product:
            for module, one in self.imports(file):
                if one.asname and one.asname not in (one.name, *CONVENTIONS):
                    yield f"{file}: {module} {one.name} as {one.asname}"


def folder(file: str) -> str:
    """The folder of a file's path."""
    return "/".join(file.removesuffix(".py").split("/")[:2])


def reachable(graph: Graph, start: str) -> set[str]:
    """All nodes that a node leads to."""
    found: set[str] = set()
    pending = [start]
    while pending:
        new = graph.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


def largest_cycle(graph: Graph) -> list[str]:
    """The largest set of nodes that all reach each other; a single one where there is no cycle."""
    reach = {node: reachable(graph, node) for node in graph}
    cycles = [{node} | {one for one in reach[node] if node in reach[one]} for node in graph]
    largest = max(cycles, key=len)
    return sorted(largest)


def class_counts(tree: Tree, but: tuple[str, ...] = ()) -> Counter[str]:
    """How often the product defines each name of a class, without files whose paths begin so."""
    product = {file for file in tree.product if not file.startswith(but)}
    return Counter(node.name for file, node in tree.definitions if file in product and isinstance(node, ast.ClassDef))


def duplicate_classes(tree: Tree, but: tuple[str, ...] = ()) -> list[str]:
    """Names of classes that the product defines more than once, without files whose paths begin so."""
    return sorted(name for name, count in class_counts(tree, but).items() if count > 1)


def figures(tree: Tree) -> Iterator[tuple[str, str, list[str], int]]:
    """Name and goal of each figure, what it counts, and its value."""
    lines = {file: text.count("\n") for file, text in tree.texts.items()}
    product = {*tree.product}
    times = class_counts(tree)
    importers = [file for file in product if any(one.name == "Rig" for _, one in tree.imports(file))]
    counted = {
        ("files in the largest import cycle", "1"): largest_cycle(tree.graph),
        ("folders in the largest import cycle", "1"): largest_cycle(tree.folders),
        ("files that import Rig", "< 90"): sorted(importers),
        ("imports under another name", "< 20"): sorted({*tree.aliases()}),
        ("class names defined more than once", "0"): duplicate_classes(tree),
        ("class names defined four times or more", "0"): [name for name in times if times[name] > 3],
        ("banned names of modules, functions, classes", "0"): tree.banned(),
        (f"files of more than {LONGEST} lines", "0"): [file for file in lines if lines[file] > LONGEST],
    }
    for (name, goal), found in counted.items():
        yield name, goal, found, len(found)
    yield "lines of the product", "<= 85000", [], sum(lines[file] for file in tree.product)
    yield "lines of tests", "<= 86000", [], sum(lines[file] for file in tree.tests)


def main() -> None:
    """Print the figures, and with `--list WORDS` the objects that those whose names contain the words count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1], help="another checkout")
    parser.add_argument("--list", metavar="WORDS", help="list what the figures count whose names contain this")
    options = parser.parse_args()
    print(f"{'figure':<44} {'now':>7}  goal")
    for name, goal, found, value in figures(Tree(options.folder)):
        print(f"{name:<44} {value:>7}  {goal}")
        if options.list is not None and options.list in name:
            print(*(f"  {one}" for one in found), sep="\n")


if __name__ == "__main__":
    main()
