"""Variants of an instance: choice by purpose and cards, and edits of an inventory that switch to one."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from rigwright.engines import kinds
from rigwright.model.catalog_schema import Catalog
from rigwright.model.engine_schema import KINDS, Need, Purpose, VariantKeys, Workload
from rigwright.problems import Invalid, Problem, describe_unknown
from rigwright.supply.lock_inputs import HUB

# The names of a card without further facts: it may be any.
ANY = frozenset[str]()
# Sources of weights that need no mirror of the inventory.
PUBLIC_SOURCES = ("http", "https", HUB)


@dataclass(frozen=True)
class VariantQuery:
    """The conditions that an operator gives for a variant."""

    need: Need | None = None
    workload: Workload | None = None
    cards: tuple[frozenset[str], ...] | None = None
    """Of each card that is free for it the names in the catalogue, or `ANY`; None for whatever it takes."""


def choose_variants(catalog: Catalog, asked: VariantQuery) -> tuple[str, ...]:
    """Names of the variants that answer, the best first.

    Variants whose main purpose meets the need go before others that meet it; then those with stronger evidence, without
    containers, and with fewer idle cards.
    """

    def worth(name: str) -> tuple[object, ...]:
        variant = catalog.variants[name]
        engine = catalog.engines.get(variant.engine)
        purpose = variant.purpose
        return (
            # demonstrations are for no need and no workload
            bool(purpose and not (purpose.needs or purpose.workloads)),
            _purpose(variant).needs.index(asked.need) if asked.need else 0,
            KINDS.index(variant.evidence.kind) if variant.evidence else len(KINDS),
            bool(engine and kinds()[engine.kind].container_engine),
            -variant.cards if asked.cards is not None else variant.cards,
            name,
        )

    return tuple(sorted((name for name, one in catalog.variants.items() if _is_match(one, asked)), key=worth))


def find_missing_mirrors(catalog: Catalog, mirrors: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Variants with a model file that has no address -> the mirrors of which one would give it an address.

    Args:
        catalog: The variants, their models and the models' inputs.
        mirrors: The mirrors that the inventory declares.
    """
    addressed = {*PUBLIC_SOURCES, *mirrors}
    lacking = {
        name: tuple(dict.fromkeys(source.partition(":")[0] for source in one.sources))
        for name, one in catalog.inputs.items()
        if one.kind == "weight" and not one.repository and one.sources
    }
    lacking = {name: schemes for name, schemes in lacking.items() if not addressed.intersection(schemes)}
    found: dict[str, tuple[str, ...]] = {}
    for name, variant in catalog.variants.items():
        model = catalog.models.get(variant.model)
        files = (model.file, model.folder, model.mmproj, model.draft, model.chat_template) if model else ()
        inputs = [one.partition(":")[0] for one in files if one]
        if missing := dict.fromkeys(scheme for one in inputs for scheme in lacking.get(one, ())):
            found[name] = tuple(missing)
    return found


def select_addressed_variants(catalog: Catalog, mirrors: Collection[str]) -> Catalog:
    """A catalogue without the variants of `find_missing_mirrors`."""
    missing = find_missing_mirrors(catalog, mirrors)
    return catalog.model_copy(
        update={"variants": {name: one for name, one in catalog.variants.items() if name not in missing}}
    )


def describe_no_match(catalog: Catalog, cards: tuple[frozenset[str], ...] | None) -> str:
    """The message where no variant answers: the variants for the cards, with any purpose.

    Args:
        catalog: Where none answers.
        cards: As in `VariantQuery`.
    """
    others = [
        name
        for name in choose_variants(catalog, VariantQuery(cards=cards))
        if _purpose(catalog.variants[name]).cards or not cards
    ]
    instead = f"for these cards: {', '.join(others)}" if others else "see docs/guides/adding-a-model.md to add one"
    return f"no variant of the catalogue matches; {instead}"


def _purpose(variant: VariantKeys) -> Purpose:
    return variant.purpose or Purpose(why="its catalogue entry does not say")


def _is_match(variant: VariantKeys, asked: VariantQuery) -> bool:
    purpose = _purpose(variant)
    if asked.need and asked.need not in purpose.needs:
        return False
    if asked.workload and asked.workload not in purpose.workloads:
        return False
    if asked.cards is None:
        return True
    made_for = [names for names in asked.cards if not purpose.cards or names == ANY or names & {*purpose.cards}]
    return len(made_for) >= variant.cards


