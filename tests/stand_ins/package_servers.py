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

from tests.stand_ins.hub.faults import DamagedContent, Fault
from tests.stand_ins.hub.file_handler import FileRequestHandler
from tests.stand_ins.hub.repositories import StoredFile
from tests.stand_ins.hub.stand_in_server import StandInServer
from tests.stand_ins.wheel_cache import CachedWheel

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "text/html"


class _IndexRequestHandler(FileRequestHandler):
    serving: StandInIndex

    def answer_request(self) -> None:
        """A project's page or one of its files: `PROJECT/`, `files/SHA256/FILE`."""
        words = unquote(urlsplit(self.path).path).strip("/").split("/")
        if len(words) == 3 and words[0] == "files" and (wheel := self.serving.files.get(words[1])):
            self.send_stored_file(wheel.project_name, wheel.file, self.serving.stored_wheel(wheel), {})
        elif len(words) == 1 and (wheels := self.serving.projects.get(canonicalize_name(words[0]))):
            faults = self.matching_faults("api", words[0])
            if not self.send_error_fault(faults):
                as_json = JSON in self.headers.get("Accept", "")
                text = self._render_json(wheels) if as_json else self._render_html(wheels)
                self.send_text(_apply_damage(text.encode(), faults), JSON if as_json else HTML)
        else:
            self.send_hub_error(404, "", "Not here")

    def _render_json(self, wheels: list[CachedWheel]) -> str:
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
        said = {"meta": {"api-version": "1.1"}, "name": wheels[0].project_name, "versions": versions, "files": files}
        return json.dumps(said)

    def _render_html(self, wheels: list[CachedWheel]) -> str:
        """PEP 503."""
        links = [
            f'<a href="../files/{wheel.sha256}/{escape(wheel.file)}#sha256={wheel.sha256}">{escape(wheel.file)}</a>'
            for wheel in wheels
        ]
        return "<!DOCTYPE html>\n<html><body>\n" + "\n".join(links) + "\n</body></html>\n"


class StandInIndex(StandInServer):
    """A package index of kept wheels (tests.stand_ins.wheel_cache), in a mirror's layout: `url/PROJECT/`.

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
        wheels: Iterable[CachedWheel],
        *,
        bytes_a_second: int | None = None,
        uploaded: str = "2026-01-02T03:04:05Z",
    ) -> None:
        self.uploaded = uploaded
        self.projects: dict[str, list[CachedWheel]] = {}
        self.files: dict[str, CachedWheel] = {}
        self.add_wheels(wheels)
        super().__init__(address, {_IndexRequestHandler: 0}, bytes_a_second=bytes_a_second)
        (self.url,) = self.urls

    def add_wheels(self, wheels: Iterable[CachedWheel]) -> None:
        """Have more, from the next answer on."""
        for wheel in wheels:
            if wheel.sha256 not in self.files:
                self.files[wheel.sha256] = wheel
                self.projects.setdefault(wheel.project_name, []).append(wheel)

    def stored_wheel(self, wheel: CachedWheel) -> StoredFile:
        """A wheel as it is sent."""
        return StoredFile(wheel.cache_path, wheel.size, wheel.sha256, "", lfs=True)

    @property
    def requested_wheels(self) -> list[str]:
        """The wheels that were asked for, in order, as often as they were."""
        return [one.path.rpartition("/")[2] for one in self.asked if one.path.startswith("/files/")]


class _ChannelRequestHandler(FileRequestHandler):
    serving: StandInCondaChannel

    def answer_request(self) -> None:
        """A file of the folder: `SUBDIR/FILE`."""
        subdir, _, name = unquote(urlsplit(self.path).path).strip("/").partition("/")
        path = self.serving.folder / subdir / name
        # two plain names, so that nothing above the folder is meant
        if "/" in name or ".." in (subdir, name) or not path.is_file():
            self.send_hub_error(404, "", "Not here")
        else:
            self.send_stored_file(subdir, name, StoredFile.from_content(name, path, 0), {})


class StandInCondaChannel(StandInServer):
    """A conda channel: `url/SUBDIR/FILE`. Faults are named by them; `repodata.json` is a file like any other.

    Args:
        address: Of this machine, to listen on.
        folder: Its files (tests.stand_ins.conda_python.write_channel).
        bytes_a_second: How fast it is; None for as fast as it can.
    """

    def __init__(self, address: str, folder: Path, *, bytes_a_second: int | None = None) -> None:
        self.folder = folder
        super().__init__(address, {_ChannelRequestHandler: 0}, bytes_a_second=bytes_a_second)
        (self.url,) = self.urls


def _apply_damage(text: bytes, faults: list[Fault]) -> bytes:
    for fault in faults:
        if isinstance(fault, DamagedContent):
            text = fault.damage(text)
    return text
