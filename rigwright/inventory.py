"""Inventories: ordinary pyinfra inventories whose host data is the rig.

    from rigwright.inventory import hosts

    rigs = hosts({
        "rig3090": {
            "ssh_hostname": "192.0.2.7", "ssh_user": "ops", "_sudo": True,
            "cards": ["rtx-3090"],
            "instances": {"chat": {"variant": "llamacpp/65k", "cards": [0], "port": 8020}},
        },
    })

Keys that start with `ssh_` or `_` are pyinfra's; all others are `rigwright.declaration.rig.RigEntry`'s fields.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rigwright.declaration import host_key
from rigwright.declaration.catalog import Catalog
from rigwright.declaration.entry import RigEntry
from rigwright.declaration.instances import Making
from rigwright.declaration.resolve import parse
from rigwright.declaration.rig import Rig
from rigwright.patches import patch
from rigwright.problems import WORDS, Invalid, Problem, shown, suggestion
from rigwright.supply.lock import Lock
from rigwright.types import Name

ROOT = Path(__file__).resolve().parent.parent
_MAKING: ContextVar[Making] = ContextVar("making", default="")
_TOLERATED: ContextVar[list[Problem] | None] = ContextVar("tolerated", default=None)


def _word(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.:@][A-Za-z0-9_.:@-]*", value) is not None


def _path(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable() and not value.startswith("-")


def _truth(value: object) -> bool:
    return isinstance(value, bool)


def _port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def _checking(value: object) -> bool:
    return value in ("yes", "no", "ask", "accept-new", "off")


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100


# pyinfra's keys (its documentation, "SSH connector") that an inventory may use, what each takes, and that in words; of
# ours is `ssh_host_key`. Passwords are not among them: use a key.
CONNECTION: dict[str, tuple[Callable[[object], bool], str]] = {
    "ssh_hostname": (_word, "a host name or address, not beginning with a dash"),
    "ssh_port": (_port, "a port number"),
    "ssh_user": (_word, "a user name, not beginning with a dash"),
    "ssh_key": (_path, "a path"),
    "ssh_host_key": (host_key.valid, host_key.RULE),
    "ssh_config_file": (_path, "a path"),
    "ssh_known_hosts_file": (_path, "a path"),
    "ssh_strict_host_key_checking": (_checking, "yes, no, ask, accept-new or off"),
    "ssh_forward_agent": (_truth, "True or False"),
    "ssh_connect_retries": (_count, "a number up to 100"),
    "_sudo": (_truth, "True or False"),
}

HostGroup = list[tuple[str, dict[str, object]]]


def hosts(entries: object, **shared: object) -> HostGroup:
    """Validate rigs while the inventory loads and return them as a pyinfra group.

    Args:
        entries: Rig name -> its keys.
        **shared: Keys that every one of them has, unless it says otherwise: mirrors, a proxy, a user.

    Raises:
        SystemExit: something is wrong; its text says all of it. Only this exception ends pyinfra with a clean
            text and exit code 1 before it connects.
    """
    file = str(Path(sys._getframe(1).f_code.co_filename).resolve())
    # its spinner and a progress line of ours would write over each other
    os.environ.setdefault("PYINFRA_PROGRESS", "off")
    try:
        return _group(file, entries, shared)
    except Invalid as error:
        raise SystemExit(str(error)) from None


def connecting(file: str, name: str, connection: dict[str, object]) -> dict[str, object]:
    """Host data that has pyinfra log in only where the host's key is the declared one, or in the user's known_hosts.

    Args:
        file: The inventory; empty before there is one.
        name: The rig.
        connection: Keys of CONNECTION, found valid.
    """
    declared = connection.get("ssh_host_key")
    expected = host_key.parse(str(declared)) if host_key.valid(declared) else None
    factory = partial(_transport, expected=expected, file=file, name=name)
    # the declared key alone counts, wherever the rig's address leads today
    known = {"ssh_known_hosts_file": os.devnull} if expected else {}
    return {
        "ssh_strict_host_key_checking": "yes",
        **connection,
        **known,
        "ssh_paramiko_connect_kwargs": {"transport_factory": factory},
    }


def _transport(sock: object, **options: object) -> object:
    """What pyinfra connects with, its `transport_factory`: found by name, so that an inventory needs nothing of it."""
    return import_module("roles.transport").checked(sock, **options)


def _group(file: str, entries: object, shared: dict[str, object]) -> HostGroup:
    if not isinstance(entries, dict) or not entries:
        raise Invalid([Problem(file, "hosts()", "must be given a table of at least one rig: name -> keys")])
    group: HostGroup = []
    problems: list[Problem] = []
    for name, own in entries.items():
        if not isinstance(own, dict):
            problems.append(Problem(file, str(name), f"{shown(own)} is refused: must be a table of keys"))
            continue
        entry = {**shared, **own}
        connection = {key: value for key, value in entry.items() if str(key).startswith(("ssh_", "_"))}
        declared = {key: value for key, value in entry.items() if key not in connection}
        problems += _refuse_connection(file, name, connection, declared)
        rig = {"name": name, "inventory": file, "entry": declared}
        try:
            load(rig)
        except Invalid as error:
            problems += _refused(error)
        group.append((name, {**connecting(file, str(name), connection), "rig": rig}))
    problems += _refuse_twins(file, group)
    if problems:
        raise Invalid(problems)
    return group


def _refuse_twins(file: str, group: HostGroup) -> list[Problem]:
    """Refuse two rigs that are one machine: each deploy would undo the other's."""
    there: dict[tuple[str, ...], str] = {}
    found = []
    for name, data in group:
        # a name may be another machine's in another configuration file
        place = {"ssh_hostname": name, "ssh_port": 22, "ssh_config_file": ""}
        given = {key: data[key] for key in place if key in data}
        if not all(CONNECTION[key][0](value) for key, value in given.items()):
            continue
        words = tuple(str(value) for value in (place | given).values())
        if words in there:
            found.append(Problem(file, f"{name}.ssh_hostname", f"{words[0]} is already the machine of {there[words]}"))
        there.setdefault(words, name)
    return found