# One string without a prefix, an escape or another one after it.
PLAIN = re.compile(rb"""(["'])[^"'\\\r\n]*\1""")
# Numbers between brackets, and no comment.
PLAIN_CARDS = re.compile(rb"\[[\d,\s]*\]|\([\d,\s]*\)")


@dataclass(frozen=True)
class VariantSwitch:
    """An instance that is to serve another variant."""

    instance: str
    variant: str
    cards: tuple[int, ...] | None = None
    """GPU indexes that it gets with it; None for those that it has."""

    def __str__(self) -> str:
        """As `--data` has it."""
        cards = "" if self.cards is None else f":{','.join(map(str, self.cards))}"
        return f"{self.instance}:{self.variant}{cards}"


class _NotALiteral(Exception):
    """The value is no literal."""

    def __init__(self, node: ast.AST, why: str) -> None:
        super().__init__(why)
        self.line: int = getattr(node, "lineno", 1)


def instances_sharing_name(data: object, instance: str) -> tuple[str, ...]:
    """An instance, then those that a gateway offers under one name with it: they have to be of one variant."""
    try:
        models: dict[str, dict[str, Sequence[str]]] = data["entry"]["gateway"]["models"]  # type: ignore[index]
        groups = [one["instances"] for one in models.values()]
        return tuple(dict.fromkeys((instance, *(name for group in groups if instance in group for name in group))))
    except (TypeError, KeyError, AttributeError):
        return (instance,)


def apply_switch(data: object, switch: VariantSwitch) -> object:
    """Host data of a rig (`rigwright.inventory.hosts`) with another variant in it; the loader of the inventory
    validates it.

    Instances that share a name with it get the variant, too.

    Raises:
        Invalid: the rig declares no such instance.
    """
    made = deepcopy(data)
    try:
        rig: dict[str, object] = made  # type: ignore[assignment]
        instances: dict[str, dict[str, object]] = rig["entry"]["instances"]  # type: ignore[index]
    except (TypeError, KeyError):
        instances = {}
    if not (isinstance(instances, dict) and isinstance(instances.get(switch.instance), dict)):
        names = instances if isinstance(instances, dict) else ()
        raise Invalid([Problem("--data", "switch", describe_unknown("instance", switch.instance, map(str, names)))])
    for name in instances_sharing_name(data, switch.instance):
        if isinstance(instances.get(name), dict):
            instances[name]["variant"] = switch.variant
    if switch.cards is not None:
        instances[switch.instance]["cards"] = list(switch.cards)
    return made


def edit_inventory(file: str, content: bytes, rig: str, switch: VariantSwitch, others: Sequence[str] = ()) -> bytes:
    """An inventory's content with another variant in it, and other cards where the switch names some.

    Args:
        file: Its name, for messages.
        content: Its text.
        rig: The rig's name.
        switch: The instance and the variant.
        others: Instances that get the variant, too.

    Raises:
        Invalid: it is not written out in it as a plain literal: names the line and what to edit by hand.
    """
    key, by_hand, instance = "variant", f'"{switch.variant}"', switch.instance
    replaced: set[tuple[int, int, bytes]] = set()
    try:
        tree = ast.parse(content)
        for instance in (*others, switch.instance):
            node = _find_variant_literal(tree, rig, instance)
            start, end = (_offset(content, line, column) for line, column in _span(node))
            if not PLAIN.fullmatch(content[start:end]) or content[start + 1 : end - 1].decode() != node.value:
                raise _NotALiteral(node, "is not a plain literal")
            replaced.add((start + 1, end - 1, switch.variant.encode()))
        if switch.cards is not None:
            key, by_hand = "cards", str(list(switch.cards))
            cards = _find_cards_literal(tree, rig, switch.instance)
            start, end = (_offset(content, line, column) for line, column in _span(cards))
            if not PLAIN_CARDS.fullmatch(content[start:end]):
                raise _NotALiteral(cards, "is not a plain literal")
            replaced.add((start, end, by_hand.encode()))
    except SyntaxError as error:
        where = f"{rig}.instances.{instance}.{key}"
        raise Invalid([Problem(file, where, f"line {error.lineno}: {error.msg}")]) from None
    except _NotALiteral as error:
        said = f"line {error.line} {error}, so the file is unchanged: set {by_hand} there by hand, or switch with "
        "--once"
        raise Invalid([Problem(file, f"{rig}.instances.{instance}.{key}", said)]) from None
    for start, end, text in sorted(replaced, reverse=True):
        content = content[:start] + text + content[end:]
    return content


