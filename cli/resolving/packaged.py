"""An input for packages of another archive into rows of a lock: those that a rig has of it, and its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.resolving import archives
from cli.resolving.archives import Contents
from cli.resolving.folders import Wanted
from cli.resolving.offered import Offered, key_of, row_of
from cli.resolving.web import Unavailable
from rigwright.host.systems import SYSTEMS
from rigwright.model.containers.tables import DOCKER, TOOLKIT, ContainerTables, KnownArchive
from rigwright.supply.lock import Artefact


@dataclass(frozen=True)
class Packaged(Offered):
    """What finds the container toolkit and Docker."""

    known: ContainerTables

    def _rows(self, wanted: Wanted, contents: Contents) -> list[Artefact]:
        name, known, system = self._known(wanted)
        folder = wanted.input.sources[0]
        base = f"{known.base.rstrip('/')}/{known.filled(known.folder, system)}"
        rows = [
            # a mirror first, and the archive itself for rigs that name none
            row_of(one, wanted, (f"{folder}/{one.path}", f"{base}/{one.path}"))
            for one in contents.group(known, str(wanted.input.version))
        ]
        key = known.filled(known.key, system)
        place = (f"{name}:{key}", f"{known.base.rstrip('/')}/{key}")
        return [*rows, key_of(contents.key, wanted, name, known.fingerprint, place)]

    def _readable(self, wanted: Wanted, failed: list[Unavailable]) -> Iterator[Contents]:
        """What is at each address of an input's archive that can be read; why another cannot is added to `failed`."""
        name, known, system = self._known(wanted)
        folder = known.filled(known.folder, system)
        if wanted.input.sources[0] != f"{name}:{folder}":
            raise Unavailable(f"{wanted.input.sources[0]} is refused: it is had from {name}:{folder}")
        row = wanted.input.provisional(wanted.name).model_copy(update={"sources": (f"{name}:",)})
        for base in self.addresses(row) or [known.base]:
            address, suite = known.sources(base, system)
            key = f"{base.rstrip('/')}/{known.filled(known.key, system)}"
            try:
                yield archives.signed(self.session, address, key, known.fingerprint, "the tables of containers", suite)
            except Unavailable as error:
                failed.append(error)

    def _known(self, wanted: Wanted) -> tuple[str, KnownArchive, str]:
        """Name and description of an input's archive, and the system that it is for."""
        if wanted.name == TOOLKIT:
            return TOOLKIT, self.known.toolkit, SYSTEMS[0]  # one for all
        return DOCKER, self.known.docker, wanted.name.removeprefix(f"{DOCKER}-")
