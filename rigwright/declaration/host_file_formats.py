"""Readers of inventory files in Ansible's formats: INI, YAML, and the JSON of `ansible-inventory --list`.

A file is data: no reader evaluates an expression, follows an alias or makes an object. Each returns all mistakes.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from rigwright.declaration.host_groups import ALL, DEEPEST, MOST_PROBLEMS, HostTree
from rigwright.problems import Invalid, Problem, format_value, suggestion

FORMATS = {".yml": "YAML", ".yaml": "YAML", ".json": "JSON", ".ini": "INI"}
"""Suffix of an inventory file -> its format."""
_UNSAFE = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufeff\uff00-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e]")
_SECTION = re.compile(r"\[([^\]:\s]+)(?::(\w+))?\]\s*(?:[#;].*)?")
_GROUP_KEYS = ("hosts", "children", "vars")
# YAML 1.1, which Ansible reads: words of both values in their three spellings
_WORDS = {
    spelling: value
    for word, value in (
        *((word, True) for word in ("true", "yes", "on")),
        *((word, False) for word in ("false", "no", "off")),
        ("null", None),
    )
    for spelling in (word, word.title(), word.upper())
} | {"~": None, "": None}
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}")
# numbers to one version of YAML, and text or another number to the other
_AMBIGUOUS = re.compile(
    r"[-+]?(?:0[xob]?[0-9A-Fa-f_]+|[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9][0-9_]*_[0-9_.]*"
    r"|[0-9.]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)


def parse_host_file(file: str, content: bytes, form: str) -> HostTree:
    """The hosts, groups and variables of a file; the tree has the mistakes that leave the rest readable.

    Args:
        file: Its path, for messages.
        content: Its bytes.
        form: A value of FORMATS.

    Raises:
        Invalid: the rest cannot be read.
    """
    tree = HostTree(file)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Invalid([Problem(file, f"line {line}", "is not UTF-8")]) from None
    if found := _UNSAFE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        character = f"U+{ord(found[0]):04X}"
        raise Invalid([Problem(file, f"line {line}", f"contains the control character {character}: remove it")])
    try:
        _READERS[form](tree, text)
    except RecursionError:
        raise Invalid([*tree.problems, Problem(file, "the file", "is nested too deeply")]) from None
    return tree


def _read_ini(tree: HostTree, text: str) -> None:
    section, kind = "ungrouped", ""
    for number, line in enumerate(text.splitlines(), 1):
        line, place = line.strip(), f"line {number}"
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            found = _SECTION.fullmatch(line)
            if not found or (found[2] or "") not in ("", "vars", "children"):
                near = suggestion(found[2], ("vars", "children")) if found and found[2] else ""
                tree.refuse(
                    place, f"{format_value(line)} is refused: must be [GROUP], [GROUP:vars] or [GROUP:children]{near}"
                )
                section = kind = "unknown"
                continue
            section, kind = found[1], found[2] or ""
            tree.group(section, place)
        elif kind == "children":
            tree.group(section, place).children.append(line.split("#")[0].strip())
        elif kind == "vars":
            name, equals, value = line.partition("=")
            if not equals:
                tree.refuse(place, f"{format_value(line)} is refused: must be KEY=VALUE")
                continue
            _add_variable(tree, tree.group(section, place).variables, name.strip(), value.strip(), place)
        elif not kind:
            _read_host_line(tree, section, line, place)


def _read_host_line(tree: HostTree, section: str, line: str, place: str) -> None:
    try:
        pattern, *words = shlex.split(line, comments=True)
    except ValueError as error:
        tree.refuse(place, f"cannot be read: {error}")
        return
    variables: dict[str, object] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            tree.refuse(place, f"{format_value(word)} is refused: must be KEY=VALUE, without spaces around =")
            continue
        _add_variable(tree, variables, name, value, place)
    pattern, colon, port = (
        pattern.partition(":") if re.fullmatch(r"[^\[\]:]+:[0-9]{1,5}", pattern) else (pattern, "", "")
    )
    if colon:
        variables.setdefault("ansible_port", int(port))
    tree.add_hosts(tree.group(section, place), pattern, variables, place)


def _add_variable(tree: HostTree, variables: dict[str, object], name: str, text: str, place: str) -> None:
    """Add a variable of INI: a Python literal where the text is one, otherwise the text."""
    if name in variables:
        tree.refuse(place, f'"{name}" is listed twice')
    try:
        parsed = ast.parse(text, mode="eval")
        value = ast.literal_eval(parsed)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value, parsed = text, None
        if text[:1] in ("{", "[", "(") and not text.startswith(("{{", "{%")):
            tree.refuse(place, f"{name}: {format_value(text, name)} is refused: must be a Python literal")
    for table in ast.walk(parsed) if parsed else ():
        keys = [one.value for one in table.keys if isinstance(one, ast.Constant)] if isinstance(table, ast.Dict) else []
        tree.problems += [
            Problem(tree.file, place, f"{format_value(key)} is listed twice in one table")
            for key in dict.fromkeys(keys)
            if keys.count(key) > 1
        ]
    variables[name] = value


def _read_yaml(tree: HostTree, text: str) -> None:
    for name, data in _items(tree, "", _YamlReader(tree).read(text)):
        _read_yaml_group(tree, name, data, 0)


def _items(tree: HostTree, place: str, table: object) -> Iterator[tuple[str, Any]]:
    """Entries of a table; empty for null."""
    if isinstance(table, dict):
        for name, value in table.items():
            if isinstance(name, str):
                yield name, value
            else:
                tree.refuse(place, f"{format_value(name)} is refused: a name must be text, in quotes")
    elif table is not None:
        tree.refuse(place or "the file", f"{format_value(table)} is refused: must be a table of names")


def _read_yaml_group(tree: HostTree, name: str, data: object, depth: int) -> None:
    group = tree.group(name, name)
    for key, inner in _items(tree, name, data):
        if key == "hosts":
            for pattern, variables in _items(tree, f"{name}.hosts", inner):
                tree.add_hosts(group, pattern, dict(_items(tree, pattern, variables)), f"{name}.hosts")
        elif key == "vars":
            for variable, value in _items(tree, f"{name}.vars", inner):
                if group.variables.setdefault(variable, value) != value:
                    tree.refuse(f"{name}.{variable}", "has two values in this file: declare it once")
        elif key == "children":
            for child, content in _items(tree, f"{name}.children", inner):
                group.children.append(child)
                _read_yaml_group(tree, child, content, depth + 1)
        else:
            tree.refuse(f"{name}.{key}", f"unknown key{suggestion(key, _GROUP_KEYS)}")


class _YamlReader:
    """Plain data of YAML, made of the parser's events: no tag is followed and no alias resolved."""

    def __init__(self, tree: HostTree) -> None:
        self.tree = tree

    def read(self, text: str) -> object:
        # few inventories are YAML
        import yaml

        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self.events: Iterator[Any] = yaml.parse(text, Loader=loader)
        found: object = None
        documents = 0
        try:
            for event in self.events:
                if isinstance(event, yaml.DocumentStartEvent):
                    documents += 1
                    found = self._value(next(self.events), 0) if documents == 1 else found
                    if documents > 1:
                        self._refuse(event, "a second document is refused: a file has one")
                        break
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"line {mark.line + 1}" if mark else "the file"
            self.tree.refuse(place, f"cannot be read as YAML: {getattr(error, 'problem', None) or error}")
        return found

    def _refuse(self, event: Any, text: str) -> None:
        self.tree.refuse(f"line {event.start_mark.line + 1}", text)
        if len(self.tree.problems) > MOST_PROBLEMS:
            raise Invalid(self.tree.problems)

    def _value(self, event: Any, depth: int) -> object:
        kind = type(event).__name__
        if depth > DEEPEST:
            raise Invalid([Problem(self.tree.file, f"line {event.start_mark.line + 1}", "is nested too deeply")])
        if kind == "AliasEvent":
            self._refuse(event, f"the alias *{event.anchor} is refused: declare what hosts share as vars of a group")
            return None
        if event.tag and event.tag not in ("!", "tag:yaml.org,2002:str"):
            hint = ": a secret is declared as a file or a command" if "vault" in event.tag else ""
            self._refuse(event, f"the tag {event.tag[:80]} is refused{hint}")
        if kind == "ScalarEvent":
            return self._scalar(event)
        if kind == "SequenceStartEvent":
            items = []
            while type(item := next(self.events)).__name__ != "SequenceEndEvent":
                items.append(self._value(item, depth + 1))
            return items
        table: dict[object, object] = {}
        while type(start := next(self.events)).__name__ != "MappingEndEvent":
            key = self._value(start, depth + 1)
            if isinstance(key, list | dict):
                self._refuse(start, "a list or table is refused as a key")
                key = None
            elif key in table:
                self._refuse(start, f"{format_value(key)} is listed twice in one table")
            elif key == "<<":
                self._refuse(start, "the merge key << is refused: declare what hosts share as vars of a group")
            table[key] = self._value(next(self.events), depth + 1)
        return table

    def _scalar(self, event: Any) -> object:
        text = event.value
        if not event.implicit[0] or event.tag:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _DECIMAL.fullmatch(text):
            return int(text)
        if _FRACTION.fullmatch(text):
            return float(text)
        if _AMBIGUOUS.fullmatch(text):
            rule = "is a different value in YAML 1.1 and 1.2: write a decimal number, or text in quotes"
            self._refuse(event, f"{format_value(text)} {rule}")
        return text


