"""What an archive of packages offers an input, from the first of its addresses that has all of it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests
from pydantic import ValidationError

from cli.lock_resolver.apt_archives import ArchiveContents, ArchivePackage
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_folders import LockInput
from rigwright.supply.lock import Artefact

AddressLookup = Callable[[Artefact], list[str]]
"""The http(s) addresses of a row, in order."""


@dataclass(frozen=True)
class ArchiveResolver(ABC):
    """What finds the packages of archives of one kind."""

    session: requests.Session
    addresses: AddressLookup

    def resolve_rows(self, wanted: LockInput) -> tuple[list[Artefact], str]:
        """An input's rows, and its archive's armoured key.

        Raises:
            DownloadUnavailable: it is not to be had; the text says why.
        """
        failed: list[DownloadUnavailable] = []
        return first_complete(
            self._readable_archives(wanted, failed), lambda contents: self._contents_rows(wanted, contents), failed
        )

    def read_contents(self, wanted: LockInput) -> ArchiveContents:
        """What the archive of an input has, at the first address that can be read.

        Raises:
            DownloadUnavailable: there is none, or it is not the one that the tables name.
        """
        failed: list[DownloadUnavailable] = []
        for contents in self._readable_archives(wanted, failed):
            return contents
        raise combine_failures(failed)

    @abstractmethod
    def _contents_rows(self, wanted: LockInput, contents: ArchiveContents) -> list[Artefact]:
        """An input's rows of what an archive has.

        Raises:
            DownloadUnavailable: it has not all of them.
        """

    @abstractmethod
    def _readable_archives(self, wanted: LockInput, failed: list[DownloadUnavailable]) -> Iterator[ArchiveContents]:
        """What is at each address of an input's archive that can be read; why another cannot is added to `failed`."""


def first_complete(
    readable: Iterator[ArchiveContents],
    rows: Callable[[ArchiveContents], list[Artefact]],
    failed: list[DownloadUnavailable],
) -> tuple[list[Artefact], str]:
    """The rows that the first archive has which has them all, and its key.

    Args:
        readable: What is at each address of it, and adds to `failed` what is not.
        rows: An archive's.
        failed: Why those before it would not do.

    Raises:
        DownloadUnavailable: there is none.
    """
    for contents in readable:
        try:
            return rows(contents), contents.key
        except DownloadUnavailable as error:  # one mirror may be behind another
            failed.append(error)
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            text = f"{contents.place} has a package whose {detail['loc'][0]} is refused: {detail['input']!r}"
            failed.append(DownloadUnavailable(text))
    raise combine_failures(failed)


def package_row(one: ArchivePackage, wanted: LockInput, sources: tuple[str, ...]) -> Artefact:
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


def key_row(key: str, wanted: LockInput, name: str, fingerprint: str, sources: tuple[str, ...]) -> Artefact:
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


def combine_failures(failed: list[DownloadUnavailable]) -> DownloadUnavailable:
    """All that was in the way at several addresses; gone where it is at each."""
    return DownloadUnavailable("; ".join(map(str, failed)), gone=all(error.gone for error in failed))
