"""What `rigwright lock` does: read, resolve, write and tell, or look and tell."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cli.calling import spelt
from cli.resolving import folders as folders_of
from cli.resolving import plugged, upstream, web
from cli.resolving.conda import Conda
from cli.resolving.difference import difference
from cli.resolving.drivers import Drivers
from cli.resolving.folders import Folders, Wanted
from cli.resolving.hub import Place
from cli.resolving.index import Index, index_url
from cli.resolving.judging import Judge
from cli.resolving.models import Models
from cli.resolving.offered import Addresses
from cli.resolving.origins import declared_origins
from cli.resolving.packaged import Packaged
from cli.resolving.patching import Patching, of_rigs
from cli.resolving.registry import Place as ImagePlace
from cli.resolving.registry import Places, Registries
from cli.resolving.resolver import Resolver
from cli.tables import say
from rigwright.declaration.instances import Making
from rigwright.inventory import layers, load, making
from rigwright.model import keys, registries
from rigwright.model.answers import mismatch
from rigwright.model.containers.tables import tables as container_tables
from rigwright.model.nvidia.tables import tables
from rigwright.model.origins import HUB_ORIGIN, origin
from rigwright.model.rig import Rig, urls
from rigwright.paths import ROOT
from rigwright.problems import Invalid, Problem
from rigwright.supply import images
from rigwright.supply.expected import digest, spoken
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact, Lock
from roles.weights.host.reach import only_public

# What is had elsewhere in each operator's network, beside repositories of models.
ELSEWHERE = ("conda", "image")


class Unusable(Exception):
    """There is nothing to work on, or no inventory to do it for; the text says why."""


def write(inventory: Path | None, from_dir: Path | None, refresh: bool) -> int:
    """Lock the inputs beside an inventory, or our own, and print what changed; returns the exit status.

    Args:
        inventory: Whose catalogue and mirrors.
        from_dir: A folder with files that need not be fetched.
        refresh: Whether what is locked already is found again too.

    Raises:
        Unusable: there is nothing to lock, or what there is cannot be read.
        Invalid: with everything that could not be resolved.
        OSError: a lock could not be written.
    """
    folders, resolver, rigs = _read(inventory, from_dir, refresh)
    for problem in folders.unread:
        say(f"{problem}\n  it is written anew", err=True)
    with only_public(declared_origins(rigs, resolver.index.url)):
        resolved = resolver.resolve(folders)
        locked = _locked(folders, resolved.rows)
        unfit = Patching(resolver).refusals(of_rigs(rigs, locked))
        looked = plugged.look(resolver, folders, rigs, locked)
    if unfit := [*unfit, *looked.problems]:
        raise Invalid(unfit)
    rows = {
        name: [one.model_copy(update={"machine_code": looked.code.get(one.sha256, one.machine_code)}) for one in found]
        for name, found in resolved.rows.items()
    }
    new = [row for found in rows.values() for row in found]
    texts = folders.texts(rows, resolved.keys)
    if not texts and not folders.locked:
        raise Unusable(f"{folders.locks.parent / 'catalog'}: no inputs, nothing to lock")
    folders.write(texts)
    for line in difference(folders.rows, new) or ["no change"]:
        say(line)
    if inventory:
        found = spoken(digest(Lock.load(layers(inventory, "locks")), None))
        say(f"the digest of these locks, for `deploy --expect` of rigs without a bundle: {found}", err=True)
    return 0


def look(inventory: Path | None) -> int:
    """Print what moved upstream; returns 0 if nothing did, 1 if something did, 3 if something could not be looked at.

    Raises:
        Unusable: there is no inventory to look for, or what there is cannot be read.
    """
    folders, resolver, rigs = _read(inventory)
    with only_public(declared_origins(rigs, resolver.index.url)):
        found = upstream.look(resolver, folders)
        newer, unseen = Patching(resolver).newer(of_rigs(rigs, _locked(folders, {})))
    found.moved += newer
    found.unseen += unseen
    for line in [*map(str, folders.unread), *found.moved]:
        say(line)
    for line in found.unhashed:
        say(line)
    for line in found.nowhere:
        say(f"not checked: {line}")
    for line in found.unseen:
        say(f"could not check: {line}", err=True)
    if not (folders.unread or found.moved or found.unseen):
        say("nothing changed")
    return 3 if found.unseen else 1 if folders.unread or found.moved else 0


def _read(
    inventory: Path | None, from_dir: Path | None = None, refresh: bool = False
) -> tuple[Folders, Resolver, list[Rig]]:
    rigs = rigs_of(inventory, "lock")
    base = inventory.resolve().parent if inventory else ROOT
    try:
        folders, left = _folders(base, rigs)
    except Invalid as error:
        raise Unusable(str(error)) from None
    if inventory is None and left:
        kinds = {"conda": "conda packages", "image": "images"}
        told = [kinds[kind] for kind in ELSEWHERE if any(one.input.kind == kind for one in left)]
        what = " and ".join(["models", *told])
        names = ", ".join(one.name for one in left)
        say(spelt(f"skipped: {names}: `rigwright lock INVENTORY` locks the {what} that its rigs use"))
    session, of = web.session(), addresses(rigs)
    drivers = Drivers(session, of, tables(base), _mirrors(rigs, "apt"))
    packaged = Packaged(session, of, container_tables(base))
    models = Models(places(rigs))
    index, conda = Index(session, index_url()), Conda(lambda name: _mirrors(rigs, name))
    judge = Judge(session, index, from_dir)
    if base != ROOT:
        with suppress(Invalid):  # nothing but time is saved
            judge.knows(row for rows in Lock.load([ROOT / "locks"]).groups.values() for row in rows)
    asked = Registries(session, image_places(rigs))
    resolver = Resolver(session, index, of, drivers, packaged, models, conda, judge, asked, from_dir, refresh)
    return folders, resolver, rigs


def _locked(folders: Folders, new: Mapping[str, Sequence[Artefact]]) -> dict[str, Sequence[Artefact]]:
    """Input -> its rows: those that were found now, of what is locked here, and of what Rigwright locks itself."""
    found: dict[str, list[Artefact]] = {}
    shipped = Lock.load([ROOT / "locks"])
    for row in (*(row for rows in shipped.groups.values() for row in rows), *shipped.artefacts.values()):
        found.setdefault(row.group or row.name, []).append(row)
    here: dict[str, list[Artefact]] = {}
    for row in folders.rows:
        here.setdefault(row.group or row.name, []).append(row)
    return {**found, **here, **new}


def _mirrors(rigs: list[Rig], name: str) -> list[str]:
    """The addresses that rigs have for a name."""
    return list(dict.fromkeys(base for rig in rigs for base in rig.mirrors.get(name, ())))


def _folders(base: Path, rigs: list[Rig]) -> tuple[Folders, list[Wanted]]:
    """What is to be locked in a folder: its own catalogue, and of ours the models, conda packages and images that its
    rigs use.

    Hubs and channels have other addresses in each operator's network, or none.

    Returns:
        That, and what of these of our own catalogue nobody uses here.

    Raises:
        Invalid: there is nothing to lock, or a mistake in it.
    """
    catalog, shipped = base / "catalog", folders_of.inputs(ROOT / "catalog")
    offered = [one for one in shipped if one.input.many or one.input.kind in ELSEWHERE]
    if base == ROOT:
        own = [one for one in shipped if one not in offered]
    else:
        own = folders_of.inputs(catalog) if catalog.is_dir() else []
        names, answered = {one.name for one in own}, Lock.load([ROOT / "locks"]).groups
        offered = [
            replace(one, shipped=True)
            for one in offered
            if one.name not in names and mismatch(one.input, answered.get(one.name, ()))
        ]
    folders = folders_of.read(base, own, offered, _used(rigs))
    if not catalog.is_dir() and not folders.wanted:
        raise Invalid([Problem(str(catalog), "the folder", "does not exist: it must contain the inputs to lock")])
    return folders, [one for one in offered if one not in folders.wanted]


def _used(rigs: list[Rig]) -> set[str]:
    """The inputs that rigs use: of their weights, and of the environments or images of their engines."""
    loaded = (row for rig in rigs for one in rig.instances for row in (*one.weights, *one.artefacts))
    used = {row.group or row.name for row in loaded}
    return used | {name for rig in rigs for name in getattr(rig, "env_inputs", ())}


def places(rigs: list[Rig]) -> tuple[Place, ...]:
    """Where the hub is asked, in order, and with which tokens: as every rig that shares the lock would.

    A token is shown where its own rig would show it, and nowhere else; so is one where the operator's own settings put
    another address in the place of the hub's.
    """
    found: dict[str, list[str]] = {}
    for rig in rigs:
        for endpoint in rig.mirrors.get(HUB) or ("",):
            tokens = found.setdefault(endpoint.rstrip("/"), [])
            own = (origin(endpoint) if endpoint else HUB_ORIGIN) == rig.hub_token_origin
            tokens += [keys.read(rig.hub_token_file)] if rig.hub_token_file and own else []
    places = [Place(endpoint, token) for endpoint, tokens in found.items() for token in tokens or (None,)]
    return tuple(dict.fromkeys(places)) or (Place(),)


def rigs_of(inventory: Path | None, what: Making) -> list[Rig]:
    """The rigs of an inventory; none without one.

    Args:
        inventory: The file.
        what: What of them is only being made.

    Raises:
        Unusable: the inventory is refused, or ends with an error.
    """
    if inventory is None:
        return []
    with making(what):
        try:
            variables = runpy.run_path(str(inventory))
        except SystemExit as ended:
            raise Unusable(str(ended.code)) from None
        except Exception as error:  # an inventory is the operator's program: anything can come out of it
            raise Unusable(f"{inventory}: {type(error).__name__}: {error}") from None
        # as pyinfra, which takes no name that begins like that for a group's
        public = [value for name, value in variables.items() if not name.startswith("_")]
        groups = [value[0] if isinstance(value, tuple) and value else value for value in public]
        found = [item for group in groups if isinstance(group, list) for item in group]
        return [
            load(item[1]["rig"])
            for item in found
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], dict) and "rig" in item[1]
        ]


def image_places(rigs: list[Rig]) -> Places:
    """What says where a source of images is: the registries of every rig that shares the lock, with its login."""

    def of(source: str) -> list[ImagePlace]:
        if not rigs:
            return [ImagePlace(*place) for place in images.places(source, {})]
        found = []
        for rig in rigs:
            path = rig.registry_logins.get(source.partition(":")[0])
            login = registries.login(path) if path else ""
            found += [ImagePlace(*place, login) for place in images.places(source, rig.mirrors)]
        return list(dict.fromkeys(found))

    return of


def addresses(rigs: list[Rig]) -> Addresses:
    """What gives a row's addresses, in order: those of every rig that shares the lock."""

    def of(row: Artefact) -> list[str]:
        mirrors = [rig.mirrors for rig in rigs] or [{}]
        return list(dict.fromkeys(url for known in mirrors for url in urls(row, known)))

    return of
