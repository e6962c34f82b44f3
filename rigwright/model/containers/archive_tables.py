"""The catalogue's tables of archives with what containers need (catalog/containers)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rigwright import toml
from rigwright.address_types import HttpUrl
from rigwright.host.supported_systems import CODENAMES
from rigwright.problems import FrozenModel
from rigwright.validated_types import ArtefactName, Fingerprint

PLACE = Path("catalog/containers/containers.toml")
SHIPPED = Path(__file__).resolve().parents[3] / PLACE
ContainerEngine = Literal["docker", "podman"]
TOOLKIT_ARCHIVE, DOCKER_ARCHIVE = "container-toolkit", "docker"
# The spec of the cards, and the toolkit's unit that writes it.
CDI_SPEC, REFRESH_UNIT = "/run/cdi/nvidia.yaml", "nvidia-cdi-refresh.service"
# a path with the places that are filled in
Template = Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9._/-]|\{distribution\}|\{codename\})+$")]
Least = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]


class KnownArchive(FrozenModel):
    """An archive that is neither a distribution's nor one of drivers."""

    base: HttpUrl = Field(description="Default base URL, for rigs without a mirror of its name.")
    folder: Template = Field(description="Its folder, below the base URL.")
    suite: Template | None = Field(default=None, description="For archives that are not flat.")
    component: Template | None = Field(default=None, description="For archives that are not flat.")
    key: Template = Field(description="Its signing key, below the base URL.")
    fingerprint: Fingerprint = Field(description="Fingerprint of that key.")
    origins: tuple[HttpUrl, ...] = Field(min_length=1, description="URL prefixes of it.")
    packages: tuple[ArtefactName, ...] = Field(min_length=1, description="Packages to install from it.")
    versioned: tuple[ArtefactName, ...] = Field(min_length=1, description="Of these, the ones with its version.")
    replaces: tuple[ArtefactName, ...] = Field(default=(), description="Packages that conflict with them.")

    @model_validator(mode="after")
    def _check_complete(self) -> KnownArchive:
        if (self.suite is None) != (self.component is None):
            raise ValueError("a suite with its component, or neither")
        if not self.folder.strip("/") or self.packages[0] not in self.versioned:
            raise ValueError("a folder, and a first package that has the version")
        if away := sorted(set(self.versioned) - set(self.packages)):
            raise ValueError(f"versioned packages among its own: no {', '.join(away)}")
        return self

    def expand_template(self, template: str, system: str) -> str:
        """A path for a system, such as debian-13."""
        return template.format(distribution=system.partition("-")[0], codename=CODENAMES[system])

    def apt_source(self, base: str, system: str) -> tuple[str, str]:
        """Address and suite with component, as a line of apt's sources has them.

        Args:
            base: Its own, or a mirror's.
            system: Such as debian-13.
        """
        address = f"{base.rstrip('/')}/{self.expand_template(self.folder, system)}"
        if self.suite is None or self.component is None:
            return address, "/"
        return address, f"{self.expand_template(self.suite, system)} {self.component}"


class MinimumVersions(FrozenModel):
    """The oldest versions that will do."""

    docker: Least
    podman: Least


class ContainerTables(FrozenModel):
    """All of them."""

    minimum: MinimumVersions
    archives: dict[Literal["container-toolkit", "docker"], KnownArchive]

    @model_validator(mode="after")
    def _check_archives(self) -> ContainerTables:
        if len(self.archives) != 2:
            raise ValueError("archives of container-toolkit and docker")
        return self

    @property
    def toolkit(self) -> KnownArchive:
        """NVIDIA's container toolkit."""
        return self.archives["container-toolkit"]

    @property
    def docker(self) -> KnownArchive:
        """Docker's own."""
        return self.archives["docker"]

    def minimum_version(self, engine: ContainerEngine) -> str:
        """The oldest version of an engine that will do."""
        return str(getattr(self.minimum, engine))


@cache
def load_container_tables(folder: Path) -> ContainerTables:
    """The ones in a folder's catalogue, or else those that are shipped.

    Raises:
        Invalid: a mistake in the file.
    """
    own = folder / PLACE
    return toml.load_toml(own if own.exists() else SHIPPED, ContainerTables)


def group_of(archive: str, system: str) -> str:
    """The name of the input of an archive's packages, and their group in the lock."""
    return archive if archive == TOOLKIT_ARCHIVE else f"{archive}-{system}"
