"""Inventories: ordinary pyinfra inventories whose host data is the rig.

    from rigwright.inventory import hosts

    rigs = hosts({
        "rig3090": {
            "ssh_hostname": "192.0.2.7", "ssh_user": "ops", "_sudo": True,
            "cards": ["rtx-3090"],
            "instances": {"chat": {"variant": "llamacpp/65k", "cards": [0], "port": 8020}},
        },
    })

Keys that start with `ssh_` or `_` are pyinfra's; all others are `rigwright.model.inventory_schema.RigEntry`'s fields.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rigwright.declaration.catalog_loader import InvalidFlags, load_catalog
from rigwright.declaration.connection import (
    KEYS,
    find_connection_problems,
    find_ssh_port_conflicts,
    is_host_key,
    parse_host_key,
)
from rigwright.declaration.duplicate_rigs import find_duplicates
from rigwright.declaration.entry_validation import validate_entry
from rigwright.declaration.host_data import EARLIER_GROUPS, MADE, find_foreign_data
from rigwright.declaration.inventory_source import find_source_problems
from rigwright.declaration.lock_problems import add_lock_repair, find_unlocked_problems, is_unlocked
from rigwright.declaration.rig_resolution import resolve_rig
from rigwright.declaration.shared_key_problems import extract_shared_problems
from rigwright.declaration.shared_resolution import read_once, resolve_once, share_resolutions
from rigwright.declaration.signature_resolution import find_signer_differences
from rigwright.model.catalog_schema import Catalog
from rigwright.model.fleet_schema import FleetLinks
from rigwright.model.inventory_feature import LoadPurpose
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.rig import Rig
from rigwright.monitoring.scrape_targets import parse_scrape_targets, scrape_target_of
from rigwright.monitoring.validation import find_unreachable_boxes
from rigwright.patches import patch
from rigwright.problems import Invalid, Problem, describe_violated_rule, format_value
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from rigwright.supply.lock_inputs import is_stand_in, provisional_lock
from rigwright.validated_types import Name

_MAKING: ContextVar[LoadPurpose] = ContextVar("making", default="")
_TOLERATED: ContextVar[list[Problem] | None] = ContextVar("tolerated", default=None)


HostEntry = tuple[str, dict[str, object]]
HostGroup = list[HostEntry]
_NAME: TypeAdapter[str] = TypeAdapter(Name)
TABLE = f'{{"rig1": {RigEntry.EXAMPLE}}}'
RIG_KEYS = frozenset({*KEYS, *RigEntry.model_fields})
"""Keys of a rig: of its connection, and of its entry."""


def hosts(entries: object, **shared: object) -> HostGroup:
    """Validate rigs while the inventory loads and return them as a pyinfra group.

    Args:
        entries: Rig name -> its keys.
        **shared: Keys that every one of them has, unless it says otherwise: mirrors, a proxy, a user.

    Raises:
        SystemExit: something is wrong; its text says all of it. Only this exception ends pyinfra with a clean
            text and exit code 1 before it connects.
    """
    caller = sys._getframe(1)
    file = str(Path(caller.f_code.co_filename).resolve())
    # of a module that inventories import, what an earlier one has made is still there
    earlier = caller.f_globals.setdefault(EARLIER_GROUPS, []) if caller.f_globals.get("__spec__") is None else []
    group = make_group(file, entries, shared, earlier)
    earlier += group
    return group


def make_group(
    file: str, entries: object, shared: dict[str, object] | None = None, earlier: Sequence[HostEntry] = ()
) -> HostGroup:
    """The group that `hosts()` makes for an inventory.

    Args:
        file: The inventory.
        entries: Rig name -> its keys.
        shared: Keys that every one of them has.
        earlier: The rigs of its earlier groups.

    Raises:
        SystemExit: as `hosts`.
    """
    # its spinner and a progress line of ours would write over each other
    os.environ.setdefault("PYINFRA_PROGRESS", "off")
    try:
        with share_resolutions():
            return _load_group(file, entries, shared or {}, earlier)
    except Invalid as error:
        raise SystemExit(str(error)) from None
    except RecursionError:
        raise SystemExit(f"{file}: hosts(): is nested too deeply, or contains itself") from None


def connection_data(file: str, name: str, connection: dict[str, object]) -> dict[str, object]:
    """Host data that has pyinfra log in only where the host's key is the declared one, or in the user's known_hosts.

    Args:
        file: The inventory; empty before there is one.
        name: The rig.
        connection: Keys of `rigwright.declaration.connection`, found valid.
    """
    given = connection.get("ssh_host_key")
    expected = parse_host_key(str(given)) if is_host_key(given) else None
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
    """pyinfra's transport, its `transport_factory`: found by name, so that an inventory needs nothing of it."""
    return import_module("roles.ssh_transport").pinned_transport(sock, **options)