def _read_json(tree: HostTree, text: str) -> None:
    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            for name in sorted({name for name in names if names.count(name) > 1}):
                tree.refuse("the file", f"{format_value(name)} is listed twice in one table")
        return found

    def refuse_constant(name: str) -> None:
        tree.refuse("the file", f"{name} is refused: it is no JSON")

    try:
        data = json.loads(text, object_pairs_hook=table, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        tree.refuse(f"line {error.lineno}", f"cannot be read as JSON: {error.msg}")
        return
    except ValueError:
        tree.refuse("the file", "a number has too many digits")
        return
    groups = dict(_items(tree, "", data))
    meta = dict(_items(tree, "_meta", groups.pop("_meta", None)))
    variables = dict(_items(tree, "_meta.hostvars", meta.get("hostvars")))
    for name, one in groups.items():
        _read_json_group(tree, name, {"hosts": one} if isinstance(one, list) else one)
    for host, own in variables.items():
        if host not in tree.hosts:
            tree.group(ALL, ALL).hosts.append(host)
        tree.hosts[host] = dict(_items(tree, f"_meta.hostvars.{host}", own))


def _read_json_group(tree: HostTree, name: str, data: object) -> None:
    group = tree.group(name, name)
    for key, inner in _items(tree, name, data):
        if key == "vars":
            group.variables = dict(_items(tree, f"{name}.vars", inner))
        elif key not in _GROUP_KEYS:
            tree.refuse(f"{name}.{key}", f"unknown key{suggestion(key, _GROUP_KEYS)}")
        elif not isinstance(inner, list) or not all(isinstance(one, str) for one in inner):
            tree.refuse(
                f"{name}.{key}",
                f"{format_value(inner)} is refused: must be a list of names, as `ansible-inventory --list` prints",
            )
        elif key == "children":
            for child in inner:
                tree.group(child, f"{name}.children")
            group.children += inner
        else:
            for host in inner:
                tree.hosts.setdefault(host, {})
            group.hosts += inner


_READERS: dict[str, Callable[[HostTree, str], None]] = {"INI": _read_ini, "YAML": _read_yaml, "JSON": _read_json}
