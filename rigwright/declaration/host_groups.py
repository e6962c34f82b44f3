"""Hosts, groups and variables of an inventory file in Ansible's formats, and the keys of rigs that they declare."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rigwright.problems import Invalid, Problem, describe_unknown, format_value, suggestion

ALL, UNGROUPED = "all", "ungrouped"
MOST_HOSTS = 20_000
"""Hosts of a file, ranges expanded."""
MOST_PROBLEMS = 100
"""Problems of a file that are listed."""
DEEPEST = 32
"""Levels of tables in a file, and of groups in groups."""
CONNECTION = {
    **dict.fromkeys(("ansible_host", "ansible_ssh_host"), "ssh_hostname"),
    **dict.fromkeys(("ansible_port", "ansible_ssh_port"), "ssh_port"),
    **dict.fromkeys(("ansible_user", "ansible_ssh_user"), "ssh_user"),
    **dict.fromkeys(("ansible_ssh_private_key_file", "ansible_private_key_file"), "ssh_key"),
    "ansible_become": "_sudo",
}
"""Variable of Ansible -> key of a rig."""
FIXED = {
    "ansible_connection": ("ssh", "smart", "paramiko"),
    "ansible_become_method": ("sudo",),
    "ansible_become_user": ("root",),
}
"""Variable of Ansible -> the values with which Rigwright does the same."""
LOCAL = frozenset({"ansible_python_interpreter", "ansible_shell_executable", "ansible_shell_type"})
"""Variables of Ansible that change its modules alone."""
BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
RESERVED = ("names_data", "override_data", "self")
"""Names that pyinfra's inventory does not take for groups."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_RANGE = re.compile(r"\[([0-9]{1,9}):([0-9]{1,9})(?::([0-9]{1,4}))?\]")
_JINJA = re.compile(r"\{\{|\{%|\{#")


@dataclass
class HostGroup:
    """One group."""

    hosts: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    variables: dict[str, object] = field(default_factory=dict)


@dataclass
class HostTree:
    """The content of an inventory file."""

    file: str
    hosts: dict[str, dict[str, object]] = field(default_factory=dict)
    """Host -> its own variables, in the order of the file."""
    groups: dict[str, HostGroup] = field(default_factory=lambda: {ALL: HostGroup()})
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, key: str, text: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(self.file, key, text))

    def group(self, name: str, place: str) -> HostGroup:
        """A group, made where it is first named."""
        if not NAME.fullmatch(name) or name in RESERVED:
            rule = f"must be letters, digits and ._-, and not {', '.join(RESERVED)}"
            self.refuse(place, f"{format_value(name)} is not a group name: {rule}")
        return self.groups.setdefault(name, HostGroup())

    def add_hosts(self, group: HostGroup, pattern: str, variables: Mapping[str, object], place: str) -> None:
        """Add the hosts of a name or a range, such as `gpu[01:50]`, to a group."""
        names = self._expand(pattern, place)
        if len(self.hosts) + len(names) > MOST_HOSTS:
            raise Invalid([*self.problems, Problem(self.file, place, f"a file has at most {MOST_HOSTS} hosts")])
        for name in names:
            own = self.hosts.setdefault(name, {})
            group.hosts.append(name)
            for key, value in variables.items():
                if own.setdefault(key, value) != value or type(own[key]) is not type(value):
                    self.refuse(f"{name}.{key}", "has two values in this file: declare it once")

    def _expand(self, pattern: str, place: str) -> list[str]:
        found = _RANGE.search(pattern)
        if not found:
            if "[" in pattern or ":" in pattern:
                text = f"{format_value(pattern)} is refused: must be a name, or a range such as gpu[01:50]; "
                self.refuse(place, f"{text}a port is the variable ansible_port")
                return []
            return [pattern]
        first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if first > last or not step or (last - first) // step >= MOST_HOSTS:
            text = f"{format_value(pattern)} is refused: a range begins with its lowest number and has at most"
            self.refuse(place, f"{text} {MOST_HOSTS} hosts")
            return []
        width = len(found[1]) if found[1].startswith("0") else 0
        names = (f"{number:0{width}d}" for number in range(first, last + 1, step))
        before, after = pattern[: found.start()], pattern[found.end() :]
        if "[" in after:
            self.refuse(place, f"{format_value(pattern)} is refused: one range per name")
            return []
        return [f"{before}{number}{after}" for number in names]


