"""Nothing reaches a shell unquoted: every value in a template of shell, and every word of a command in Python."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from rigwright.project_root import ROOT

TEMPLATES = ROOT / "templates"
FILTERS = {"sh", "words", "number"}
MACROS = {"record", "caller"}
ALLOWED = {
    ("channel.sh.j2", "varargs"): "formats of find and stat, written in templates",
    ("engines/install.sh.j2", "body"): "a script, made by a kind of engine of templates that are read here",
    ("engines/install.sh.j2", "again"): "likewise",
    ("look/holds.sh.j2", "test"): "a condition in shell, built by a role of quoted words",
}
"""(Template, expression's name) -> why it is no word."""


def shell_templates() -> list[str]:
    found = [
        path for path in TEMPLATES.rglob("*.j2") if path.name.endswith(".sh.j2") or path.read_text().startswith("#!")
    ]
    return sorted(str(path.relative_to(TEMPLATES)) for path in found)


def quoted(node: nodes.Expr) -> bool:
    """Whether an expression can only print one or more words, or digits."""
    if isinstance(node, nodes.Const):
        return True
    if isinstance(node, nodes.CondExpr):
        return quoted(node.expr1) and (node.expr2 is None or quoted(node.expr2))
    if isinstance(node, nodes.Concat):
        return all(quoted(one) for one in node.nodes)
    if isinstance(node, nodes.Call):
        return isinstance(node.node, nodes.Name) and node.node.name in MACROS
    return isinstance(node, nodes.Filter) and node.name in FILTERS


def loose(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each value that a template prints as it is."""
    for output in Environment(autoescape=True).parse(text).find_all(nodes.Output):
        for node in output.nodes:
            if not isinstance(node, nodes.TemplateData) and not quoted(node):
                names = [one.name for one in [node, *node.find_all(nodes.Name)] if isinstance(one, nodes.Name)]
                yield node.lineno, names[0] if names else "?"


@pytest.mark.parametrize("name", shell_templates())
def test_every_value_of_a_script_is_quoted_or_a_number(name: str) -> None:
    found = [(line, word) for line, word in loose((TEMPLATES / name).read_text()) if (name, word) not in ALLOWED]
    assert found == []


COMMANDS = {"StringCommand"}
WRAPPED = {"QuoteString", "MaskString"}
SHELL = {"file.proof": "words of shell by its own name, which only a role's constants are given to"}


def bare(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that give a command a word which is neither constant nor quoted."""
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in COMMANDS):
            continue
        constants = set(_constants(tree))
        for word in call.args:
            if not _fine(word, constants):
                yield word.lineno


def _constants(tree: ast.AST) -> Iterator[str]:
    """Names that are only ever bound to texts of this file, or to tuples of words that are fine."""
    bound: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for one, value in zip(target.elts, node.value.elts, strict=True):
                        if isinstance(one, ast.Name):
                            bound.setdefault(one.id, []).append(value)
    known: set[str] = set()
    for _ in range(len(bound)):
        known |= {name for name, values in bound.items() if all(_fine(value, known) for value in values)}
    yield from known


def _fine(word: ast.expr, known: set[str]) -> bool:
    if isinstance(word, ast.Constant):
        return True
    if isinstance(word, ast.Name):
        return word.id in known or word.id.isupper()
    if isinstance(word, ast.Attribute):
        return ast.unparse(word) in SHELL
    if isinstance(word, ast.IfExp):
        return _fine(word.body, known) and _fine(word.orelse, known)
    if isinstance(word, ast.Starred):
        return _fine(word.value, known)
    if isinstance(word, (ast.Tuple, ast.List)):
        return all(_fine(one, known) for one in word.elts)
    if isinstance(word, (ast.GeneratorExp, ast.ListComp)):
        return _fine(word.elt, known)
    if isinstance(word, ast.Call) and isinstance(word.func, ast.Name):
        mapped = word.func.id == "map" and isinstance(word.args[0], ast.Name) and word.args[0].id in WRAPPED
        return word.func.id in WRAPPED or mapped
    return False


PYTHON = sorted(path for folder in ("roles", "checks", "cli", "bench") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_word_of_a_command_is_a_constant_or_quoted(path: Path) -> None:
    assert list(bare(ast.parse(path.read_text()))) == []


SHELLS = {"run", "check_output", "lines", "start"}
QUOTING = {"shlex.quote", "shlex.join", "render"}


def open_texts(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that run a text with a value in it that is neither constant nor quoted."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    makers = {function.name for function in functions if _makes_quoted(function)}
    for function in functions:
        bound = dict(_bound(function))
        known = set(makers)
        for _ in range(len(bound)):
            known |= {name for name, values in bound.items() if all(_closed(value, known) for value in values)}
        texts = {name for name, values in bound.items() if any(map(_text, values))}
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in SHELLS):
                continue
            # with words of their own, which are quoted where they take their places
            words = (
                call.args[:1] if isinstance(next(iter(call.args), None), (ast.Constant, ast.JoinedStr)) else call.args
            )
            given = [word for word in words if _text(word) or (isinstance(word, ast.Name) and word.id in texts)]
            if not all(_closed(word, known) for word in given):
                yield call.lineno


def _makes_quoted(function: ast.FunctionDef) -> bool:
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return bool(returned) and all(value is not None and _text(value) and _closed(value, set()) for value in returned)


def _text(word: ast.expr) -> bool:
    """Whether it is made here of a text and values."""
    return isinstance(word, ast.JoinedStr) or _formatted(word) or (isinstance(word, ast.BinOp) and _text(word.left))


def _formatted(word: ast.expr) -> bool:
    return isinstance(word, ast.Call) and isinstance(word.func, ast.Attribute) and word.func.attr == "format"


def _bound(function: ast.FunctionDef) -> Iterator[tuple[str, list[ast.expr]]]:
    """Names of a function, and all that each is bound to."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            assert isinstance(node, ast.Assign)
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value] * len(target.elts)
                pairs = list(zip(target.elts, values, strict=True))
            for one, value in pairs:
                if isinstance(one, ast.Name):
                    found.setdefault(one.id, []).append(value)
    yield from found.items()


def _closed(word: ast.expr, known: set[str]) -> bool:
    if isinstance(word, ast.Constant):
        return True
    if isinstance(word, ast.Name):
        return word.id in known or word.id.isupper()
    if isinstance(word, ast.FormattedValue):
        number = word.format_spec is not None and ast.unparse(word.format_spec) == "f'd'"
        return number or _closed(word.value, known)
    if isinstance(word, ast.JoinedStr):
        return all(_closed(value, known) for value in word.values)
    if isinstance(word, ast.BinOp):
        return _closed(word.left, known) and _closed(word.right, known)
    if isinstance(word, ast.IfExp):
        return _closed(word.body, known) and _closed(word.orelse, known)
    if _formatted(word):
        assert isinstance(word, ast.Call)
        return all(_closed(one.value, known) for one in word.keywords)
    if (
        isinstance(word, ast.Call)
        and isinstance(word.func, ast.Attribute)
        and isinstance(word.func.value, ast.Constant)
    ):
        return (
            word.func.attr == "join" and isinstance(word.args[0], ast.GeneratorExp) and _closed(word.args[0].elt, known)
        )
    return isinstance(word, ast.Call) and ast.unparse(word.func) in QUOTING | known


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_value_in_the_text_of_a_command_is_a_constant_or_quoted(path: Path) -> None:
    assert list(open_texts(ast.parse(path.read_text()))) == []