def _span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _offset(content: bytes, line: int, column: int) -> int:
    """Of a place as ast has it: lines from 1, columns in bytes of UTF-8."""
    return sum(map(len, content.splitlines(keepends=True)[: line - 1])) + column


def _find_variant_literal(tree: ast.Module, rig: str, instance: str) -> ast.Constant:
    """Where the variant is written.

    Raises:
        _NotALiteral: nowhere as a literal, or not once.
    """
    names = _collect_names(tree)
    variant = _resolve_name(_find_instance_table(tree, names, rig, instance).entry("variant"), names)
    if not isinstance(variant, ast.Constant) or not isinstance(variant.value, str):
        raise _NotALiteral(variant, f"has {_describe_node(variant)} for it")
    return variant


def _find_cards_literal(tree: ast.Module, rig: str, instance: str) -> ast.expr:
    """Where the instance's cards are written.

    Raises:
        _NotALiteral: as `_find_variant_literal` does.
    """
    names = _collect_names(tree)
    return _resolve_name(_find_instance_table(tree, names, rig, instance).entry("cards"), names)


def _find_instance_table(tree: ast.Module, names: dict[str, ast.expr], rig: str, instance: str) -> _TableNode:
    """The table of an instance's keys.

    Raises:
        _NotALiteral: as `_find_variant_literal` does.
    """
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and _callee_name(node) == "hosts" and node.args
    ]
    # an inventory may have several groups
    calls = [one for one in calls if rig in _keys(_resolve_name(one.args[0], names))] or calls
    if len(calls) != 1:
        raise _NotALiteral(calls[-1] if calls else tree, f"does not pass {rig} to hosts() in a single literal table")
    shared = next((one.value for one in calls[0].keywords if one.arg == "instances"), None)
    entry = _table(calls[0].args[0], names, "hosts()").entry(rig)
    instances = _table(entry, names, rig).entry("instances", shared)
    return _table(_table(instances, names, "instances").entry(instance), names, instance)


@dataclass(frozen=True)
class _TableNode:
    node: ast.Dict
    what: str

    def entry(self, key: str, otherwise: ast.expr | None = None) -> ast.expr:
        """The value of a key: the last one counts, as it does to Python.

        Raises:
            _NotALiteral: it is in none, or another one may be in its place.
        """
        for name, value in zip(reversed(self.node.keys), reversed(self.node.values), strict=True):
            if name is None:
                raise _NotALiteral(value, f"has **{_describe_node(value)} in {self.what}")
            if not isinstance(name, ast.Constant):
                raise _NotALiteral(name, f"has the key {_describe_node(name)} in {self.what}")
            if name.value == key:
                return value
        if otherwise is None:
            raise _NotALiteral(self.node, f"has no {key} in {self.what}")
        return otherwise


def _table(node: ast.expr, names: dict[str, ast.expr], what: str) -> _TableNode:
    found = _resolve_name(node, names)
    if not isinstance(found, ast.Dict):
        raise _NotALiteral(found, f"has {_describe_node(found)} for {what}")
    return _TableNode(found, what)


def _keys(node: ast.expr) -> list[object]:
    return [key.value for key in node.keys if isinstance(key, ast.Constant)] if isinstance(node, ast.Dict) else []


def _resolve_name(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    """The value of a name, where that is plain."""
    return names.get(node.id, node) if isinstance(node, ast.Name) else node


def _collect_names(tree: ast.Module) -> dict[str, ast.expr]:
    """Names with one assignment, at the top of the file."""
    stored = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return {name: value for name, value in _iterate_assignments(tree) if stored.count(name) == 1}


def _iterate_assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for one in tree.body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            yield one.targets[0].id, one.value
        elif isinstance(one, ast.AnnAssign) and one.value and isinstance(one.target, ast.Name):
            yield one.target.id, one.value


def _callee_name(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def _describe_node(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:37]}..."
