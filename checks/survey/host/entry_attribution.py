"""Common parts of the attribution of entries: entries by path, and the content of packaged files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping

from checks.survey.host import common, dpkg, entry_packages, packaged_modes
from checks.survey.host.entry_packages import PackageRecords
from checks.survey.host.host_entry import HostEntry


class Attribution:
    """Entries, and what explains them."""

    def __init__(
        self, entries: list[HostEntry], index: PackageRecords, deployed: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.entries, self.index, self.deployed = entries, index, deployed
        self.by_path = {entry.path: entry for entry in entries if entry.path and entry.key == entry.path}
        self._contents: dict[str, bytes | None] = {}

    def explain(self, entry: HostEntry, origin: str) -> None:
        """Have an entry explained."""
        entry.origin, entry.expected_from = origin, ""

    def is_explained(self, path: str) -> bool:
        """Whether the file at a path is a package's or ours: of an entry by its origin, of any other by its content."""
        for name in dpkg.names(path):
            if name in self.by_path:
                origin = self.by_path[name].origin
                return bool(origin) and not origin.startswith(entry_packages.UNLISTED)
        return self.packaged(path) is not None

    def packaged(self, path: str) -> bytes | None:
        """The content of a file that is as an archived package brought it; None of any other."""
        if path not in self._contents:
            self._contents[path] = self._packaged(path)
        return self._contents[path]

    def _packaged(self, path: str) -> bytes | None:
        self.index.load_more({path})
        owner = self.index.owners.get(path)
        if not owner or not owner.digest or owner.package not in self.index.archives:
            return None
        try:
            content, status = common.data(f"{dpkg.ROOT}{path}", most=64 << 20), os.lstat(f"{dpkg.ROOT}{path}")
        except (OSError, RuntimeError):
            return None
        if content is None or not packaged_modes.has_packaged_mode(path, status):
            return None
        same = hashlib.md5(content, usedforsecurity=False).hexdigest() == owner.digest
        return content if same else None

    def content(self, entry: HostEntry, most: int = 8 << 20) -> bytes | None:
        """An entry's content; None where it is no plain file of root's that root alone can write."""
        try:
            status = os.lstat(f"{dpkg.ROOT}{entry.path}")
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != packaged_modes.OWNER
                or stat.S_IMODE(status.st_mode) & 0o7022
            ):
                return None
            return common.data(f"{dpkg.ROOT}{entry.path}", most=most)
        except (OSError, RuntimeError):
            return None

    def text(self, entry: HostEntry) -> str:
        """The same as text; empty for none."""
        return common.text(self.content(entry) or b"")

    def target(self, entry: HostEntry) -> str:
        """The absolute path that a link of root's leads to in one step; empty for any other entry."""
        try:
            found = os.readlink(f"{dpkg.ROOT}{entry.path}")
            if os.lstat(f"{dpkg.ROOT}{entry.path}").st_uid != packaged_modes.OWNER:
                return ""
        except OSError:
            return ""
        return os.path.normpath(os.path.join(os.path.dirname(entry.path), found))

    def installed(self, package: str) -> bool:
        """Whether an archived package of this name is installed."""
        return package in self.index.installed

    def script(self, package: str, kinds: tuple[str, ...] = ("preinst", "postinst")) -> str:
        """The scripts with which an archived package is installed."""
        if package not in self.index.archives:
            return ""
        base = f"{dpkg.ROOT}{dpkg.ADMIN}/info/{package}"
        return "\n".join(common.begin(f"{base}.{kind}") for kind in kinds)
