"""The settings of Docker's daemon: ours are merged into those that are there, and what was before comes back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any, Literal

from rigwright.host.script_output import free_text
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry

Options = dict[str, Any]
Path = tuple[str, ...]
PATH = "/etc/docker/daemon.json"
LARGEST = 1 << 20  # bytes of it
DEEPEST = 32  # tables in tables; dockerd's own options have four
# The options that a daemon reads again on a reload (docs.docker.com/reference/cli/dockerd, "Configuration reload
# behavior"). Features are among them, and that of CDI counts from the daemon's start alone.
RELOADED = frozenset(
    {
        *("debug", "labels", "live-restore", "max-concurrent-downloads", "max-concurrent-uploads"),
        *("max-download-attempts", "default-runtime", "runtimes", "insecure-registries", "registry-mirrors"),
        "shutdown-timeout",
    }
)


class UnreadableDaemonConfig(ValueError):
    """The file is no table of options."""


@dataclass(frozen=True)
class DaemonRecord:
    """The options that Rigwright has set, and their earlier values."""

    set: dict[Path, Any] = field(default_factory=dict)
    was: dict[Path, Any] = field(default_factory=dict)
    """Of each of these the value before; those that had none are not in it."""
    absent: bool = False
    """Whether there was no file."""

    @property
    def names(self) -> frozenset[str]:
        """The options that these are, or are parts of."""
        return frozenset(path[0] for path in self.set)

    def merge_previous(self, before: DaemonRecord) -> DaemonRecord:
        """This one, with what was set before and is no more: until it is gone it has to be known as ours."""
        return DaemonRecord(before.set | self.set, before.was | self.was, self.absent)

    def render(self) -> str:
        """As it is written down."""
        rows = [
            {"path": list(path), "set": value, **({"was": self.was[path]} if path in self.was else {})}
            for path, value in sorted(self.set.items())
        ]
        return json.dumps({"absent": self.absent, "options": rows}, indent=2) + "\n"


def parse_record(text: str) -> DaemonRecord | None:
    """Read what was written down; None where it cannot be."""
    try:
        data = _parse_json(text)
        rows = {_parse_path(row["path"]): row for row in data["options"]}
        was = {path: row["was"] for path, row in rows.items() if "was" in row}
        return DaemonRecord({path: row["set"] for path, row in rows.items()}, was, data["absent"] is True)
    except (ValueError, KeyError, TypeError):
        return None


def _parse_path(names: Any) -> Path:
    if not isinstance(names, list) or not 0 < len(names) <= DEEPEST or not all(isinstance(name, str) for name in names):
        raise ValueError("names of tables, then a key in the last")
    return tuple(names)


def parse_options(text: str | None) -> Options:
    """The options of a daemon.json; none without a file, or in an empty one.

    Raises:
        UnreadableDaemonConfig: it has none; the text says why.
    """
    # dockerd takes a byte order mark, too
    plain = (text or "").removeprefix("\ufeff")
    if not plain.strip():
        return {}
    found = _parse_json(plain)
    if not isinstance(found, dict):
        raise UnreadableDaemonConfig("is not a table of options")
    return found


def _parse_json(text: str) -> Any:
    """JSON as dockerd has it: none of what Python takes beside it, and nothing that is lost by being written again.

    Raises:
        UnreadableDaemonConfig: it is invalid.
    """
    try:
        found = json.loads(text, object_pairs_hook=_table, parse_constant=_number, parse_float=_number)
    except UnreadableDaemonConfig:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableDaemonConfig(f"is not JSON ({str(error)[:80]})") from None
    level = [found]
    for _ in range(DEEPEST):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [value for values in inner for value in values]
    if level:
        raise UnreadableDaemonConfig(f"is nested more than {DEEPEST} deep")
    return found


def _table(pairs: list[tuple[str, Any]]) -> Options:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise UnreadableDaemonConfig(f"has {free_text(twice)[:80]} twice")
    return found


def _number(text: str) -> float:
    if not isfinite(found := float(text)):
        raise UnreadableDaemonConfig(f"is not JSON: it has {'NaN' if isnan(found) else 'Infinity'}")
    return found


def required_options(cards: tuple[Card, ...], containers: ContainersEntry | None) -> Options:
    """The options that a rig needs of Docker's daemon."""
    if containers is None or "docker" not in containers.engines:
        return {}
    ours: Options = deepcopy(containers.daemon)
    if cards:
        # for commands that still ask for it by name: the default of a plain `docker run` stays
        ours["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
        ours["features"] = {"cdi": True}
    return ours


def merge_options(
    there: Options, ours: Options, before: DaemonRecord, absent: bool = False
) -> tuple[Options, DaemonRecord]:
    """The target options of the daemon, and the record of them.

    Options that Rigwright has set before and no longer asks for return to their earlier values, unless another program
    has changed them since.

    Args:
        there: The present options.
        ours: The options that we ask for.
        before: Our record.
        absent: Whether there is no file.
    """
    made, leaves = deepcopy(there), dict(_iterate_leaves(ours))
    kept: dict[Path, Any] = {}
    for path, value in before.set.items():
        if path in leaves:
            if path in before.was:
                kept[path] = before.was[path]
        elif _get(made, path) == (True, value):
            _put(made, path, (path in before.was, before.was.get(path)))
    for path, value in leaves.items():
        is_there, now = _get(made, path)
        if path not in before.set and is_there:
            kept[path] = now
        _put(made, path, (True, value))
    first = not before.set
    return made, DaemonRecord(leaves, kept, absent if first else before.absent)


def is_untouched(there: Options, found: Options, before: DaemonRecord) -> bool:
    """Whether options are those that were found, with Rigwright's over them: unchanged since.

    Args:
        there: The present options.
        found: The options from before us.
        before: Our record.
    """
    made = deepcopy(found)
    for path, value in before.set.items():
        _put(made, path, (True, value))
    return made == there


def render_daemon_json(made: Options) -> str:
    """A daemon.json."""
    return json.dumps(made, indent=4) + "\n"


def choose_reload_action(
    in_force: Options | None, made: Options, ours: Iterable[str]
) -> Literal["", "reload", "restart"]:
    """The step by which a daemon reads its options. The operator decides when the daemon reads other options.

    Args:
        in_force: Those that it has; None if unknown.
        made: Those that it is to have.
        ours: Names of those that we have set, or set no more.
    """
    if in_force is None:
        return "restart"
    moved = {name for name in ours if in_force.get(name) != made.get(name)}
    if not moved:
        return ""
    return "reload" if moved <= RELOADED else "restart"


def _iterate_leaves(table: Options, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The settings of a table: nested tables are followed, all else is set as a whole."""
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _iterate_leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _get(table: Options, path: Path) -> tuple[bool, Any]:
    """Whether there is a value at a path, and it."""
    at: Any = table
    for name in path:
        if not isinstance(at, dict) or name not in at:
            return False, None
        at = at[name]
    return True, at


def _put(table: Options, path: Path, value: tuple[bool, Any]) -> None:
    """Set a value, or take it away with the tables that are empty then."""
    (name, *rest), (there, new) = path, value
    if rest:
        inner = table.get(name)
        if not isinstance(inner, dict):
            if not there:
                return
            inner = table[name] = {}
        _put(inner, tuple(rest), value)
        if not inner and not there:
            del table[name]
    elif there:
        table[name] = new
    else:
        table.pop(name, None)