def rig_entries(
    tree: HostTree, group: str, ignore: Collection[str], known: Collection[str]
) -> tuple[dict[str, dict[str, object]], dict[str, list[str]]]:
    """The keys of each rig, as `hosts()` takes them, and the hosts of each group.

    Args:
        tree: The content of the file.
        group: The group whose hosts are rigs.
        ignore: Variables of other programs.
        known: Keys of a rig.

    Raises:
        Invalid: with every mistake found.
    """
    parents = _find_parents(tree)
    for name in [name for name in tree.groups if name not in (ALL, UNGROUPED) and not parents.get(name)]:
        parents[name] = [ALL]
    ancestors = {name: frozenset(_climb(tree, name, parents)) for name in tree.groups}
    memberships: dict[str, list[str]] = {name: [] for name in tree.hosts}
    for name, one in tree.groups.items():
        for host in one.hosts:
            memberships[host].append(name)
    if group not in tree.groups:
        raise Invalid([*tree.problems, Problem(tree.file, "group", describe_unknown("group", group, tree.groups))])
    within = {
        host: frozenset({ALL}.union(*({one} | ancestors[one] for one in memberships[host]))) for host in tree.hosts
    }
    members: dict[str, list[str]] = {name: [] for name in tree.groups}
    for host, names in within.items():
        for name in names:
            members[name].append(host)
    for name in [name for name, one in tree.groups.items() if one.variables and not members[name]]:
        others = [one for one in tree.groups if members[one]]
        tree.refuse(name, f"the group has variables and no hosts{suggestion(name, others)}")
    used = frozenset().union(*(within[host] for host in members[group]))
    keys = {name: _translate(tree, name, tree.groups[name].variables, ignore, known) for name in sorted(used)}
    inherited = {names: _inherit(tree, names, keys, ancestors) for names in {within[host] for host in members[group]}}
    entries = {
        host: inherited[within[host]] | _translate(tree, host, own, ignore, known)
        for host, own in tree.hosts.items()
        if group in within[host]
    }
    if not entries and not tree.problems:
        tree.refuse("" if group == ALL else group, "no hosts")
    if tree.problems:
        raise Invalid(sorted(set(tree.problems))[:MOST_PROBLEMS])
    return entries, members


def _find_parents(tree: HostTree) -> dict[str, list[str]]:
    parents: dict[str, list[str]] = {}
    for name, one in [*tree.groups.items()]:
        for child in one.children:
            if child not in tree.groups:
                tree.refuse(f"{name}.children", describe_unknown("group", child, tree.groups))
            elif child == ALL:
                tree.refuse(f"{name}.children", f'"{ALL}" contains all groups, and is in none')
            else:
                parents.setdefault(child, []).append(name)
    return parents


def _climb(tree: HostTree, name: str, parents: Mapping[str, list[str]]) -> Iterator[str]:
    """The groups that a group is in, directly or not."""
    seen: set[str] = set()
    level = parents.get(name, [])
    for _ in range(DEEPEST):
        level = [one for one in dict.fromkeys(level) if one not in seen]
        if name in level:
            tree.refuse(f"{name}.children", "the group contains itself")
            return
        seen |= {*level}
        yield from level
        level = [above for one in level for above in parents.get(one, ())]
    if level:
        tree.refuse(f"{name}.children", f"groups are nested more than {DEEPEST} levels deep")


def _inherit(
    tree: HostTree,
    within: Iterable[str],
    keys: Mapping[str, Mapping[str, object]],
    ancestors: Mapping[str, frozenset[str]],
) -> dict[str, object]:
    """Keys that groups give to a host: an inner group's instead of an outer one's."""
    found: dict[str, object] = {}
    named = sorted(name for name in within if keys[name])
    for key in dict.fromkeys(key for name in named for key in keys[name]):
        givers = [name for name in named if key in keys[name]]
        inner = [name for name in givers if not any(name in ancestors[other] for other in givers)]
        values = [keys[name][key] for name in inner]
        if any(value != values[0] or type(value) is not type(values[0]) for value in values):
            text = f"has another value in {' and '.join(inner[1:])}, neither inside the other: declare it for the hosts"
            tree.refuse(f"{inner[0]}.{key}", text)
        found[key] = values[0]
    return found


def _translate(
    tree: HostTree, owner: str, variables: Mapping[str, object], ignore: Collection[str], known: Collection[str]
) -> dict[str, object]:
    """Variables of a host or group as keys of a rig."""
    found: dict[str, object] = {}
    for name, value in variables.items():
        if name in ignore or name in LOCAL:
            continue
        place, key = f"{owner}.{name}", CONNECTION.get(name, name)
        for inner, text in _find_evaluated(place, value):
            tree.refuse(inner, text)
        if name in FIXED:
            if value not in FIXED[name]:
                allowed = " or ".join(FIXED[name])
                tree.refuse(place, f"{format_value(value, name)} is refused: Rigwright connects with {allowed}")
            continue
        if "password" in name or name.endswith("_pass"):
            tree.refuse(place, "unknown key; passwords are not supported: use an SSH key and sudo without a password")
            continue
        if name not in CONNECTION and name not in known:
            also = CONNECTION if name.startswith("ansible") else known
            tree.refuse(place, f"unknown key{suggestion(name, also)}{_ignore_hint(name)}")
            continue
        if key in found:
            tree.refuse(place, f"{key} is declared twice, under two names")
        if name == "ansible_become" and isinstance(value, str):
            value = BOOLEANS.get(value.lower(), value)
        found[key] = value
    return found


def _ignore_hint(name: str) -> str:
    if not re.fullmatch(r"\w{1,64}", name):
        return ""
    return f'; a variable of other programs is named in a Python inventory: hosts_of_file(..., ignore=["{name}"])'


def _find_evaluated(place: str, value: Any) -> Iterator[tuple[str, str]]:
    """Values that Ansible would evaluate or decrypt."""
    if isinstance(value, str) and _JINJA.search(value):
        yield place, "contains a Jinja expression, which only Ansible evaluates: write the value itself"
    elif isinstance(value, dict):
        for key, inner in value.items():
            if str(key).startswith("__ansible_"):
                yield place, "is encrypted by Ansible Vault: a secret is declared as a file or a command"
            yield from _find_evaluated(f"{place}.{str(key)[:80]}", inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _find_evaluated(f"{place}[{index}]", inner)