def _load_group(file: str, entries: object, shared: dict[str, object], earlier: Sequence[HostEntry]) -> HostGroup:
    if not isinstance(entries, dict) or not entries:
        raise Invalid(
            [Problem(file, "hosts()", f"must be a table with at least one rig: name -> keys, such as {TABLE}")]
        )
    group: HostGroup = []
    found: dict[str, list[Problem]] = {"": find_source_problems(file, RIG_KEYS)}
    rigs: dict[str, Rig] = {}
    for name, own in entries.items():
        problems = found.setdefault(str(name), [])
        if not isinstance(own, dict):
            is_key = isinstance(name, str) and name in RIG_KEYS
            hint = f'; {name} is a key of a rig: hosts({{"rig1": {{"{name}": ...}}}})' if is_key else ""
            text = f"{format_value(own, str(name))} is refused: must be a table of keys{hint}"
            problems.append(Problem(file, str(name), text))
            continue
        entry = {**shared, **own}
        connection = {key: value for key, value in entry.items() if str(key).startswith(("ssh_", "_"))}
        others = {key: value for key, value in entry.items() if key not in connection}
        problems += _refuse_names(file, name, connection, others)
        problems += find_connection_problems(file, str(name), connection, RigEntry.model_fields, here=not _MAKING.get())
        rig = {"name": name, "inventory": file, "entry": others}
        try:
            rigs[str(name)] = load_rig(rig)
        except Invalid as error:
            problems += _collect_refusals(error)
        problems += find_ssh_port_conflicts(file, str(name), connection, others)
        group.append((name, {**connection_data(file, str(name), connection), "rig": rig}))
        MADE[file, str(name)] = dict(group[-1][1])
    links, of_links = _link_fleet(file, group, rigs)
    of_shared = extract_shared_problems(file, entries, shared, found)
    every = [*of_shared, *(one for several in found.values() for one in several)]
    if (
        every := every
        + find_duplicates(file, group, earlier)
        + find_unreachable_boxes(file, rigs)
        + of_links
        + _find_key_problems(rigs)
        + find_signer_differences(file, rigs, earlier, load_rig)
    ):
        raise Invalid(every)
    _share_scrape_targets(group, rigs)
    for name, data in group:
        if name in links:
            told: Any = data["rig"]
            told["fleet"] = links[name].model_dump(mode="json")
    return group


def _link_fleet(file: str, group: HostGroup, rigs: dict[str, Rig]) -> tuple[Mapping[str, FleetLinks], list[Problem]]:
    """The connections between rigs, and the mistakes in them that refuse the rigs."""
    gateways = [rig.gateway for rig in rigs.values() if rig.gateway]
    # a refused rig may have such a gateway, too
    if len(rigs) == len(group) and not any(one.uses_other_boxes or one.virtual_address for one in gateways):
        return {}, []
    # few inventories have such a gateway
    from rigwright.gateway.fleet_links import link_boxes

    links, problems = link_boxes(file, rigs, {str(name): data["rig"]["entry"] for name, data in group})  # type: ignore[index]
    return links, _collect_refusals(Invalid(problems))


