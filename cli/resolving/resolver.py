"""One input after another into the rows of a lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import requests
from pypi_simple import DistributionPackage

from cli.resolving import web, wheels
from cli.resolving.checkpoints import Beginning, header
from cli.resolving.conda import Conda
from cli.resolving.drivers import Drivers
from cli.resolving.folders import Folders, Wanted
from cli.resolving.index import Index
from cli.resolving.judging import Judge
from cli.resolving.models import Models
from cli.resolving.offered import Addresses, Offered
from cli.resolving.own_models import called, first_bytes, own, own_folder
from cli.resolving.packaged import Packaged
from cli.resolving.registry import Registries
from cli.resolving.web import Content, Unavailable
from cli.resolving.wheels import Pin
from rigwright.declaration.catalog import DRIVER
from rigwright.model.answers import mismatch
from rigwright.problems import Invalid, Problem
from rigwright.supply.inputs import Input
from rigwright.supply.lock import Artefact
from rigwright.weights.safetensors import Broken
from roles.progress import progress

TOGETHER = 8  # projects that the index is asked for at once


@dataclass(frozen=True)
class Resolved:
    """What was found."""

    rows: dict[str, list[Artefact]]
    """Input -> its rows."""
    keys: dict[str, str]
    """Group of packages -> the armoured key of their archive, where that has one."""


@dataclass
class Resolver:
    """What resolves inputs, and how."""

    session: requests.Session
    index: Index
    addresses: Addresses
    drivers: Drivers
    packaged: Packaged
    models: Models
    conda: Conda
    judge: Judge
    registries: Registries
    from_dir: Path | None = None
    refresh: bool = False

    def resolve(self, folders: Folders) -> Resolved:
        """The rows of every input.

        Raises:
            Invalid: with every input that could not be resolved.
        """
        rows: dict[str, list[Artefact]] = {}
        keys: dict[str, str] = {}
        problems: list[Problem] = []
        self.judge.knows(folders.rows)
        for wanted in folders.wanted:
            try:
                if wanted.input.kind == "deb":
                    rows[wanted.name], keys[wanted.name] = self._packages(wanted, folders)
                else:
                    rows[wanted.name] = self.rows(wanted, folders)
            except Unavailable as error:
                problems.append(wanted.problem(str(error)))
        if problems:
            raise Invalid(problems)
        return Resolved(rows, keys)

    def archives(self, wanted: Wanted) -> Offered:
        """What finds the packages of an input."""
        return self.drivers if wanted.name.startswith(DRIVER) else self.packaged

    def _packages(self, wanted: Wanted, folders: Folders) -> tuple[list[Artefact], str]:
        """The rows of packages, and their archive's key."""
        locked = folders.rows_of(wanted)
        whole = wanted.name in folders.keys or not any(row.kind == "key" for row in locked)
        if whole and not self.refresh and not mismatch(wanted.input, locked):
            return locked, folders.keys.get(wanted.name, "")
        try:
            return self.archives(wanted).rows(wanted)
        except Unavailable as error:
            raise Unavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def rows(self, wanted: Wanted, folders: Folders) -> list[Artefact]:
        """The rows of one input that is no packages.

        Args:
            wanted: The input.
            folders: Its rows so far, and what else is asked for.

        Raises:
            Unavailable: it is not to be had; the text says why and what to do.
        """
        locked = folders.rows_of(wanted)
        if wanted.input.kind == "wheel":
            found = self.environment(wanted.name, wanted.input, pins(self._preferred(wanted, locked)))
            return self.judge.judged(wanted.name, found) if wanted.input.python else found
        if wanted.input.kind == "conda":
            if locked and not self.refresh and not mismatch(wanted.input, locked):
                return locked
            _refuse_future(wanted.input.as_of)
            return self.conda.solve(wanted.name, wanted.input, self._preferred(wanted, locked))
        if wanted.input.kind == "image":
            return self._image(wanted, locked)
        if wanted.input.grouped:
            return self._model(wanted, folders)
        row = wanted.input.provisional(wanted.name)
        given = self.from_dir / row.file if self.from_dir and wanted.input.file_name else None
        if given and given.is_file():
            with progress.task("lock", f"hashing {given}") as task:
                content = web.hash_file(given, lambda done, total: task.at(done, total, "bytes"))
            return [_filled(row, content, lambda count: first_bytes(given, count))]
        if locked and not self.refresh and not mismatch(wanted.input, locked):
            return locked
        return [self._found(wanted, row)]

    def _preferred(self, wanted: Wanted, locked: list[Artefact]) -> list[Artefact]:
        """What of the locked packages stays where it can: nothing where another day was asked for."""
        return [] if self.refresh else [row for row in locked if row.as_of == wanted.input.as_of]

    def _image(self, wanted: Wanted, locked: list[Artefact]) -> list[Artefact]:
        """The rows of an image."""
        if locked and not self.refresh and not mismatch(wanted.input, locked):
            return locked
        try:
            return self.registries.rows(wanted)
        except Unavailable as error:
            raise Unavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def _model(self, wanted: Wanted, folders: Folders) -> list[Artefact]:
        """The rows of weights of many files."""
        locked = folders.rows_of(wanted)
        as_it_is = bool(locked) and not mismatch(wanted.input, locked)
        if as_it_is and not self.refresh and (wanted.input.repository or not self.from_dir):
            return locked
        try:
            if wanted.input.repository:
                return self.models.rows(wanted)
            if self.from_dir is None:
                if as_it_is:  # nothing but the operator's own files could say it anew
                    return locked
                raise Unavailable("these are your own files: provide their folder with --from-dir")
            if folder := own_folder(wanted.input, self.from_dir):
                return own(wanted, folder)
            others = [one for one in folders.wanted if one.input.many and not one.input.repository and one != wanted]
            if as_it_is and (others or not self.refresh):
                return locked
            if any(mismatch(one.input, folders.rows_of(one)) or own_folder(one.input, self.from_dir) for one in others):
                raise Unavailable(
                    f"they are your own files, and {self.from_dir} may be another input's: give a folder with "
                    f"{called(wanted.input)} in it, a link to it will do"
                )
            return own(wanted, self.from_dir)
        except Unavailable as error:
            raise Unavailable(f"cannot be locked: {error}", gone=error.gone) from None

    def _found(self, wanted: Wanted, row: Artefact) -> Artefact:
        """The row from its first source that works."""
        failed = []
        for source in row.sources:
            try:
                if source.startswith("index:"):
                    return self._from_index(wanted, row, source.removeprefix("index:"))
                urls = self.addresses(row.model_copy(update={"sources": (source,)}))
                if not urls:
                    failed.append(f"{source} has no address: the inventory has no such mirror")
            except Unavailable as error:
                failed.append(str(error))
                continue
            for url in urls:
                try:
                    kept = Beginning()
                    return _filled(row, self._fetched(row, url, kept), kept.first)
                except Unavailable as error:
                    failed.append(f"{url} {error}")
        raise Unavailable(f"cannot be locked: {'; '.join(failed)}: correct its sources or give it with --from-dir")

    def _fetched(self, row: Artefact, url: str, kept: Beginning) -> Content:
        with progress.task("lock", f"fetching {row.file}") as task:
            task.label(f"fetching {row.file} to hash it")
            return web.fetch(self.session, url, lambda done, total: task.at(done, total, "bytes"), kept)

    def _from_index(self, wanted: Wanted, row: Artefact, project: str) -> Artefact:
        package = self.index.source(project, row.version)
        if wanted.input.file_name not in (None, package.filename):
            raise Unavailable(f"the index calls the file {package.filename}, not {wanted.input.file_name}")
        return _filled(row.model_copy(update={"file": package.filename}), self.index.content(package))

    def environment(self, group: str, wanted: Input, preferred: list[Pin]) -> list[Artefact]:
        """The wheels of an environment: one a package for one Python, else all that hosts of any distribution need.

        Raises:
            Unavailable: it has no solution, or a package has no wheel for one of them.
        """
        _refuse_future(wanted.as_of)
        with progress.task("lock", f"resolving {group}"), ThreadPoolExecutor(TOGETHER) as pool:
            found = wheels.closure(wanted.requirements, preferred, self.index.url, wanted.python, wanted.as_of)
            return [row for rows in pool.map(lambda pin: self._wheels(group, wanted, pin), found) for row in rows]

    def _wheels(self, group: str, wanted: Input, pin: Pin) -> list[Artefact]:
        rows = []
        for package in self._fitting(wanted, pin):
            content = self.index.content(package)
            if content.sha256 not in pin.hashes:
                raise Unavailable(f"{package.filename} was changed on the index a moment ago: try again")
            rows.append(
                Artefact(
                    kind="wheel",
                    name=pin.name,
                    version=pin.version,
                    group=group,
                    marker=pin.marker,
                    python=wanted.python,
                    as_of=wanted.as_of,
                    file=package.filename,
                    sha256=content.sha256,
                    size=content.size,
                    sources=(f"index:{pin.name}",),
                )
            )
        return rows

    def _fitting(self, wanted: Input, pin: Pin) -> list[DistributionPackage]:
        """The wheels of a package that hosts need."""
        found = self.index.wheels(pin.name, pin.version)
        if wanted.python:
            best = wheels.best(found, wanted.python, wanted.as_of)
            without = [] if best else [wanted.python]
            fitting = [best] if best else []
        else:
            hosts = wheels.pythons(pin.marker)
            lacking = [host for host in hosts if not any(wheels.fits(one.filename, host) for one in found)]
            without = [f"{major}.{minor}" for major, minor in lacking]
            fitting = [one for one in found if any(wheels.fits(one.filename, host) for host in hosts)]
        if without:
            names = ", ".join(without)
            raise Unavailable(f"{pin} has no wheel for Linux on x86_64 with Python {names}: ask for another version")
        return fitting


def _refuse_future(as_of: str | None) -> None:
    if as_of and wheels.began(as_of) > datetime.now(timezone.utc):
        raise Unavailable(f"as_of {as_of} is refused: that day has not begun, and what is there then is not known")


def _filled(row: Artefact, content: Content, beginning: Callable[[int], bytes] | None = None) -> Artefact:
    """A row with what a file is.

    Args:
        row: Without it.
        content: The file.
        beginning: Its first bytes, by how many.

    Raises:
        Unavailable: it is no weights, though its name says so.
    """
    update: dict[str, object] = {"sha256": content.sha256, "size": content.size}
    if beginning and row.kind == "weight":
        try:
            update["header"] = header(row.file, content.size, beginning)
        except Broken as error:
            raise Unavailable(f"{row.file} {error}") from None
    return row.model_copy(update=update)


def pins(rows: list[Artefact]) -> list[Pin]:
    """The packages of an environment's rows."""
    found: dict[tuple[str, str, str | None], set[str]] = {}
    for row in rows:
        found.setdefault((row.name, row.version, row.marker), set()).add(row.sha256)
    return [Pin(*key, frozenset(hashes)) for key, hashes in found.items()]
