"""Small container images for tests, as an OCI layout: a real registry takes them, and real podman runs them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
MANIFEST, INDEX = f"{OCI}manifest.v1+json", f"{OCI}index.v1+json"


@dataclass(frozen=True)
class File:
    """One entry of a layer."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""
    """Where a symbolic link leads; empty for a file."""
    folder: bool = False


Layer = Mapping[str, File]
"""Path -> what lies there; folders on the way come by themselves."""


@dataclass(frozen=True)
class Image:
    """An image, by its blobs."""

    manifest: bytes
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-256 -> content, the manifest among them."""
    media_type: str = MANIFEST

    @property
    def digest(self) -> str:
        """SHA-256 of its manifest."""
        return sha256(self.manifest)

    @property
    def layers(self) -> list[str]:
        """SHA-256 of each layer, the lowest first."""
        return [one["digest"].removeprefix("sha256:") for one in json.loads(self.manifest)["layers"]]

    def index(self, architecture: str = "amd64", *others: Mapping[str, object]) -> bytes:
        """An index that names it for an architecture, after others."""
        own = {
            "mediaType": self.media_type,
            "digest": f"sha256:{self.digest}",
            "size": len(self.manifest),
            "platform": {"os": "linux", "architecture": architecture},
        }
        return _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [*others, own]})

    def write(self, folder: Path, tag: str) -> None:
        """Write it as an OCI layout, where it is called `tag`."""
        place = folder / "blobs/sha256"
        place.mkdir(parents=True, exist_ok=True)
        for digest, content in self.blobs.items():
            (place / digest).write_bytes(content)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        named = {"mediaType": self.media_type, "digest": f"sha256:{self.digest}", "size": len(self.manifest)}
        named["annotations"] = {"org.opencontainers.image.ref.name": tag}
        (folder / "index.json").write_bytes(_json({"schemaVersion": 2, "manifests": [named]}))


def image(*layers: Layer, docker: bool = False, **config: object) -> Image:
    """An image of these layers, the lowest first.

    Args:
        layers: What is in it.
        docker: Whether it is Docker's kind of manifest.
        config: Of its configuration's `config`: Env, Entrypoint, WorkingDir and so on.
    """
    kinds = (
        (f"{DOCKER}container.image.v1+json", f"{DOCKER}image.rootfs.diff.tar.gzip")
        if docker
        else (f"{OCI}config.v1+json", f"{OCI}layer.v1.tar+gzip")
    )
    plain = [_tar(layer) for layer in layers]
    packed = [gzip.compress(one, 1, mtime=0) for one in plain]
    configuration = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(one)}" for one in plain]},
        }
    )
    media_type = f"{DOCKER}distribution.manifest.v2+json" if docker else MANIFEST
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": media_type,
            "config": _named(kinds[0], configuration),
            "layers": [_named(kinds[1], one) for one in packed],
        }
    )
    return Image(manifest, {sha256(one): one for one in (manifest, configuration, *packed)}, media_type)


def sha256(content: bytes) -> str:
    """As digests have it."""
    return hashlib.sha256(content).hexdigest()


def _named(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{sha256(content)}", "size": len(content)}


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _tar(layer: Layer) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as tar:
        made: set[str] = set()
        for path, one in sorted(layer.items()):
            for folder in [*reversed(Path(path).parents)][1:]:
                if str(folder) not in made and str(folder) not in layer:
                    made.add(str(folder))
                    tar.addfile(_entry(str(folder), tarfile.DIRTYPE, 0o755))
            if one.folder:
                tar.addfile(_entry(path, tarfile.DIRTYPE, one.mode))
            elif one.link:
                entry = _entry(path, tarfile.SYMTYPE, 0o777)
                entry.linkname = one.link
                tar.addfile(entry)
            else:
                entry = _entry(path, tarfile.REGTYPE, one.mode)
                entry.size = len(one.content)
                tar.addfile(entry, io.BytesIO(one.content))
    return into.getvalue()


def _entry(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, 0
    return entry
