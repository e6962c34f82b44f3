"""Components of a bill of materials with their references, and the dependencies between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.spdx import fixup_id
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from rigwright.supply.lock import Artefact

PREFIX = "rigwright:"
"""The beginning of the names of Rigwright's properties."""
VENDORS: Mapping[str, str] = {"driver": "nvidia", "container-toolkit": "nvidia", "docker": "docker"}
"""Beginning of a group of locked packages -> the vendor of its archive, where that is no distribution."""


@dataclass(frozen=True)
class PartList:
    """The components of one rig."""

    components: dict[str, Component] = field(default_factory=dict)
    """By reference: the part of the rig and the file's name in it."""
    dependencies: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Reference -> references of its parts."""
    packages: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Part of the rig and Python package -> references; advisories name both."""

    def add(self, component: Component, user: str) -> str:
        """Add a component that another one uses; returns its reference."""
        reference = str(component.bom_ref.value)
        self.components.setdefault(reference, component)
        self.dependencies[user].add(reference)
        return reference

    def add_files(self, place: str, rows: Iterable[Artefact], user: str = "") -> None:
        """Add locked files to a part of the rig, or to a component that uses that part alone."""
        for row in rows:
            reference = self.add(describe_file(place, row), user or place)
            if row.kind in ("wheel", "plugin", "source"):
                self.packages[place, str(canonicalize_name(row.project))].append(reference)

    def find(self, place: str, component: str) -> list[str]:
        """The references of what an advisory covers; empty if this list lacks it.

        Args:
            place: The part of the rig.
            component: The advisory's component, such as PyPI:vllm.
        """
        name = component.rpartition(":")[2]
        return self.packages.get((place, name)) or ([place] if place in self.components else [])


def make_properties(values: Mapping[str, object]) -> list[Property]:
    """Rigwright's properties: one for each value of a sequence, and none for an empty value."""
    pairs = [
        (name, one)
        for name, value in values.items()
        for one in (value if isinstance(value, (list, tuple)) else (value,))
    ]
    return [Property(name=PREFIX + name, value=str(one)) for name, one in pairs if one not in (None, "")]


def make_group(
    reference: str,
    name: str,
    version: str,
    values: Mapping[str, object],
    kind: ComponentType = ComponentType.APPLICATION,
) -> Component:
    """A component that consists of others: an engine, an environment, the packages of an archive."""
    return Component(
        name=name, version=version or None, type=kind, bom_ref=reference, properties=make_properties(values)
    )


def make_hashes(sha256: str) -> list[HashType]:
    """The hash of a file."""
    return [HashType(alg=HashAlgorithm.SHA_256, content=sha256)]


def describe_file(place: str, row: Artefact) -> Component:
    """The component of one locked file."""
    addresses = [one for one in row.sources if one.startswith(("http://", "https://"))]
    return Component(
        name=row.path if row.kind == "weight" else row.name,
        version=row.version,
        type=_component_type(row),
        bom_ref=f"{place}/{row.path}#{row.sha256[:12]}",
        hashes=make_hashes(row.sha256),
        purl=make_purl(row),
        external_references=[
            ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(one), hashes=make_hashes(row.sha256))
            for one in addresses
        ],
        properties=make_properties(
            {
                "lock-kind": row.kind,
                "file": row.file,
                "bytes": row.size,
                "build": row.build,
                "marker": row.marker,
                "python": row.python,
                "as-of": row.as_of,
                "machine-code": row.machine_code and [str(one) for one in row.machine_code],
            }
        ),
    )


def _component_type(row: Artefact) -> ComponentType:
    if row.kind in ("weight", "key", "image"):
        return ComponentType.FILE
    if row.kind == "deb" and "firmware" in row.name:
        return ComponentType.FIRMWARE
    return ComponentType.LIBRARY


def make_purl(row: Artefact) -> PackageURL | None:
    """The package URL of a locked file; None for a part of a package, such as one file of a model."""
    if row.kind in ("wheel", "source", "plugin"):
        if any(one.startswith("index:") for one in row.sources):
            return PackageURL("pypi", None, canonicalize_name(row.project), row.version, {"file_name": row.file})
        return PackageURL("generic", None, row.name, row.version, {"checksum": f"sha256:{row.sha256}"})
    if row.kind == "conda":
        return PackageURL("conda", None, row.name, row.version, _conda_qualifiers(row))
    if row.kind == "deb":
        kind = next((one for one in VENDORS if str(row.group).startswith(one)), "")
        system = str(row.group).removeprefix(kind).removeprefix("-")
        vendor = "" if row.sources[0].startswith("apt:") else VENDORS.get(kind, "")
        return make_deb_purl(vendor, system, row.name, row.version, row.file)
    return None


def _conda_qualifiers(row: Artefact) -> dict[str, str]:
    """Channel, platform and build: a source is CHANNEL:PLATFORM/FILE, or an address that ends in these three."""
    *channel, platform, _ = row.sources[0].replace("://", "//").replace(":", "/").split("/")
    ending = "conda" if row.file.endswith(".conda") else "tar.bz2"
    found = {"build": str(row.build), "channel": channel[-1] if channel else "", "subdir": platform, "type": ending}
    return {name: value for name, value in found.items() if value}


def make_deb_purl(vendor: str, system: str, name: str, version: str, file: str) -> PackageURL:
    """The package URL of a Debian package.

    Args:
        vendor: The vendor of its archive; empty for the distribution's own.
        system: The host's system, such as debian-13; empty for an archive that is for all.
        name: The package.
        version: Its version.
        file: Its file, which ends in the architecture.
    """
    qualifiers = {"arch": file.removesuffix(".deb").rpartition("_")[2], **({"distro": system} if system else {})}
    return PackageURL("deb", vendor or system.partition("-")[0] or None, name, version, qualifiers)


def describe_bundled_deb(place: str, system: str, file: str, sha256: str, name: str, version: str) -> Component:
    """The component of a distribution's package in a bundle; its file's name has the version without the epoch."""
    return Component(
        name=name,
        version=version,
        type=ComponentType.FIRMWARE if "firmware" in name else ComponentType.LIBRARY,
        bom_ref=f"{place}/{file}#{sha256[:12]}",
        hashes=make_hashes(sha256),
        purl=make_deb_purl("", system, name, version, file),
        properties=make_properties({"file": file}),
    )


def describe_model(reference: str, rows: Sequence[Artefact]) -> Component:
    """The component of a model: the files of one revision of one repository."""
    first = rows[0]
    owner, _, name = (first.repository or first.name).rpartition("/")
    texts = sorted({row.licence for row in rows if row.licence})
    licences = LicenseFactory()
    return Component(
        name=name,
        group=owner or None,
        version=first.version,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=reference,
        purl=PackageURL("huggingface", owner, name, first.version) if first.repository else None,
        licenses=[licences.make_with_id(text) if fixup_id(text) else licences.make_with_name(text) for text in texts],
        properties=make_properties(
            {
                "repository": first.repository,
                "revision": first.version,
                "gated": first.gated and "true",
                "sources": sorted({one.partition(":")[0] for row in rows for one in row.sources}),
            }
        ),
    )
