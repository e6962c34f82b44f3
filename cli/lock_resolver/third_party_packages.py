"""Packages of archives beside the distribution's, for containers and the driver, into rows of a lock."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import requests
from pydantic import ValidationError

from cli.lock_resolver import apt_archives
from cli.lock_resolver.apt_archives import ArchiveContents, ArchivePackage
from cli.lock_resolver.distribution_packages import DistributionArchive
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_files import LockInput
from rigwright.host.supported_systems import SYSTEMS
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, ContainerTables, KnownArchive
from rigwright.model.nvidia_tables import DRIVER, DriverTables
from rigwright.supply.lock import Artefact
from rigwright.validated_types import Archive

AddressLookup = Callable[[Artefact], list[str]]
"""The http(s) addresses of a row, in order."""


@dataclass(frozen=True)
class ArchiveResolver(ABC):
    """A resolver of the packages of archives of one kind."""

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
        """The contents of the archive of an input, at the first address that can be read.

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
        """The contents of each readable address of an input's archive; errors of others are added to `failed`."""


def first_complete(
    readable: Iterator[ArchiveContents],
    rows: Callable[[ArchiveContents], list[Artefact]],
    failed: list[DownloadUnavailable],
) -> tuple[list[Artefact], str]:
    """The rows that the first archive has which has them all, and its key.

    Args:
        readable: The contents of each address of it; adds the others to `failed`.
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


@dataclass(frozen=True)
class ContainerPackageResolver(ArchiveResolver):
    """A resolver of the container toolkit and Docker."""

    known: ContainerTables

    def _contents_rows(self, wanted: LockInput, contents: ArchiveContents) -> list[Artefact]:
        name, known, system = self._known_archive(wanted)
        folder = wanted.input.sources[0]
        base = f"{known.base.rstrip('/')}/{known.expand_template(known.folder, system)}"
        rows = [
            # a mirror first, and the archive itself for rigs that name none
            package_row(one, wanted, (f"{folder}/{one.path}", f"{base}/{one.path}"))
            for one in contents.group_packages(known, str(wanted.input.version))
        ]
        key = known.expand_template(known.key, system)
        place = (f"{name}:{key}", f"{known.base.rstrip('/')}/{key}")
        return [*rows, key_row(contents.key, wanted, name, known.fingerprint, place)]

    def _readable_archives(self, wanted: LockInput, failed: list[DownloadUnavailable]) -> Iterator[ArchiveContents]:
        """The contents of each readable address of an input's archive; errors of others are added to `failed`."""
        name, known, system = self._known_archive(wanted)
        folder = known.expand_template(known.folder, system)
        if wanted.input.sources[0] != f"{name}:{folder}":
            raise DownloadUnavailable(f"{wanted.input.sources[0]} is refused: it must be {name}:{folder}")
        row = wanted.input.provisional(wanted.name).model_copy(update={"sources": (f"{name}:",)})
        for base in self.addresses(row) or [known.base]:
            address, suite = known.apt_source(base, system)
            key = f"{base.rstrip('/')}/{known.expand_template(known.key, system)}"
            try:
                yield apt_archives.read_signed_archive(
                    self.session, address, key, known.fingerprint, "the tables of containers", suite
                )
            except DownloadUnavailable as error:
                failed.append(error)

    def _known_archive(self, wanted: LockInput) -> tuple[str, KnownArchive, str]:
        """Name and description of an input's archive, and the system that it is for."""
        if wanted.name == TOOLKIT_ARCHIVE:
            return TOOLKIT_ARCHIVE, self.known.toolkit, SYSTEMS[0]  # one for all
        return DOCKER_ARCHIVE, self.known.docker, wanted.name.removeprefix(f"{DOCKER_ARCHIVE}-")


@dataclass(frozen=True)
class DriverResolver(ArchiveResolver):
    """A resolver of drivers."""

    known: DriverTables
    apt: Sequence[str]
    """Base addresses of the distribution's archive; none for the one that this machine uses."""

    def _contents_rows(self, wanted: LockInput, contents: ArchiveContents) -> list[Artefact]:
        system, source = _input_system(wanted), wanted.input.sources[0]
        below = "apt:" if source.startswith("apt:") else f"{source}/"
        rows = [
            package_row(one, wanted, (f"{below}{one.path}",))
            for one in contents.driver_packages(str(wanted.input.version))
        ]
        if contents.key:
            known = self.known.archive(system)
            place = (f"{source}/{known.key}",)
            rows.append(key_row(contents.key, wanted, f"nvidia-{system}", known.fingerprint, place))
        return rows

    def _readable_archives(self, wanted: LockInput, failed: list[DownloadUnavailable]) -> Iterator[ArchiveContents]:
        """The contents of each readable address of an input's archive; errors of others are added to `failed`."""
        system, source = _input_system(wanted), wanted.input.sources[0]
        if source.startswith("apt:"):
            component = self._expected_component(wanted, "distribution", source)
            place = f"the archive of {system}"
            yield ArchiveContents(
                place,
                apt_archives.parse_packages(DistributionArchive(system, self.apt).list_component(component), place),
            )
            return
        path, known = self._expected_component(wanted, "nvidia", source), self.known.archive(system)
        row = wanted.input.provisional(wanted.name).model_copy(update={"sources": (source,)})
        for base in self.addresses(row) or [f"{self.known.base.rstrip('/')}/{path}"]:
            try:
                found = apt_archives.read_nvidia_archive(self.session, base, known)
            except DownloadUnavailable as error:
                failed.append(error)
            else:
                yield found

    def _expected_component(self, wanted: LockInput, archive: Archive, source: str) -> str:
        """The part of the archive, or the folder, that the tables name for an input; another one is refused."""
        system, branch = _input_system(wanted), int(str(wanted.input.version).partition(".")[0])
        offers = [one for one in self.known.offers if one.source == archive and system in one.systems]
        fitting = [one for one in offers if branch in one.branches]
        if not fitting:
            has = ", ".join(str(one) for offer in offers for one in offer.branches) or "none"
            whose = "NVIDIA's archive" if archive == "nvidia" else "the distribution's archive"
            raise DownloadUnavailable(
                f"the tables of drivers have no branch {branch} of {whose} for {system}, but {has}"
            )
        expected = self.known.archive(system).path if archive == "nvidia" else fitting[0].component or "main"
        scheme, _, given = source.partition(":")
        if given != expected:
            raise DownloadUnavailable(
                f"{source} is refused: branch {branch} for {system} must come from {scheme}:{expected}"
            )
        return expected


def _input_system(wanted: LockInput) -> str:
    return wanted.name.removeprefix(DRIVER)
