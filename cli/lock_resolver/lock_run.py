"""The steps of `rigwright lock`: read, resolve, write and report, or look and report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cli.lock_resolver import downloads, lock_files, plugin_validation, upstream_changes
from cli.lock_resolver.checkpoint_sources import ModelResolver
from cli.lock_resolver.conda import CondaResolver
from cli.lock_resolver.downloads import declared_origins
from cli.lock_resolver.image_registry import ImageResolver, RegistryLookup, RegistryRepository
from cli.lock_resolver.lock_diff import describe_changes
from cli.lock_resolver.lock_files import LockFolders, LockInput
from cli.lock_resolver.model_hub import HubEndpoint
from cli.lock_resolver.package_index import PackageIndex, index_url
from cli.lock_resolver.patch_validation import PatchValidator, collect_patched
from cli.lock_resolver.resolver import LockResolver
from cli.lock_resolver.third_party_packages import AddressLookup, ContainerPackageResolver, DriverResolver
from cli.lock_resolver.wheels import WheelInspector
from cli.prog_name import with_prog_name
from cli.tables import print_prose
from rigwright.host_inventory import run_inventory
from rigwright.inventory import layer_folders, load_for, load_rig
from rigwright.model import api_keys, download_origins
from rigwright.model.containers.archive_tables import load_container_tables
from rigwright.model.download_origins import HUB_ORIGIN, origin_of
from rigwright.model.inventory_feature import LoadPurpose
from rigwright.model.lock_coverage import describe_mismatch
from rigwright.model.nvidia_tables import load_driver_tables
from rigwright.model.rig import Rig
from rigwright.problems import Invalid, Problem
from rigwright.project_root import IS_CLONE, ROOT
from rigwright.supply import image_manifest
from rigwright.supply.artefact_addresses import artefact_urls
from rigwright.supply.bundle import format_digest, supply_digest
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.lock_inputs import HUB
from roles.weights.host.reach import only_public

# The inputs whose source differs in each operator's network, in addition to repositories of models.
SHIPPED_INPUT_KINDS = ("conda", "image")


class NothingToLock(Exception):
    """There is nothing to work on, or no inventory to do it for; the text says why."""


def write_locks(inventory: Path | None, from_dir: Path | None, refresh: bool) -> int:
    """Lock the inputs beside an inventory, or our own, and print what changed; returns the exit status.

    Args:
        inventory: The source of catalogue and mirrors.
        from_dir: A folder with files that need not be fetched.
        refresh: Whether what is locked already is found again too.

    Raises:
        NothingToLock: there is nothing to lock, or what there is cannot be read.
        Invalid: with everything that could not be resolved.
        OSError: a lock could not be written.
    """
    folders, resolver, rigs = _load_inputs(inventory, from_dir, refresh)
    for problem in folders.unread:
        print_prose(f"{problem}\n  `lock` replaces it", err=True)
    with only_public(declared_origins((rig.network for rig in rigs), resolver.index.url)):
        resolved = resolver.resolve_inputs(folders)
        locked = _rows_by_input(folders, resolved.rows)
        unfit = PatchValidator(resolver).find_problems(collect_patched(rigs, locked))
        looked = plugin_validation.inspect_plugins(resolver, folders, (env for rig in rigs for env in rig.envs), locked)
    if unfit := [*unfit, *looked.problems]:
        raise Invalid(unfit)
    rows = {
        name: [one.model_copy(update={"machine_code": looked.code.get(one.sha256, one.machine_code)}) for one in found]
        for name, found in resolved.rows.items()
    }
    new = [row for found in rows.values() for row in found]
    texts = folders.render_files(rows, resolved.keys)
    if not texts and not folders.locked:
        raise NothingToLock(f"{folders.locks.parent / 'catalog'}: no inputs, nothing to lock")
    folders.write_files(texts)
    for line in describe_changes(folders.all_rows, new) or ["no change"]:
        print_prose(line)
    for line in describe_unused_plugins(rigs, rows):
        print_prose(line, err=True)
    if inventory:
        found = format_digest(supply_digest(Lock.load(layer_folders(inventory, "locks")), None))
        print_prose(f"the digest of these locks, for `deploy --expect` of rigs without a bundle: {found}", err=True)
    if inventory and any(rig.signers for rig in rigs):
        print_prose(f"the inventory has signers: sign a changed lock with `rigwright sign {inventory}`", err=True)
    return 0


def describe_unused_plugins(rigs: Iterable[Rig], rows: Mapping[str, Sequence[Artefact]]) -> list[str]:
    """A line for each plugin's file that was locked and not inspected.

    Args:
        rigs: Rigs of the inventory.
        rows: Input -> what it is locked as.
    """
    inspected = {plugin.keys.input for rig in rigs for env in rig.envs for plugin in env.plugins}
    return [
        f"{row.file} is not inspected: no environment of the inventory has its plugin; `lock` inspects it once one has"
        for name, found in rows.items()
        for row in found
        if row.kind == "plugin" and name not in inspected
    ]


def print_upstream_changes(inventory: Path | None) -> int:
    """Print what moved upstream; returns 0 if nothing did, 1 if something did, 3 if something could not be looked at.

    Raises:
        NothingToLock: there is no inventory to look for, or what there is cannot be read.
    """
    folders, resolver, rigs = _load_inputs(inventory)
    with only_public(declared_origins((rig.network for rig in rigs), resolver.index.url)):
        found = upstream_changes.find_changes(resolver, folders)
        newer, unseen = PatchValidator(resolver).collect_newer(collect_patched(rigs, _rows_by_input(folders, {})))
    found.moved += newer
    found.unseen += unseen
    for line in [*map(str, folders.unread), *found.moved]:
        print_prose(line)
    for line in found.unhashed:
        print_prose(line)
    for line in found.nowhere:
        print_prose(f"not checked: {line}")
    for line in found.unseen:
        print_prose(f"could not check: {line}", err=True)
    if not (folders.unread or found.moved or found.unseen):
        print_prose("nothing changed")
    return 3 if found.unseen else 1 if folders.unread or found.moved else 0


def _load_inputs(
    inventory: Path | None, from_dir: Path | None = None, refresh: bool = False
) -> tuple[LockFolders, LockResolver, list[Rig]]:
    if inventory is None and not IS_CLONE:
        raise NothingToLock("the shipped catalogue is locked in a clone; name an inventory to lock its own inputs")
    rigs = load_rigs(inventory, "lock")
    base = inventory.resolve().parent if inventory else ROOT
    try:
        folders, left = _load_folders(base, rigs)
    except Invalid as error:
        raise NothingToLock(str(error)) from None
    if inventory is None and left:
        kinds = {"conda": "conda packages", "image": "images"}
        told = [kinds[kind] for kind in SHIPPED_INPUT_KINDS if any(one.input.kind == kind for one in left)]
        what = " and ".join(["models", *told])
        names = ", ".join(one.name for one in left)
        print_prose(with_prog_name(f"skipped: {names}: `rigwright lock INVENTORY` locks the {what} that its rigs use"))
    session, of = downloads.open_session(), address_lookup(rigs)
    drivers = DriverResolver(session, of, load_driver_tables(base), _mirror_addresses(rigs, "apt"))
    packaged = ContainerPackageResolver(session, of, load_container_tables(base))
    models = ModelResolver(hub_endpoints(rigs))
    index, conda = PackageIndex(session, index_url()), CondaResolver(lambda name: _mirror_addresses(rigs, name))
    judge = WheelInspector(session, index, from_dir)
    if base != ROOT:
        with suppress(Invalid):  # nothing but time is saved
            judge.add_known_rows(row for rows in Lock.load([ROOT / "locks"]).groups.values() for row in rows)
    asked = ImageResolver(session, image_registries(rigs))
    resolver = LockResolver(session, index, of, drivers, packaged, models, conda, judge, asked, from_dir, refresh)
    return folders, resolver, rigs


def _rows_by_input(folders: LockFolders, new: Mapping[str, Sequence[Artefact]]) -> dict[str, Sequence[Artefact]]:
    """Input -> its rows: those that were found now, of what is locked here, and of what Rigwright locks itself."""
    found: dict[str, list[Artefact]] = {}
    shipped = Lock.load([ROOT / "locks"])
    for row in (*(row for rows in shipped.groups.values() for row in rows), *shipped.artefacts.values()):
        found.setdefault(row.group or row.name, []).append(row)
    here: dict[str, list[Artefact]] = {}
    for row in folders.all_rows:
        here.setdefault(row.group or row.name, []).append(row)
    return {**found, **here, **new}


def _mirror_addresses(rigs: list[Rig], name: str) -> list[str]:
    """The addresses that rigs have for a name."""
    return list(dict.fromkeys(base for rig in rigs for base in rig.network.mirrors.get(name, ())))


def _load_folders(base: Path, rigs: list[Rig]) -> tuple[LockFolders, list[LockInput]]:
    """The inputs to lock in a folder: its own catalogue, and of the shipped one the models, conda packages and images
    that its rigs use.

    Hubs and channels have other addresses in each operator's network, or none.

    Returns:
        That, and the inputs of the shipped catalogue that no rig uses here.

    Raises:
        Invalid: there is nothing to lock, or a mistake in it.
    """
    catalog, shipped = base / "catalog", lock_files.collect_inputs(ROOT / "catalog")
    offered = [one for one in shipped if one.input.is_many_files or one.input.kind in SHIPPED_INPUT_KINDS]
    if base == ROOT:
        own = [one for one in shipped if one not in offered]
    else:
        own = lock_files.collect_inputs(catalog) if catalog.is_dir() else []
        names, answered = {one.name for one in own}, Lock.load([ROOT / "locks"]).groups
        offered = [
            replace(one, shipped=True)
            for one in offered
            if one.name not in names and describe_mismatch(one.input, answered.get(one.name, ()))
        ]
    folders = lock_files.read_folders(base, own, offered, _used_inputs(rigs))
    if not catalog.is_dir() and not folders.wanted:
        raise Invalid([Problem(str(catalog), "the folder", "does not exist: it must contain the inputs to lock")])
    return folders, [one for one in offered if one not in folders.wanted]


def _used_inputs(rigs: list[Rig]) -> set[str]:
    """The inputs that rigs use: of their weights, and of the environments or images of their engines."""
    loaded = (row for rig in rigs for one in rig.instances for row in (*one.weights, *one.artefacts))
    used = {row.group or row.name for row in loaded}
    return used | {name for rig in rigs for env in rig.envs for name in env.inputs}


def hub_endpoints(rigs: list[Rig]) -> tuple[HubEndpoint, ...]:
    """Where the hub is asked, in order, and with which tokens: as every rig that shares the lock would.

    A token is shown where its own rig would show it, and nowhere else; so is one where the operator's own settings put
    another address in the place of the hub's.
    """
    found: dict[str, list[str]] = {}
    for rig in rigs:
        for endpoint in rig.network.mirrors.get(HUB) or ("",):
            tokens = found.setdefault(endpoint.rstrip("/"), [])
            own = (origin_of(endpoint) if endpoint else HUB_ORIGIN) == rig.network.hub_token_origin
            tokens += [api_keys.load_api_key(rig.network.hub_token_file)] if rig.network.hub_token_file and own else []
    places = [HubEndpoint(endpoint, token) for endpoint, tokens in found.items() for token in tokens or (None,)]
    return tuple(dict.fromkeys(places)) or (HubEndpoint(),)


def load_rigs(inventory: Path | None, what: LoadPurpose) -> list[Rig]:
    """The rigs of an inventory; none without one.

    Args:
        inventory: The file.
        what: The part of them that is only being made.

    Raises:
        NothingToLock: the inventory is refused, or ends with an error.
    """
    if inventory is None:
        return []
    with load_for(what):
        try:
            variables = run_inventory(str(inventory))
        except SystemExit as ended:
            raise NothingToLock(str(ended.code)) from None
        except Exception as error:  # an inventory is the operator's program: anything can come out of it
            raise NothingToLock(f"{inventory}: {type(error).__name__}: {error}") from None
        # as pyinfra, which takes no name that begins like that for a group's
        public = [value for name, value in variables.items() if not name.startswith("_")]
        groups = [value[0] if isinstance(value, tuple) and value else value for value in public]
        found = [item for group in groups if isinstance(group, list) for item in group]
        return [
            load_rig(item[1]["rig"])
            for item in found
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], dict) and "rig" in item[1]
        ]


def image_registries(rigs: list[Rig]) -> RegistryLookup:
    """The lookup of a source of images: the registries of every rig that shares the lock, with its login."""

    def of(source: str) -> list[RegistryRepository]:
        if not rigs:
            return [RegistryRepository(*place) for place in image_manifest.repository_places(source, {})]
        found = []
        for rig in rigs:
            path = rig.network.registry_logins.get(source.partition(":")[0])
            login = download_origins.load_login(path) if path else ""
            found += [
                RegistryRepository(*place, login)
                for place in image_manifest.repository_places(source, rig.network.mirrors)
            ]
        return list(dict.fromkeys(found))

    return of


def address_lookup(rigs: list[Rig]) -> AddressLookup:
    """The lookup of a row's addresses, in order: those of every rig that shares the lock."""

    def of(row: Artefact) -> list[str]:
        mirrors = [rig.network.mirrors for rig in rigs] or [{}]
        return list(dict.fromkeys(url for known in mirrors for url in artefact_urls(row, known)))

    return of
