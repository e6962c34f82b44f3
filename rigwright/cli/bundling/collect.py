"""A bundle is made: what is needed, what is there, and the rest of it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import click

from rigwright.bundle import INDEX, PACKAGES, Row, listed, text
from rigwright.cli.bundling.packages import LIST, STAGED, Archive
from rigwright.cli.resolving import web
from rigwright.cli.resolving.index import Index, index_url
from rigwright.cli.resolving.verb import Unusable, addresses, rigs_of
from rigwright.cli.resolving.web import Content, Unavailable
from rigwright.cli.tables import show, size
from rigwright.facts import PACKAGES as NEEDED
from rigwright.lock import Artefact
from rigwright.problems import Invalid, Problem
from roles.progress import progress

FOLDERS = {"source": "sources", "wheel": "wheels", "weight": "weights"}


class Bundler:
    """Makes one bundle."""

    def __init__(self, inventory: Path, output: Path | None, from_dir: Path | None) -> None:
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
        self.session = web.session()
        self.index = Index(self.session, index_url())
        self.addresses = addresses(self.rigs)

    def _declared(self) -> Path:
        named = {rig.bundle_folder for rig in self.rigs}
        if len(named) != 1 or None in named:
            raise Unusable(f"{self.inventory}: the rigs name {len(named - {None})} bundles: say which with --output")
        return Path(str(named.pop()))

    @property
    def artefacts(self) -> list[Artefact]:
        """All that is locked for these rigs."""
        needed = {a for rig in self.rigs for a in (*rig.sources.values(), *rig.weights, *rig.tools, *rig.cuda)}
        return sorted(needed, key=lambda artefact: (artefact.kind, *artefact.order))

    def bring(self, systems: list[str]) -> None:
        """Bring everything there, and write the index last.

        Raises:
            Invalid: with everything that is not to be had.
            Unusable: somebody else is at it.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        held = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unusable(f"{self.folder}: another `rigwright bundle` is at work there") from None
        else:
            self._bring(systems)
        finally:
            fcntl.flock(held, fcntl.LOCK_UN)  # gevent's os.close does not close at once
            os.close(held)

    def _bring(self, systems: list[str]) -> None:
        rows: list[Row] = []
        problems: list[Problem] = []
        counted: Counter[str] = Counter()
        for artefact in self.artefacts:
            try:
                rows.append(self._artefact(artefact))
                counted[artefact.kind] += 1
            except Unavailable as error:
                problems.append(Problem(str(self.inventory), str(artefact), str(error)))
        mirrors = tuple(dict.fromkeys(url for rig in self.rigs for url in rig.mirrors.get("apt", ())))
        for system in systems:
            try:
                found = self._packages(system, mirrors)
            except Unavailable as error:
                problems.append(Problem(str(self.inventory), f"packages of {system}", str(error)))
                continue
            rows += found
            counted[f"packages of {system}"] = len(found)
        if problems:
            raise Invalid(problems)
        made = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        earlier = listed(self.folder)
        new = self.folder / f"{INDEX}.new"
        new.write_text(text(made, systems, rows))
        for system in systems:
            (self.folder / PACKAGES / system / STAGED).replace(self.folder / PACKAGES / system / LIST)
        new.replace(self.folder / INDEX)
        self._tidy(earlier - {row.path for row in rows})
        self._tell(rows, counted)

    def _artefact(self, artefact: Artefact) -> Row:
        place = Path(FOLDERS[artefact.kind], *([artefact.name, artefact.version] if artefact.kind == "weight" else []))
        path = self.folder / place / artefact.file
        wanted = Content(artefact.sha256, artefact.size)
        row = Row(path=str(place / artefact.file), sha256=artefact.sha256, size=artefact.size)
        if _is(path, wanted):
            return row
        path.parent.mkdir(parents=True, exist_ok=True)
        given = self.from_dir / artefact.file if self.from_dir else None
        part = path.with_name(f"{path.name}.part")
        if given and _is(given, wanted):
            shutil.copyfile(given, part)
        else:
            self._fetch(artefact, part, wanted, [f"{given} is another file"] if given and given.exists() else [])
        part.replace(path)
        return row

    def _fetch(self, artefact: Artefact, part: Path, wanted: Content, failed: list[str]) -> None:
        for url in self._urls(artefact, failed):
            with part.open("wb") as into, progress.task("bundle", f"fetching {artefact.file}") as task:
                try:
                    found = web.fetch(self.session, url, lambda done, total: task.at(done, total, "bytes"), into)
                except Unavailable as error:
                    failed.append(f"{url} {error}")
                    continue
            if found == wanted:
                return
            failed.append(f"{url} has {found.size} bytes with SHA-256 {found.sha256}")
        with suppress(FileNotFoundError):
            part.unlink()
        tried = "; ".join(failed) or f"no address ({', '.join(artefact.sources)})"
        raise Unavailable(f"is not to be had: {tried}: add a mirror, or give it with --from-dir")

    def _urls(self, artefact: Artefact, failed: list[str]) -> list[str]:
        found = self.addresses(artefact)
        for source in artefact.sources:
            if source.startswith("index:"):
                try:
                    packages = self.index.page(source.removeprefix("index:")).packages
                except Unavailable as error:
                    failed.append(str(error))
                    continue
                found += [package.url for package in packages if package.filename == artefact.file]
        return found

    def _packages(self, system: str, mirrors: tuple[str, ...]) -> list[Row]:
        place = f"{PACKAGES}/{system}"
        with progress.task("bundle", f"packages of {system}"):
            found = Archive(system, mirrors).bring(NEEDED, self.folder / place)
        return [Row(path=f"{place}/{name}", sha256=one.sha256, size=one.size) for name, one in found.items()]

    def _tidy(self, paths: set[str]) -> None:
        """Take away what only the earlier bundle had; what somebody else has put beside it stays."""
        for path in paths:
            with suppress(FileNotFoundError):
                (self.folder / path).unlink()
            with suppress(OSError):  # one that still holds something
                for folder in list(Path(path).parents)[:-1]:
                    (self.folder / folder).rmdir()

    def _tell(self, rows: list[Row], counted: Counter[str]) -> None:
        sizes: Counter[str] = Counter()
        kinds = {folder: kind for kind, folder in FOLDERS.items()}
        for row in rows:
            first, second = row.path.split("/")[:2]
            sizes[kinds.get(first, f"packages of {second}")] += row.size
        show(("what", "files", "size"), [(kind, str(counted[kind]), size(sizes[kind])) for kind in counted])
        click.echo(f"{self.folder}: {len(rows)} files, {size(sum(sizes.values()))}")


def _is(path: Path, wanted: Content) -> bool:
    if not path.is_file() or path.stat().st_size != wanted.size:
        return False
    with progress.task("bundle", f"verifying {path.name}") as task:
        return web.hash_file(path, lambda done, total: task.at(done, total, "bytes")) == wanted