def _refuse_connection(
    file: str, name: str, connection: dict[str, object], declared: dict[str, object]
) -> list[Problem]:
    found = []
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        detail = error.errors()[0]
        rule = WORDS.get(detail["type"], detail["msg"].removeprefix("Value error, "))
        found.append(Problem(file, str(name) or "''", f"is no name for a rig: must be {rule}"))
    for key, value in connection.items():
        if key not in CONNECTION:
            allowed = {*CONNECTION, *RigEntry.model_fields}
            hint = (
                "; passwords are not among the keys: use an SSH key" if "password" in key else suggestion(key, allowed)
            )
            found.append(Problem(file, f"{name}.{key}", f"unknown key{hint}"))
        elif not CONNECTION[key][0](value):
            found.append(Problem(file, f"{name}.{key}", f"{shown(value)} is refused: must be {CONNECTION[key][1]}"))
    if "ssh_host_key" in connection:
        found += [
            Problem(file, f"{name}.{key}", "does not go with ssh_host_key: that key alone is accepted")
            for key in ("ssh_known_hosts_file", "ssh_strict_host_key_checking")
            if key in connection
        ]
    user = declared.get("service_user", RigEntry.model_fields["service_user"].default)
    if user in ("root", connection.get("ssh_user", "root")):
        found.append(Problem(file, f"{name}.service_user", f"{user!r} is refused: must be a user of the services' own"))
    return found


def layers(inventory: Path, noun: str) -> list[Path]:
    """The folders a rig's catalogue or lock is read from: ours, then the one beside its inventory."""
    ours = ROOT / noun
    beside = inventory.resolve().parent / noun
    return [ours, beside] if beside.is_dir() and beside != ours else [ours]


def load(data: object) -> Rig:
    """The rig that host data describes; read again where a role is given it, for `--data` may have changed it.

    Raises:
        Invalid: with every mistake in it.
    """
    if not (isinstance(data, dict) and {"name", "inventory", "entry"} == set(data)):
        raise Invalid([Problem("host data", "rig", "is not what rigwright.inventory.hosts() made; was it overridden?")])
    inventory = Path(str(data["inventory"]))
    problems: list[Problem] = []
    catalog, lock = Catalog(), Lock({})
    try:
        catalog = Catalog.load(layers(inventory, "catalog"))
    except Invalid as error:
        problems += error.problems
    try:
        catalog = catalog.model_copy(update={"patches": patch.load(layers(inventory, "patches"))})
    except Invalid as error:
        problems += error.problems
    try:
        lock = _lock(layers(inventory, "locks"), catalog)
    except Invalid as error:
        problems += error.problems
    if problems:
        raise Invalid(problems)
    if _MAKING.get() == "lock":
        catalog = catalog.model_copy(update={"inputs": {}})
    own = frozenset(CONNECTION)
    return parse(str(inventory), str(data["name"]), data["entry"], catalog, lock, own, making=_MAKING.get())


@contextmanager
def making(what: Making) -> Iterator[None]:
    """Load rigs, while the block runs, of which something is only being made.

    Args:
        what: `lock`: as if every input of their catalogue were locked. What such a rig says of its mirrors and names is
            right; hashes and sizes are nobody's. `bundle`: without their bundle, and whether they reach anything.
    """
    token = _MAKING.set(what)
    try:
        yield
    finally:
        _MAKING.reset(token)


@contextmanager
def tolerating() -> Iterator[list[Problem]]:
    """Have `hosts()` return, while the block runs, rigs whose declaration is refused, too: who only looks reaches their
    hosts all the same. What is wrong with them is in the list that is yielded, and `load` says it again. What is wrong
    with connections, and with the table of rigs itself, is refused as ever.
    """
    found: list[Problem] = []
    token = _TOLERATED.set(found)
    try:
        yield found
    finally:
        _TOLERATED.reset(token)


def _refused(error: Invalid) -> list[Problem]:
    """What of a rig's mistakes refuses it."""
    tolerated = _TOLERATED.get()
    if tolerated is None:
        return error.problems
    tolerated += error.problems
    return []


def _lock(folders: list[Path], catalog: Catalog) -> Lock:
    if _MAKING.get() != "lock":
        return Lock.load(folders)
    lock = Lock({})
    for folder in folders:
        with suppress(Invalid):  # what is unreadable is locked anew, or `rigwright lock` complains itself
            readable = Lock.load([folder])
            lock = Lock(lock.artefacts | readable.artefacts, lock.groups | readable.groups)
    rows = {name: one.provisional(name) for name, one in catalog.inputs.items() if not one.grouped}
    groups = {name: (one.provisional(name),) for name, one in catalog.inputs.items() if one.grouped}
    return Lock(lock.artefacts | rows, lock.groups | groups)