def _find_key_problems(rigs: dict[str, Rig]) -> list[Problem]:
    """Mistakes in the keys files of gateways."""
    if not any(one.gateway for one in rigs.values()):
        return []
    # few rigs have one
    from rigwright.gateway.key_models import find_unknown_key_models

    return find_unknown_key_models(
        (rig.inventory, rig.gateway, [one.model for one in rig.variants])
        for rig in rigs.values()
        if rig.gateway and rig.gateway.serves_clients
    )


def _share_scrape_targets(group: HostGroup, rigs: dict[str, Rig]) -> None:
    """Have the rig that asks all others know of them: each is declared by itself."""
    watched = [
        found.model_dump(mode="json")
        for one in rigs.values()
        if (found := scrape_target_of(one.name, one.cards, one.instances, one.gateway, one.monitoring))
    ]
    for name, data in group:
        told: Any = data["rig"]
        # one that is refused, and only looked at, gets none
        if (rig := rigs.get(name)) and rig.monitoring and rig.monitoring.server:
            told["watched"] = watched


def _refuse_names(
    file: str, name: object, connection: Mapping[str, object], declared: Mapping[str, object]
) -> list[Problem]:
    """Refuse names that no rig has, or that belong to another program."""
    found = []
    try:
        _NAME.validate_python(name)
    except ValidationError as error:
        found.append(
            Problem(
                file,
                format_value(name) if name == "" else str(name),
                f"is not a valid rig name: must be {describe_violated_rule(error)}",
            )
        )
    user = declared.get("service_user", RigEntry.model_fields["service_user"].default)
    if user in ("root", connection.get("ssh_user", "root")):
        found.append(
            Problem(file, f"{name}.service_user", f"{format_value(user)} is refused: must be a dedicated user")
        )
    return found


def layer_folders(inventory: Path, noun: str) -> list[Path]:
    """The folders a rig's catalogue or lock is read from: ours, then the one beside its inventory."""
    ours = ROOT / noun
    beside = inventory.resolve().parent / noun
    return [ours, beside] if beside.is_dir() and beside != ours else [ours]


def _find_folder_problems(inventory: Path, noun: str) -> list[Problem]:
    """Refuse a file, or a link to nothing, in the place of a folder next to an inventory."""
    beside = inventory.resolve().parent / noun
    if beside.is_dir() or not os.path.lexists(beside):
        return []
    kind = "a file" if beside.exists() else f"a link to {beside.readlink()}, which does not exist"
    text = f"is not a folder: {kind}; {noun}/ next to an inventory overrides what Rigwright ships"
    return [Problem(str(beside), "", text)]


def load_rig(data: Any) -> Rig:
    """The rig that host data describes; read again where a role is given it, for `--data` may have changed it.

    Raises:
        Invalid: with every mistake in it.
    """
    if problem := find_foreign_data(data):
        raise Invalid([problem])
    inventory, name = str(data["inventory"]), str(data["name"])
    declaration = (inventory, _MAKING.get(), data["entry"], data.get("watched", ()), data.get("fleet"))
    rig = resolve_once(name, declaration, partial(_resolve, inventory, name, *declaration[2:]))
    return rig if rig.name == name else replace(rig, name=name)


def _resolve(inventory: str, name: str, entry: Any, watched: Any, fleet: Any) -> Rig:
    making, own = _MAKING.get(), frozenset(KEYS)
    file = Path(inventory)
    catalog, lock, problems, flag_problems, faulty_lock = read_once((inventory, making), partial(_load_sources, file))
    if faulty_lock:
        raise Invalid([*problems, *flag_problems, *find_unlocked_problems(file, name, entry, catalog, own)])
    if problems:
        # the names of a faulty catalogue are unknown; all else of the entry is judged
        raise Invalid([*problems, *flag_problems, *validate_entry(inventory, name, entry, own).problems])
    targets = parse_scrape_targets(inventory, name, watched)
    purpose: LoadPurpose = "lock" if making == "audit" else making
    try:
        rig = resolve_rig(inventory, name, entry, catalog, lock, own, making=purpose, watched=targets)
    except Invalid as error:
        # an unlocked input hides mistakes that need no lock
        unlocked = not making and is_unlocked(error.problems)
        others = find_unlocked_problems(file, name, entry, catalog, own) if unlocked else []
        raise Invalid([*flag_problems, *error.problems, *others]) from None
    if flag_problems:
        raise Invalid(flag_problems)
    if fleet is None:
        return rig
    from rigwright.gateway.fleet_links import attach_links, parse_links

    return attach_links(rig, parse_links(inventory, name, fleet))


