"""Container images: the contents of a manifest, its rows of a lock, and where registries have its blobs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rigwright.problems import printable
from rigwright.supply.artefact import MANIFEST, TEXT, Artefact
from rigwright.supply.input_schema import InputKeys

CONFIGURATION, LAYER = "config", "layer"
# The name of Linux on x86_64 in image indexes (OCI image specification, image-index.md).
PLATFORM = {"os": "linux", "architecture": "amd64"}
# Registries that a catalogue may name without an inventory's mirrors -> where they answer.
REGISTRIES = {
    "docker-hub": "https://registry-1.docker.io",
    "ghcr": "https://ghcr.io",
    "nvcr": "https://nvcr.io",
    "quay": "https://quay.io",
}
_OCI, _DOCKER = "application/vnd.oci.image.", "application/vnd.docker.distribution.manifest."
INDEXES = (f"{_OCI}index.v1+json", f"{_DOCKER}list.v2+json")
MANIFESTS = (f"{_OCI}manifest.v1+json", f"{_DOCKER}v2+json")
# Media types of layers that are fetched from where the manifest is (OCI image specification, layer.md; Docker's image
# manifest, version 2, schema 2) -> how a file of one is called.
LAYERS = {
    f"{_OCI}layer.v1.tar": "tar",
    f"{_OCI}layer.v1.tar+gzip": "tar.gz",
    f"{_OCI}layer.v1.tar+zstd": "tar.zst",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "tar.gz",
    "application/vnd.docker.image.rootfs.diff.tar": "tar",
}
CONFIGURATIONS = (f"{_OCI}config.v1+json", "application/vnd.docker.container.image.v1+json")
MOST_BYTES = 1 << 63  # of a blob (OCI image specification, descriptor.md: int64)
MOST_LAYERS = 127  # of a Linux overlay that containers/storage mounts
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class UnlockableImage(ValueError):
    """A registry's answer is no image that could be locked; the text tells why."""


@dataclass(frozen=True)
class Blob:
    """A descriptor's facts about a blob."""

    media_type: str
    sha256: str
    size: int
    """Bytes."""


def refuse_image_input(wanted: InputKeys) -> None:
    """Refuse an input of kind `image` that says too much or too little.

    Raises:
        ValueError: with what it must be.
    """
    if not wanted.version or not wanted.sources or wanted.model_fields_set - {"kind", "version", "sources"}:
        raise ValueError("an image: only version, which is its tag, and sources")
    if not _TAG.fullmatch(wanted.version):
        raise ValueError(f"tagged with letters, digits, dots and dashes, not {wanted.version}")
    for source in wanted.sources:
        _, repository = _split_source(source)
        if source.startswith(("index:", "hub:")) or not _REPOSITORY.fullmatch(repository):
            raise ValueError(f"from REGISTRY:REPOSITORY, such as docker-hub:vllm/vllm-openai, not {source}")


def _split_source(source: str) -> tuple[str, str]:
    """The registry, by name or by address, and the repository."""
    scheme, _, rest = source.partition(":")
    if scheme not in ("http", "https"):
        return scheme, rest
    place, _, repository = rest.removeprefix("//").partition("/")
    return f"{scheme}://{place}", repository


