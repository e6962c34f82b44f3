"""Small container images for tests, as an OCI layout: a real registry takes them, and real podman runs them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
MANIFEST, INDEX = f"{OCI}manifest.v1+json", f"{OCI}index.v1+json"


@dataclass(frozen=True)
class LayerEntry:
    """One entry of a layer."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    """Where a symbolic link leads; empty for a file."""
    folder: bool = False


Layer = Mapping[str, LayerEntry]
"""Path -> what lies there; folders on the way come by themselves."""


@dataclass(frozen=True)
class OCIImage:
    """An image, by its blobs."""

    manifest: bytes
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-256 -> content, the manifest among them."""
    media_type: str = MANIFEST

    @property
    def manifest_digest(self) -> str:
        """SHA-256 of its manifest."""
        return sha256_digest(self.manifest)

    @property
    def layer_digests(self) -> list[str]:
        """SHA-256 of each layer, the lowest first."""
        return [one["digest"].removeprefix("sha256:") for one in json.loads(self.manifest)["layers"]]

    def render_index(self, architecture: str = "amd64", *others: Mapping[str, object]) -> bytes:
        """An index that names it for an architecture, after others."""
        own = {
            "mediaType": self.media_type,
            "digest": f"sha256:{self.manifest_digest}",
            "size": len(self.manifest),
            "platform": {"os": "linux", "architecture": architecture},
        }
        return _render_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, own]})

    def write_layout(self, folder: Path, tag: str) -> None:
        """Write it as an OCI layout, where it is called `tag`."""
        place = folder / "blobs/sha256"
        place.mkdir(parents=True, exist_ok=True)
        for digest, content in self.blobs.items():
            (place / digest).write_bytes(content)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        named = {"mediaType": self.media_type, "digest": f"sha256:{self.manifest_digest}", "size": len(self.manifest)}
        named["annotations"] = {"org.opencontainers.image.ref.name": tag}
        (folder / "index.json").write_bytes(_render_json({"schemaVersion": 2, "manifests": [named]}))


def build_image(*layers: Layer, docker: bool = False, **config: object) -> OCIImage:
    """An image of these layers, the lowest first.

    Args:
        layers: Its contents.
        docker: Whether it is Docker's kind of manifest.
        config: Of its configuration's `config`: Env, Entrypoint, WorkingDir and so on.
    """
    kinds = (
        (f"{DOCKER}container.image.v1+json", f"{DOCKER}image.rootfs.diff.tar.gzip")
        if docker
        else (f"{OCI}config.v1+json", f"{OCI}layer.v1.tar+gzip")
    )
    plain = [_pack_layer(layer) for layer in layers]
    packed = [gzip.compress(one, 1, mtime=0) for one in plain]
    configuration = _render_configuration([sha256_digest(one) for one in plain], config)
    media_type = f"{DOCKER}distribution.manifest.v2+json" if docker else MANIFEST
    manifest = _render_manifest(
        media_type, _descriptor(kinds[0], configuration), [_descriptor(kinds[1], one) for one in packed]
    )
    return OCIImage(manifest, {sha256_digest(one): one for one in (manifest, configuration, *packed)}, media_type)


def write_tree_image(
    layout: Path, tag: str, trees: Sequence[tuple[Path, str]], left: Sequence[str], **config: object
) -> None:
    """Write an image of large trees as an OCI layout, a layer each, the lowest first.

    Args:
        layout: Where.
        tag: Its name there.
        trees: Folders, and where they lie in the image, such as `opt/env`; `.` is its root.
        left: Paths in the image, with all below them, that it does not get.
        config: As `image` has it.
    """
    (layout / "blobs/sha256").mkdir(parents=True)
    packed = [_write_tree_layer(layout, *one, left) for one in trees]
    configuration = _render_configuration([plain for plain, _ in packed], config)
    manifest = _render_manifest(
        MANIFEST, _descriptor(f"{OCI}config.v1+json", configuration), [one for _, one in packed]
    )
    OCIImage(manifest, {sha256_digest(one): one for one in (manifest, configuration)}).write_layout(layout, tag)


def _write_tree_layer(layout: Path, folder: Path, at: str, left: Sequence[str]) -> tuple[str, dict[str, object]]:
    """Its digest as it is, and what a manifest says of it packed."""
    new = layout / "layer"
    with open(new, "wb") as file:
        whole = _HashingWriter(file)
        with gzip.GzipFile(fileobj=whole, mode="wb", compresslevel=1, mtime=0) as zipped:
            plain = _HashingWriter(zipped)
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
                tar.add(folder, at, filter=lambda one: None if one.name.removeprefix("./") in left else one)
    digest = whole.digest.hexdigest()
    new.rename(layout / "blobs/sha256" / digest)
    return plain.digest.hexdigest(), {
        "mediaType": f"{OCI}layer.v1.tar+gzip",
        "digest": f"sha256:{digest}",
        "size": whole.size,
    }


class _HashingWriter(io.RawIOBase):
    """Writes on, and knows what it has written."""

    def __init__(self, into: IO[bytes] | gzip.GzipFile) -> None:
        self.into, self.digest, self.size = into, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes) -> int:  # type: ignore[override]
        self.digest.update(content)
        self.size += len(content)
        return self.into.write(content)


def sha256_digest(content: bytes) -> str:
    """As digests have it."""
    return hashlib.sha256(content).hexdigest()


def _render_configuration(plain: Sequence[str], config: Mapping[str, object]) -> bytes:
    layers = {"type": "layers", "diff_ids": [f"sha256:{one}" for one in plain]}
    return _render_json({"architecture": "amd64", "os": "linux", "config": config, "rootfs": layers})


def _render_manifest(kind: str, configuration: Mapping[str, object], layers: Sequence[Mapping[str, object]]) -> bytes:
    return _render_json({"schemaVersion": 2, "mediaType": kind, "config": configuration, "layers": layers})


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{sha256_digest(content)}", "size": len(content)}


def _render_json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _pack_layer(layer: Layer) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as tar:
        made: set[str] = set()
        for path, one in sorted(layer.items()):
            for folder in [*reversed(Path(path).parents)][1:]:
                if str(folder) not in made and str(folder) not in layer:
                    made.add(str(folder))
                    tar.addfile(_tar_entry(str(folder), tarfile.DIRTYPE, 0o755))
            if one.folder:
                tar.addfile(_tar_entry(path, tarfile.DIRTYPE, one.mode))
            elif one.link:
                entry = _tar_entry(path, tarfile.SYMTYPE, 0o777)
                entry.linkname = one.link
                tar.addfile(entry)
            else:
                entry = _tar_entry(path, tarfile.REGTYPE, one.mode)
                entry.size = len(one.content)
                tar.addfile(entry, io.BytesIO(one.content))
    return into.getvalue()


def _tar_entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, 0
    return entry