def _load_sources(inventory: Path) -> tuple[Catalog, Lock, list[Problem], list[Problem], bool]:
    """The catalogue and lock of an inventory, their mistakes, those in flags of variants, and whether only the lock has
    mistakes.
    """
    problems = [fault for noun in ("catalog", "locks", "patches") for fault in _find_folder_problems(inventory, noun)]
    catalog, lock = Catalog(), Lock({})
    flag_problems: list[Problem] = []
    faulty_lock = False
    try:
        catalog = load_catalog(layer_folders(inventory, "catalog"))
    except InvalidFlags as error:
        catalog, flag_problems = error.catalog, error.problems
    except Invalid as error:
        problems += error.problems
    try:
        catalog = catalog.model_copy(update={"patches": patch.load_patches(layer_folders(inventory, "patches"))})
    except Invalid as error:
        problems += error.problems
    try:
        lock = _load_lock(layer_folders(inventory, "locks"), catalog)
    except Invalid as error:
        faulty_lock = not problems
        problems += add_lock_repair(error.problems, inventory)
    if faulty_lock:
        return catalog, lock, problems, flag_problems, True
    if _MAKING.get() == "lock":
        catalog = catalog.model_copy(update={"inputs": {}})
    elif _MAKING.get() == "audit":
        # rows that are locked are held against their inputs as ever; stand-ins answer none
        real = {name: one for name, one in catalog.inputs.items() if not is_stand_in(lock.rows(name))}
        catalog = catalog.model_copy(update={"inputs": real})
    return catalog, lock, problems, flag_problems, False


@contextmanager
def load_for(what: LoadPurpose) -> Iterator[None]:
    """Load rigs, while the block runs, of which something is only being made.

    Args:
        what: `lock`: as if every input of their catalogue were locked. Mirrors and names of such a rig are right; its
            hashes and sizes are placeholders. `bundle`: without their bundle, and whether they reach anything. `audit`:
            as `lock`, but inputs that are locked keep their rows.
    """
    token = _MAKING.set(what)
    try:
        yield
    finally:
        _MAKING.reset(token)


@contextmanager
def tolerate_problems() -> Iterator[list[Problem]]:
    """Have `hosts()` return, while the block runs, rigs whose declaration is refused, too: verbs that only read reach
    their hosts all the same. Their problems are in the list that is yielded, and `load` reports them again. Problems of
    connections, and of the table of rigs itself, are refused as ever.
    """
    found: list[Problem] = []
    token = _TOLERATED.set(found)
    try:
        yield found
    finally:
        _TOLERATED.reset(token)


def _collect_refusals(error: Invalid) -> list[Problem]:
    """The mistakes of a rig that refuse it."""
    tolerated = _TOLERATED.get()
    if tolerated is None:
        return error.problems
    tolerated += error.problems
    return []


def _load_lock(folders: list[Path], catalog: Catalog) -> Lock:
    if _MAKING.get() not in ("lock", "audit"):
        return Lock.load(folders)
    lock = Lock({})
    for folder in folders:
        with suppress(Invalid):  # an unreadable lock is made anew, or `rigwright lock` complains itself
            readable = Lock.load([folder])
            lock = Lock(lock.artefacts | readable.artefacts, lock.groups | readable.groups)
    made = provisional_lock(catalog.inputs)
    if _MAKING.get() == "audit":
        return Lock(made.artefacts | lock.artefacts, made.groups | lock.groups, lock.keys)
    return Lock(lock.artefacts | made.artefacts, lock.groups | made.groups)
