"""An input for a driver into rows of a lock: every package of it, and the key of its archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.resolving import archives
from cli.resolving.archives import Contents
from cli.resolving.folders import Wanted
from cli.resolving.offered import Offered, key_of, row_of
from cli.resolving.packages import Archive as Distribution
from cli.resolving.web import Unavailable
from rigwright.declaration.catalog import DRIVER
from rigwright.model.nvidia.tables import Tables
from rigwright.supply.lock import Artefact
from rigwright.types import Archive


@dataclass(frozen=True)
class Drivers(Offered):
    """What finds drivers."""

    known: Tables
    apt: Sequence[str]
    """Base addresses of the distribution's archive; none for the one that this machine uses."""

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


def _system(wanted: Wanted) -> str:
    return wanted.name.removeprefix(DRIVER)
