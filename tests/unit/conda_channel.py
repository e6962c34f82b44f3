"""A conda channel on the loopback interface, with an index that py-rattler made."""

import asyncio
import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from rattler.index import index_fs

from tests.unit.file_server import LoopbackFileServer, complete_file

EARLY, LATE = 1_767_225_600_000, 1_790_812_800_000  # ms: 2026-01-01 and 2026-10-01


@dataclass
class LoopbackCondaChannel:
    """Packages in a folder, and what a server has of it; `changes` are made to the index on its way out."""

    folder: Path
    files: LoopbackFileServer
    name: str = "forge"
    changes: dict[str, dict[str, object]] = field(default_factory=dict)
    """File -> fields of its record; one that is None goes."""
    renamed: dict[str, str] = field(default_factory=dict)
    """File -> what the index calls it."""

    @property
    def url(self) -> str:
        """The address of a mirror of the channel."""
        return f"{self.files.url}/{self.name}"

    def publish_package(
        self, name: str, version: str, *depends: str, build: str = "0", subdir: str = "linux-64", when: int = EARLY
    ) -> str:
        """Publish a package; returns its file's name."""
        index = {"name": name, "version": version, "build": build, "build_number": 0, "depends": list(depends)}
        index |= {"subdir": subdir, "timestamp": when} | ({"noarch": "generic"} if subdir == "noarch" else {})
        file = f"{name}-{version}-{build}.tar.bz2"
        (self.folder / subdir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.folder / subdir / file, "w:bz2") as archive:
            for path, content in (("index.json", index), ("paths.json", {"paths": [], "paths_version": 1})):
                text = json.dumps(content).encode()
                info = tarfile.TarInfo(f"info/{path}")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
        # a channel says when it came to have a package, and here that is when it was made
        self.changes.setdefault(file, {"indexed_timestamp": when})
        return file

    def remove(self, subdir: str, file: str) -> None:
        """Take a package away."""
        (self.folder / subdir / file).unlink()

    def publish(self) -> None:
        """Have the server answer with what is there."""
        (self.folder / "noarch").mkdir(parents=True, exist_ok=True)
        asyncio.run(index_fs(self.folder, write_zst=False, write_shards=False, force=True))
        for path in self.folder.rglob("repodata.json"):
            index = json.loads(path.read_text())
            for file, changes in self.changes.items():
                if record := index["packages"].get(file):
                    record |= changes
                    for key in [key for key, value in record.items() if value is None]:
                        del record[key]
            index["packages"] = {self.renamed.get(file, file): record for file, record in index["packages"].items()}
            self.serve(f"{path.parent.name}/repodata.json", json.dumps(index).encode())
        for path in self.folder.rglob("*.tar.bz2"):
            self.serve(f"{path.parent.name}/{path.name}", path.read_bytes())

    def serve(self, path: str, content: bytes) -> None:
        """Answer with something else at a path of the channel."""
        self.files.serve(f"{self.name}/{path}", complete_file(content, ("Content-Type", "application/json")))
