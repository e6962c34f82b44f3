"""An input for a driver into rows of a lock: every package of it, and the key of its archive."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import requests
from pydantic import ValidationError

from cli.bundling.packages import Archive as Distribution
from cli.resolving import archives
from cli.resolving.archives import Contents, Package
from cli.resolving.folders import Wanted
from cli.resolving.web import Unavailable
from rigwright.declaration.catalog import DRIVER
from rigwright.nvidia.driver.tables import Tables
from rigwright.supply.lock import Artefact
from rigwright.types import Archive

Addresses = Callable[[Artefact], list[str]]
"""The http(s) addresses of a row, in order."""


@dataclass(frozen=True)
class Drivers:
    """What finds drivers."""

    session: requests.Session
    addresses: Addresses
    known: Tables
    apt: Sequence[str]
    """Base addresses of the distribution's archive; none for the one that this machine uses."""

    def rows(self, wanted: Wanted) -> tuple[list[Artefact], str]:
        """An input's rows, and its archive's armoured key.

        Raises:
            Unavailable: it is not to be had; the text says why.
        """
        failed: list[Unavailable] = []
        return first(self._readable(wanted, failed), lambda contents: self._rows(wanted, contents), failed)

    def contents(self, wanted: Wanted) -> Contents:
        """What the archive of an input has, at the first address that can be read.

        Raises:
            Unavailable: there is none, or it is not the one that the tables name.
        """
        failed: list[Unavailable] = []
        for contents in self._readable(wanted, failed):
            return contents
        raise together(failed)

    def _rows(self, wanted: Wanted, contents: Contents) -> list[Artefact]:
        system, source = _system(wanted), wanted.input.sources[0]
        below = "apt:" if source.startswith("apt:") else f"{source}/"
        rows = [row_of(one, wanted, (f"{below}{one.path}",)) for one in contents.of(str(wanted.input.version))]
        if contents.key:
            known = self.known.archive(system)
            place = (f"{source}/{known.key}",)
            rows.append(key_of(contents.key, wanted, f"nvidia-{system}", known.fingerprint, place))
        return rows

    def _readable(self, wanted: Wanted, failed: list[Unavailable]) -> Iterator[Contents]:
        """What is at each address of an input's archive that can be read; why another cannot is added to `failed`."""
        system, source = _system(wanted), wanted.input.sources[0]
        if source.startswith("apt:"):
            component = self._expected(wanted, "distribution", source)
            place = f"the archive of {system}"
            yield Contents(place, archives.packages(Distribution(system, self.apt).listing(component), place))
            return
        path, known = self._expected(wanted, "nvidia", source), self.known.archive(system)
        row = wanted.input.provisional(wanted.name).model_copy(update={"sources": (source,)})
        for base in self.addresses(row) or [f"{self.known.base.rstrip('/')}/{path}"]:
            try:
                found = archives.nvidia(self.session, base, known)
            except Unavailable as error:
                failed.append(error)
            else:
                yield found

    def _expected(self, wanted: Wanted, archive: Archive, source: str) -> str:
        """The part of the archive, or the folder, that the tables name for an input; another one is refused."""
        system, branch = _system(wanted), int(str(wanted.input.version).partition(".")[0])
        offers = [one for one in self.known.offers if one.source == archive and system in one.systems]
        fitting = [one for one in offers if branch in one.branches]
        if not fitting:
            has = ", ".join(str(one) for offer in offers for one in offer.branches) or "none"
            whose = "NVIDIA's archive" if archive == "nvidia" else "the distribution's archive"
            raise Unavailable(f"the tables of drivers have no branch {branch} of {whose} for {system}, but {has}")
        expected = self.known.archive(system).path if archive == "nvidia" else fitting[0].component or "main"
        scheme, _, given = source.partition(":")
        if given != expected:
            raise Unavailable(f"{source} is refused: branch {branch} for {system} is had from {scheme}:{expected}")
        return expected


def first(
    readable: Iterator[Contents], rows: Callable[[Contents], list[Artefact]], failed: list[Unavailable]
) -> tuple[list[Artefact], str]:
    """The rows that the first archive has which has them all, and its key.

    Args:
        readable: What is at each address of it, and adds to `failed` what is not.
        rows: An archive's.
        failed: Why those before it would not do.

    Raises:
        Unavailable: there is none.
    """
    for contents in readable:
        try:
            return rows(contents), contents.key
        except Unavailable as error:  # one mirror may be behind another
            failed.append(error)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            text = f"{contents.place} has a package whose {detail['loc'][0]} is refused: {detail['input']!r}"
            failed.append(Unavailable(text))
    raise together(failed)


def row_of(one: Package, wanted: Wanted, sources: tuple[str, ...]) -> Artefact:
    """A package's row."""
    return Artefact(
        kind="deb",
        name=one.name,
        version=one.version,
        group=wanted.name,
        file=one.path.rpartition("/")[2],
        sha256=one.sha256,
        size=one.size,
        sources=sources,
    )


def key_of(key: str, wanted: Wanted, name: str, fingerprint: str, sources: tuple[str, ...]) -> Artefact:
    """An archive's key's row."""
    return Artefact(
        kind="key",
        name=name,
        version=fingerprint,
        group=wanted.name,
        file=f"{wanted.name}.asc",
        sha256=hashlib.sha256(key.encode()).hexdigest(),
        size=len(key),
        sources=sources,
    )


def together(failed: list[Unavailable]) -> Unavailable:
    """All that was in the way at several addresses; gone where it is at each."""
    return Unavailable("; ".join(map(str, failed)), gone=all(error.gone for error in failed))


def _system(wanted: Wanted) -> str:
    return wanted.name.removeprefix(DRIVER)
