"""A bundle is made: what is needed, what is there, and the rest of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import requests

import roles
from cli.resolving import web
from cli.resolving.hub import Place
from cli.resolving.index import Index, index_url
from cli.resolving.mirrored import PART, Brought
from cli.resolving.origins import declared_origins
from cli.resolving.packages import Archive, Transaction
from cli.resolving.registry import Registries
from cli.resolving.verb import Unusable, addresses, image_places, places, rigs_of
from cli.resolving.web import Content, Unavailable
from cli.tables import say, show, size
from rigwright.containers.carried import distribution
from rigwright.declaration.containers import groups_for
from rigwright.file_lock import LockHeld, file_lock
from rigwright.model.debs.group import Group
from rigwright.plan.facts import packages as needed
from rigwright.problems import Invalid, Problem
from rigwright.supply.archives import PACKAGES, TIME, Suite
from rigwright.supply.bundle import ADVISORIES, INDEX, Row, listed, read, text
from rigwright.supply.expected import digest, spoken
from rigwright.supply.inputs import HUB
from rigwright.supply.lock import Artefact
from roles.progress import progress
from roles.weights.host.reach import only_public

LOCK = ".lock"
FOLDERS = {
    "source": "sources",
    "wheel": "wheels",
    "conda": "conda",
    "weight": "weights",
    "image": "images",
    "deb": "debs",
    "plugin": "plugins",
    "advisories": ADVISORIES,
}
# What hosts are told by, too, where a channel is.
DEFAULTS = Path(roles.__file__).with_name("weights") / "host/defaults.py"


class Bundler:
    """Makes one bundle."""

    def __init__(
        self, inventory: Path, output: Path | None, from_dir: Path | None, advisories: tuple[Path, ...] = ()
    ) -> None:
        """Read what is needed.

        Raises:
            Unusable: the inventory is refused, has no rigs, or names no folder.
        """
        self.inventory = inventory
        self.rigs = rigs_of(inventory, "bundle")
        if not self.rigs:
            raise Unusable(f"{inventory}: no rigs: there is nothing to bundle")
        self.folder = output or self._declared()
        self.from_dir = from_dir
        self.advisories = advisories
        self.session = web.session()
        self.index = Index(self.session, index_url())
        self.addresses = addresses(self.rigs)
        self.places = places(self.rigs)
        self.registries = Registries(self.session, image_places(self.rigs))

    def _declared(self) -> Path:
        named = {rig.bundle_folder for rig in self.rigs}
        if len(named) != 1 or None in named:
            raise Unusable(f"{self.inventory}: the rigs name {len(named - {None})} bundles: choose one with --output")
        return Path(str(named.pop()))

    @property
    def artefacts(self) -> list[Artefact]:
        """All that is locked for these rigs."""
        needed = {a for rig in self.rigs for a in rig.artefacts}
        return sorted(needed, key=lambda artefact: (artefact.kind, *artefact.order))

    def bring(self, systems: list[str]) -> None:
        """Bring everything there, and write the index last.

        Raises:
            Invalid: with everything that is not to be had.
            Unusable: somebody else is at it.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with (
                file_lock(self.folder / LOCK, f"bundle of {self.inventory}", patience=0),
                only_public(declared_origins(self.rigs, self.index.url)),
            ):
                self._bring(systems)
        except LockHeld as error:
            raise Unusable(f"{self.folder}: another `rigwright bundle` is running there: {error}") from None

    def _bring(self, systems: list[str]) -> None:
        brought: dict[str, Row] = {}  # by path: models may share files
        problems: list[Problem] = []
        counted: Counter[str] = Counter()
        debs = {row for system in systems for one in self._groups(system) for row in one.packages.values()}
        for artefact in [*self.artefacts, *sorted(debs, key=lambda row: row.order)]:
            try:
                row = self._artefact(artefact)
            except Unavailable as error:
                what = f"{artefact} ({artefact.path})" if artefact.group and artefact.kind == "weight" else artefact
                problems.append(Problem(str(self.inventory), str(what), str(error)))
                continue
            counted[artefact.kind] += row.path not in brought
            brought[row.path] = row
        for path in self.advisories:
            try:
                row = self._advisories(path)
            except Unavailable as error:
                problems.append(Problem(str(self.inventory), "--advisories", str(error)))
                continue
            if row.path in brought:
                problems.append(Problem(str(self.inventory), "--advisories", f"two files are named {path.name}"))
            counted["advisories"] += 1
            brought[row.path] = row
        rows, suites, staged = list(brought.values()), list[Suite](), list[Path]()
        mirrors = tuple(dict.fromkeys(url for rig in self.rigs for url in rig.mirrors.get("apt", ())))
        for system in systems:
            try:
                found = self._packages(system, mirrors)
            except Unavailable as error:
                problems.append(Problem(str(self.inventory), f"packages of {system}", str(error)))
                continue
            place = f"{PACKAGES}/{system}"
            rows += [Row(path=f"{place}/{path}", sha256=one.sha256, size=one.size) for path, one in found.files.items()]
            suites += found.suites
            staged += [self.folder / place / path for path in found.staged]
            counted[f"packages of {system}"] = len(found.files)
        if problems:
            raise Invalid(problems)
        made = datetime.now(timezone.utc).strftime(TIME)
        earlier = listed(self.folder)
        new = self.folder / f"{INDEX}.new"
        new.write_text(text(made, systems, suites, rows))
        for path in staged:
            path.with_name(f"{path.name}{PART}").replace(path)
        new.replace(self.folder / INDEX)
        self._tidy(earlier - {row.path for row in rows})
        self._tell(rows, counted, suites)

    def _groups(self, system: str) -> list[Group]:
        """The locked packages of other archives than the system's."""
        found = [one for rig in self.rigs for one in groups_for(rig.container_groups, system)]
        return list({one.name: one for one in found}.values())

    def _place(self, artefact: Artefact) -> Path:
        # weights lie as on hosts: the folder of a bundle's weights, served as it is, is a peer
        name = artefact.weight_path if artefact.kind == "weight" else artefact.file
        if artefact.kind == "conda":  # one name may be there for two platforms
            name = f"{artefact.sha256[:16]}/{name}"
        if artefact.kind == "deb":
            name = f"{artefact.group}/{name}"
        return Path(FOLDERS[artefact.kind], name)

    def _artefact(self, artefact: Artefact) -> Row:
        place = self._place(artefact)
        path = self.folder / place
        wanted = Content(artefact.sha256, artefact.size)
        row = Row(path=str(place), sha256=artefact.sha256, size=artefact.size)
        if _is(path, wanted):
            return row
        path.parent.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys((artefact.path, artefact.file)) if self.from_dir else ()
        given = [self.from_dir / name for name in names if self.from_dir]
        part = path.with_name(f"{path.name}.part")
        if artefact.is_written:
            part.write_bytes(str(artefact.text).encode())
        elif right := next((one for one in given if _is(one, wanted)), None):
            shutil.copyfile(right, part)
        else:
            self._fetch(artefact, part, wanted, [f"{one} is another file" for one in given if one.exists()])
        part.replace(path)
        return row

    def _advisories(self, path: Path) -> Row:
        """Copy a file of advisories; its own records say its date."""
        place = Path(ADVISORIES, re.sub(r"[^A-Za-z0-9._+~-]", "_", path.name).lstrip(".") or "advisories.json")
        target = self.folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f"{target.name}.part")
        shutil.copy2(path, part)  # of the tracker's file its time is its date
        copied = web.hash_file(part, lambda done, total: None)
        part.replace(target)
        return Row(path=str(place), sha256=copied.sha256, size=copied.size)

    def _fetch(self, artefact: Artefact, part: Path, wanted: Content, failed: list[str]) -> None:
        for session, url, hub in self._addresses(artefact, failed):
            with part.open("wb") as into, progress.task("bundle", f"fetching {artefact.file}") as task:
                try:
                    found = web.fetch(
                        session, url, lambda done, total: task.at(done, total, "bytes"), into, wanted.size
                    )
                except Unavailable as error:
                    failed.append(_explained(hub, artefact, error) or f"{url} {error}")
                    continue
            if found == wanted:
                return
            failed.append(f"{url} has {found.size} bytes with SHA-256 {found.sha256}")
        with suppress(FileNotFoundError):
            part.unlink()
        tried = "; ".join(failed) or f"no address ({', '.join(artefact.sources)})"
        raise Unavailable(f"is not available: {tried}: add a mirror, or provide it with --from-dir")

    def _addresses(self, artefact: Artefact, failed: list[str]) -> Iterator[tuple[requests.Session, str, Place | None]]:
        """Where a file is asked for, in order, and by whom; beside an address of the hub's, which place it is."""
        for source in artefact.sources:
            if source.startswith("index:"):
                try:
                    packages = self.index.page(source.removeprefix("index:")).packages
                except Unavailable as error:
                    failed.append(str(error))
                    continue
                found = [package.url for package in packages if package.filename == artefact.file]
            elif source.startswith(f"{HUB}:"):
                repository = source.removeprefix(f"{HUB}:")
                for place in self.places:
                    yield place.session(), place.url(repository, artefact.version, artefact.path), place
                continue
            elif artefact.kind == "image":
                for asked in self.registries.places(source):
                    try:
                        yield *self.registries.blob(artefact, asked), None
                    except Unavailable as error:
                        failed.append(f"{asked.base} {error}")
                continue
            else:
                found = self.addresses(artefact.model_copy(update={"sources": (source,)}))
                if artefact.kind == "conda" and not found:
                    found = _in_channel(source, failed)
            for url in found:
                yield self.session, url, None

    def _packages(self, system: str, mirrors: tuple[str, ...]) -> Brought:
        with progress.task("bundle", f"packages of {system}"):
            wanted = [Transaction(tuple(dict.fromkeys(name for rig in self.rigs for name in needed(rig, system))))]
            wanted += [Transaction(*distribution(rig, system)) for rig in self.rigs]
            for one in self._groups(system):
                files = tuple(self.folder / self._place(row) for row in one.packages.values())
                wanted += [Transaction(debs=files)] if all(map(Path.exists, files)) else []
            of = [one for one in dict.fromkeys(wanted) if one != Transaction()]
            return Archive(system, mirrors).bring(of, self.folder / PACKAGES / system)

    def _tidy(self, paths: set[str]) -> None:
        """Take away what only the earlier bundle had; what somebody else has put beside it stays."""
        for path in paths:
            with suppress(FileNotFoundError):
                (self.folder / path).unlink()
            with suppress(OSError):  # one that still holds something
                for folder in list(Path(path).parents)[:-1]:
                    (self.folder / folder).rmdir()

    def _tell(self, rows: list[Row], counted: Counter[str], suites: list[Suite]) -> None:
        sizes: Counter[str] = Counter()
        kinds = {folder: kind for kind, folder in FOLDERS.items()}
        for row in rows:
            first, second = row.path.split("/")[:2]
            sizes[kinds.get(first, f"packages of {second}")] += row.size
        show(("what", "files", "size"), [(kind, str(counted[kind]), size(sizes[kind])) for kind in counted])
        show(
            ("suite", "signed", "valid until"),
            [(f"{one.system} {one.suite}", one.signed, one.valid_until or "no end") for one in suites],
        )
        say(f"{self.folder}: {len(rows)} files, {size(sum(sizes.values()))}")
        found = spoken(digest(self.rigs[0].lock, read(self.folder)))
        say(f"the digest of lock and bundle, for `deploy --expect`: {found}")


def _in_channel(source: str, failed: list[str]) -> list[str]:
    """Where a file of a conda channel without mirrors is, by the program that tells it to hosts."""
    name, _, path = source.partition(":")
    command = [sys.executable, "-I", str(DEFAULTS), "channel", name]
    try:
        told = subprocess.run(command, capture_output=True, check=True).stdout
    except subprocess.CalledProcessError:
        failed.append(f"py-rattler, needed to locate the channel {name}, does not run")
        return []
    return [f"{base.rstrip('/')}/{path}" for base in json.loads(told)]


def _explained(hub: Place | None, artefact: Artefact, error: Unavailable) -> str:
    """Why the hub refuses a file, in one sentence with what to do; "" where it did not answer, or has it after all."""
    if hub and (error.refused or error.gone):
        try:
            hub.enter(str(artefact.repository), artefact.version, artefact.path)
        except Unavailable as explained:
            return str(explained)
    return ""


def _is(path: Path, wanted: Content) -> bool:
    if not path.is_file() or path.stat().st_size != wanted.size:
        return False
    with progress.task("bundle", f"verifying {path.name}") as task:
        return web.hash_file(path, lambda done, total: task.at(done, total, "bytes")) == wanted
