"""Stand-ins for a package index and for a conda channel: each has what lies in folders here, counts and fails as told.

with Index(lab.gateway, wheels) as index, Channel(lab.gateway, folder) as channel:
    index.fault(truncated(), "torch")
    channel.fault(Endless(), "linux-64", "repodata.json")
    mirrors = {"index": [index.url], "conda-forge": [channel.url]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from lab.hub.faults import Damaged, Fault
from lab.hub.sending import Sending
from lab.hub.serving import Serving
from lab.hub.stored import Stored
from lab.wheels import Wheel

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "text/html"


class _Pages(Sending):
    serving: Index

    def answer(self) -> None:
        """A project's page or one of its files: `PROJECT/`, `files/SHA256/FILE`."""
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        if len(words) == 3 and words[0] == "files" and (wheel := self.serving.files.get(words[1])):
            self.send(wheel.page, wheel.file, self.serving.stored(wheel), {})
        elif len(words) == 1 and (wheels := self.serving.projects.get(canonicalize_name(words[0]))):
            faults = self.suffers("api", words[0])
            if not self.failed(faults):
                as_json = JSON in self.headers.get("Accept", "")
                text = self._json(wheels) if as_json else self._html(wheels)
                self.say(_damaged(text.encode(), faults), JSON if as_json else HTML)
        else:
            self.refuse(404, "", "Not here")

    def _json(self, wheels: list[Wheel]) -> str:
        """PEP 691."""
        files = [
            {
                "filename": wheel.file,
                "url": f"../files/{wheel.sha256}/{wheel.file}",
                "hashes": {"sha256": wheel.sha256},
                "size": wheel.size,
                "upload-time": self.serving.uploaded,
            }
            for wheel in wheels
        ]
        versions = sorted({wheel.version for wheel in wheels})
        said = {"meta": {"api-version": "1.1"}, "name": wheels[0].page, "versions": versions, "files": files}
        return json.dumps(said)

    def _html(self, wheels: list[Wheel]) -> str:
        """PEP 503."""
        links = [
            f'<a href="../files/{wheel.sha256}/{escape(wheel.file)}#sha256={wheel.sha256}">{escape(wheel.file)}</a>'
            for wheel in wheels
        ]
        return "<!DOCTYPE html>\n<html><body>\n" + "\n".join(links) + "\n</body></html>\n"


class Index(Serving):
    """A package index of kept wheels (lab.wheels), in a mirror's layout: `url/PROJECT/`.

    Faults are named by project and file; of the part "api" it is a project's page that suffers.

    Args:
        address: Of this machine, to listen on.
        wheels: All that it has.
        bytes_a_second: How fast it is; None for as fast as it can.
        uploaded: When all of them were, it says (PEP 700).
    """

    def __init__(
        self,
        address: str,
        wheels: Iterable[Wheel],
        *,
        bytes_a_second: int | None = None,
        uploaded: str = "2026-01-02T03:04:05Z",
    ) -> None:
        self.uploaded = uploaded
        self.projects: dict[str, list[Wheel]] = {}
        self.files: dict[str, Wheel] = {}
        self.add(wheels)
        super().__init__(address, {_Pages: 0}, bytes_a_second=bytes_a_second)
        (self.url,) = self.urls

    def add(self, wheels: Iterable[Wheel]) -> None:
        """Have more, from the next answer on."""
        for wheel in wheels:
            if wheel.sha256 not in self.files:
                self.files[wheel.sha256] = wheel
                self.projects.setdefault(wheel.page, []).append(wheel)

    def stored(self, wheel: Wheel) -> Stored:
        """A wheel as it is sent."""
        return Stored(wheel.place, wheel.size, wheel.sha256, "", lfs=True)

    @property
    def fetched(self) -> list[str]:
        """The wheels that were asked for, in order, as often as they were."""
        return [one.path.rpartition("/")[2] for one in self.asked if one.path.startswith("/files/")]


class _Folder(Sending):
    serving: Channel

    def answer(self) -> None:
        """A file of the folder: `SUBDIR/FILE`."""
        subdir, _, name = unquote(urlsplit(self.path).path).strip("/").partition("/")
        path = self.serving.folder / subdir / name
        # two plain names, so that nothing above the folder is meant
        if "/" in name or ".." in (subdir, name) or not path.is_file():
            self.refuse(404, "", "Not here")
        else:
            self.send(subdir, name, Stored.of(name, path, 0), {})


class Channel(Serving):
    """A conda channel: `url/SUBDIR/FILE`. Faults are named by them; `repodata.json` is a file like any other.

    Args:
        address: Of this machine, to listen on.
        folder: What it has (lab.conda.write).
        bytes_a_second: How fast it is; None for as fast as it can.
    """

    def __init__(self, address: str, folder: Path, *, bytes_a_second: int | None = None) -> None:
        self.folder = folder
        super().__init__(address, {_Folder: 0}, bytes_a_second=bytes_a_second)
        (self.url,) = self.urls

    @property
    def fetched(self) -> list[str]:
        """The packages that were asked for, in order, as often as they were."""
        return [one.path.rpartition("/")[2] for one in self.asked if one.path.endswith(".conda")]


def _damaged(text: bytes, faults: list[Fault]) -> bytes:
    for fault in faults:
        if isinstance(fault, Damaged):
            text = fault.damage(text)
    return text
