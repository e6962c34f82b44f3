"""An input for a driver into rows of a lock: every package of it, and the key of its archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.lock_resolver import apt_archives
from cli.lock_resolver.apt_archives import ArchiveContents
from cli.lock_resolver.archive_packages import ArchiveResolver, key_row, package_row
from cli.lock_resolver.distribution_packages import DistributionArchive
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.lock_folders import LockInput
from rigwright.model.nvidia.driver_tables import DRIVER, DriverTables
from rigwright.supply.lock import Artefact
from rigwright.types import Archive


@dataclass(frozen=True)
class DriverResolver(ArchiveResolver):
    """What finds drivers."""

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
        """What is at each address of an input's archive that can be read; why another cannot is added to `failed`."""
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
                f"{source} is refused: branch {branch} for {system} is had from {scheme}:{expected}"
            )
        return expected


def _input_system(wanted: LockInput) -> str:
    return wanted.name.removeprefix(DRIVER)