def repository_places(source: str, mirrors: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Where a source's repository is had: base address, without a slash at its end, and repository, in order.

    Args:
        source: `REGISTRY:REPOSITORY`, or a registry's address with the repository as its path.
        mirrors: An inventory's: base addresses by a registry's name.
    """
    registry, repository = _split_source(source)
    bases = (registry,) if "://" in registry else mirrors.get(registry) or (REGISTRIES.get(registry, ""),)
    return [(base.rstrip("/"), repository) for base in bases if base]


def blob_address(base: str, repository: str, sha256: str) -> str:
    """Where a registry has a blob (OCI distribution specification, "Pulling blobs")."""
    return f"{base}/v2/{repository}/blobs/sha256:{sha256}"


def blob_addresses(artefact: Artefact, mirrors: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Where one blob of an image is, in order; nowhere for what the lock has itself."""
    if artefact.is_written:
        return []
    found = [place for source in artefact.sources for place in repository_places(source, mirrors)]
    return [blob_address(base, repository, artefact.sha256) for base, repository in found]


def select_manifest(content: bytes, media_type: str) -> Blob | None:
    """The manifest for Linux on x86_64 that an index names; None where the content is no index.

    Args:
        content: A registry's answer to a tag.
        media_type: Its media type there.

    Raises:
        UnlockableImage: an index names no manifest, or cannot be read.
    """
    said = _parse_document(content)
    if _parse_media_type(said, media_type) not in INDEXES:
        return None
    listed = said.get("manifests")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    for row in rows:
        platform = row.get("platform")
        if isinstance(platform, dict) and PLATFORM.items() <= platform.items():
            return _parse_blob(row, MANIFESTS, "manifest")
    raise UnlockableImage("has no image for Linux on x86_64")


def image_rows(name: str, wanted: InputKeys, content: bytes, media_type: str = "") -> list[Artefact]:
    """The rows of an image: its manifest, its configuration, and each layer once.

    Args:
        name: The input's.
        wanted: The input.
        content: The manifest.
        media_type: The registry's own name of it, where the content has none.

    Raises:
        UnlockableImage: it is no manifest of an image that podman would run.
    """
    said = _parse_document(content)
    if _parse_media_type(said, media_type) not in MANIFESTS:
        raise UnlockableImage(
            f"answers with {printable(_parse_media_type(said, media_type)[:100]) or 'something'}, which is "
            f"not an image manifest"
        )
    if len(content) > TEXT:
        raise UnlockableImage(f"has a manifest of {len(content)} bytes: at most {TEXT} can be locked")
    configuration, layers = parse_manifest_blobs(content)
    digest = hashlib.sha256(content).hexdigest()
    named = [
        (MANIFEST, "json", Blob(_parse_media_type(said, media_type), digest, len(content))),
        (CONFIGURATION, "json", configuration),
        *((LAYER, LAYERS[one.media_type], one) for one in dict.fromkeys(layers)),
    ]
    return [
        Artefact(
            kind="image",
            name=what,
            version=str(wanted.version),
            group=name,
            file=f"{what}-{one.sha256[:16]}.{ending}",
            sha256=one.sha256,
            size=one.size,
            sources=wanted.sources,
            text=content.decode() if what == MANIFEST else None,
        )
        for what, ending, one in named
    ]


def parse_manifest_blobs(content: bytes) -> tuple[Blob, tuple[Blob, ...]]:
    """A manifest's configuration and layers, the lowest first.

    Raises:
        UnlockableImage: it has others than can be fetched and run.
    """
    said = _parse_document(content)
    layers = said.get("layers")
    if not isinstance(layers, list) or not 0 < len(layers) <= MOST_LAYERS:
        raise UnlockableImage(f"names no layers, or more than {MOST_LAYERS}")
    configuration = _parse_blob(said.get("config"), CONFIGURATIONS, "configuration")
    found = tuple(_parse_blob(one, tuple(LAYERS), "layer") for one in layers)
    if len({one.sha256 for one in (configuration, *found)}) != len({configuration, *found}):
        raise UnlockableImage("lists one blob twice, with different roles")
    return configuration, found


def manifest_row(artefacts: Sequence[Artefact]) -> Artefact:
    """The row of an image's manifest among all of it."""
    return next(one for one in artefacts if one.name == MANIFEST)


def configuration_row(artefacts: Sequence[Artefact]) -> Artefact:
    """The row of its configuration; its SHA-256 is what podman calls the image's id."""
    return next(one for one in artefacts if one.name == CONFIGURATION)


def manifest_media_type(artefact: Artefact) -> str:
    """The media type of a locked manifest, in the words of registries."""
    return _parse_media_type(_parse_document(str(artefact.text).encode()), MANIFESTS[0])


def describe_image_mismatch(wanted: InputKeys, found: Sequence[Artefact]) -> str:
    """The difference between the lock and an input of kind `image`: "" where they agree."""
    for row in found:
        if row.kind != wanted.kind:
            return f"is locked with kind {row.kind}, not {wanted.kind}"
        if row.version != wanted.version:
            return f"is locked with version {row.version}, not {wanted.version}"
        if row.sources != wanted.sources:
            return f"is locked with sources {', '.join(row.sources)}, not {', '.join(wanted.sources)}"
    return describe_blob_mismatch(found)


def describe_blob_mismatch(found: Sequence[Artefact]) -> str:
    """The difference between the rows of an image and the list of its manifest: "" where they agree."""
    whole = [row for row in found if row.name == MANIFEST]
    try:
        configuration, layers = parse_manifest_blobs(str(whole[0].text).encode()) if len(whole) == 1 else (None, ())
    except UnlockableImage:
        configuration, layers = None, ()
    named = {one.sha256: one.size for one in (*([configuration] if configuration else ()), *layers)}
    if not named or named != {row.sha256: row.size for row in found if row.name != MANIFEST}:
        return "is locked with other blobs than its manifest lists"
    return ""


def _parse_document(content: bytes) -> dict[str, object]:
    try:
        # a lock has it as text, byte for byte
        said = json.loads(content.decode())
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UnlockableImage("does not answer with an image document")
    return said


def _parse_media_type(said: Mapping[str, object], told: str) -> str:
    own = said.get("mediaType")
    return own if isinstance(own, str) else told.partition(";")[0].strip()


def _parse_blob(row: object, types: Sequence[str], what: str) -> Blob:
    """Parse a descriptor (OCI image specification, descriptor.md)."""
    if not isinstance(row, dict):
        raise UnlockableImage(f"names no {what}")
    kind, digest, size = (row.get(key) for key in ("mediaType", "digest", "size"))
    found = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if not isinstance(kind, str) or kind not in types:
        raise UnlockableImage(f"has a {what} of type {printable(str(kind)[:100])}, which is refused")
    if found is None or not isinstance(size, int) or isinstance(size, bool) or not 0 < size < MOST_BYTES:
        raise UnlockableImage(f"has a {what} without SHA-256 or size")
    if row.get("urls"):
        raise UnlockableImage(f"names its own URLs for a {what}, which is refused")
    return Blob(kind, found[1], size)
