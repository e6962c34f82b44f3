"""An input for packages of another archive into rows of a lock: those that a rig has of it, and its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.lock_resolver import apt_archives
from cli.lock_resolver.apt_archives import ArchiveContents
from cli.lock_resolver.archive_packages import ArchiveResolver, key_row, package_row
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_folders import LockInput
from rigwright.host.systems import SYSTEMS
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE, ContainerTables, KnownArchive
from rigwright.supply.lock import Artefact


@dataclass(frozen=True)
class ContainerPackageResolver(ArchiveResolver):
    """What finds the container toolkit and Docker."""

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
        """What is at each address of an input's archive that can be read; why another cannot is added to `failed`."""
        name, known, system = self._known_archive(wanted)
        folder = known.expand_template(known.folder, system)
        if wanted.input.sources[0] != f"{name}:{folder}":
            raise DownloadUnavailable(f"{wanted.input.sources[0]} is refused: it is had from {name}:{folder}")
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
