"""The contents of a local hub: files, commits of them, and repositories."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

# Of every repository; a larger one is kept in Git LFS too (hub documentation, "Getting started with repositories").
LFS_SUFFIXES = (".safetensors", ".gguf", ".bin")
POINTER_SIZE = 134  # bytes of a Git LFS pointer file
PART = 1 << 20  # bytes


@dataclass(frozen=True)
class StoredFile:
    """One file's content, wherever it lies."""

    content: bytes | Path
    size: int
    sha256: str
    blob: str
    """Its git object's name."""
    lfs: bool

    @classmethod
    def from_content(cls, name: str, content: bytes | Path, lfs_above: int) -> StoredFile:
        """Hash a file."""
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        digest, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode())  # git's own object name
        at = 0
        while part := read_range(content, at, PART):
            digest.update(part)
            blob.update(part)
            at += len(part)
        return cls(content, size, digest.hexdigest(), blob.hexdigest(), size > lfs_above or name.endswith(LFS_SUFFIXES))

    @property
    def etag(self) -> str:
        """Its ETag."""
        return f'"{self.sha256 if self.lfs else self.blob}"'

    @property
    def api_fields(self) -> dict[str, object]:
        """Its fields in the API."""
        said: dict[str, object] = {"size": self.size, "blobId": self.blob}
        if self.lfs:
            said["lfs"] = {"size": self.size, "sha256": self.sha256, "pointerSize": POINTER_SIZE}
        return said


def read_range(content: bytes | Path, start: int, count: int) -> bytes:
    """Some bytes of a file, from one on; fewer at its end."""
    with open_content(content) as file:
        file.seek(start)
        return file.read(count)


def open_content(content: bytes | Path) -> BinaryIO:
    """A file's bytes, to be read."""
    return BytesIO(content) if isinstance(content, bytes) else content.open("rb")


@dataclass
class StandInRepository:
    """One repository with all its commits."""

    name: str
    commits: dict[str, dict[str, StoredFile]] = field(default_factory=dict)
    """Commit -> its files, by path."""
    branches: dict[str, str] = field(default_factory=dict)
    """Branch or tag -> its commit."""
    gated: str | bool = False
    """`auto` or `manual`; False for one that anybody may read."""
    private: bool = False
    licence: str | None = None
    token: str | None = None
    """The token that opens it where it is gated or private."""

    def add_commit(self, files: Mapping[str, StoredFile], branch: str) -> str:
        """Put a commit of these files on a branch; returns its name, which follows from what it holds."""
        listed = "".join(f"{path}\0{files[path].sha256}\0" for path in sorted(files))
        name = hashlib.sha1(f"{self.name}\0{listed}".encode()).hexdigest()
        self.commits[name] = dict(files)
        self.branches[branch] = name
        return name

    def resolve_revision(self, revision: str) -> str | None:
        """The commit that a branch, a tag or a commit's own name stands for."""
        return self.branches.get(revision) or (revision if revision in self.commits else None)

    def render_tree(self, commit: str) -> list[dict[str, object]]:
        """The API's answer to a request for only a commit's files."""
        found: list[dict[str, object]] = []
        for path, stored in self.commits[commit].items():
            said: dict[str, object] = {"type": "file", "path": path, "size": stored.size, "oid": stored.blob}
            if stored.lfs:
                said["lfs"] = {"oid": stored.sha256, "size": stored.size, "pointerSize": POINTER_SIZE}
            found.append(said)
        return found

    def render_commit(self, commit: str, blobs: bool) -> dict[str, object]:
        """The API's answer about a commit.

        Args:
            commit: Which.
            blobs: Whether sizes and hashes are asked for.
        """
        files = [
            {"rfilename": path, **(stored.api_fields if blobs else {})} for path, stored in self.commits[commit].items()
        ]
        return {
            "_id": commit[:24],
            "id": self.name,
            "modelId": self.name,
            "author": self.name.partition("/")[0],
            "sha": commit,
            "lastModified": "2026-01-02T03:04:05.000Z",
            "createdAt": "2026-01-02T03:04:05.000Z",
            "private": self.private,
            "gated": self.gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [f"license:{self.licence}"] if self.licence else [],
            "cardData": {"license": self.licence} if self.licence else {},
            "siblings": files,
        }
