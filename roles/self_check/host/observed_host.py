"""A host as its own check reads it: files, digests that are kept from run to run, and units in systemd's words."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess

TYPE_CHECKING = False  # typing takes a tenth of the time of a run
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

FILE_BYTES = 4 << 20  # of a file that is hashed or read whole
TEXT_LENGTH = 200  # characters of a finding
PROPERTIES = ("LoadState", "ActiveState", "SubState", "FragmentPath", "DropInPaths", "NeedDaemonReload", "Result")


class Unreadable(Exception):
    """A file or program that a judgement needs gives no answer."""


class Host:
    """The host, or a folder that stands in for it; digests of unchanged files come from the last run."""

    def __init__(
        self,
        declared: dict[str, Any],
        root: str = "",
        cache: dict[str, Any] | None = None,
        show: Callable[[Sequence[str]], dict[str, dict[str, str]]] | None = None,
        failing: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.declared, self.root = declared, root
        self.old: dict[str, Any] = cache or {}
        self.cache: dict[str, Any] = {}
        self._show = show or show_units
        self.units: dict[str, dict[str, str]] = {}
        self.failing = failing
        """Findings of the last run."""
        self.findings: list[dict[str, str]] = []
        self.generation: int | None = None
        """The number of the current one; None without one."""
        self.manifest: dict[str, Any] = {}
        self.folder = ""
        """Of the current generation."""
        self.unit_files: list[str] = []
        """Names of its units."""

    def path(self, path: str) -> str:
        """A path below the root."""
        return self.root + path

    def lstat(self, path: str) -> os.stat_result | None:
        """What lies at a path; None for nothing."""
        try:
            return os.lstat(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, path: str, most: int = FILE_BYTES) -> bytes | None:
        """The bytes of a file; None for no file. A device or pipe is never read for it."""
        try:
            opened = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            found = file.read(most + 1)
        if len(found) > most:
            raise Unreadable(f"{path} is longer than {most} bytes")
        return found

    def text(self, path: str, most: int = FILE_BYTES) -> str:
        """The text of a file; empty for no file."""
        return (self.read(path, most) or b"").decode(errors="replace")

    def cached(self, path: str, compute: Callable[[], Any]) -> Any:
        """A value that depends on a file alone, computed anew where inode, size or times of the file differ."""
        try:
            found = os.stat(self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        state = [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        old = self.old.get(path)
        value = old[1] if isinstance(old, list) and len(old) == 2 and old[0] == state else compute()
        self.cache[path] = [state, value]
        return value

    def sha256(self, path: str) -> str | None:
        """The digest of a file; None for no file."""

        def compute() -> str | None:
            content = self.read(path)
            return None if content is None else hashlib.sha256(content).hexdigest()

        found: str | None = self.cached(path, compute)
        return found

    def fail(self, check: str, severity: str, part: str, text: str) -> None:
        """Add a finding, once."""
        text = "".join(c if c.isprintable() else "?" for c in text)[:TEXT_LENGTH]
        found = {"check": check, "severity": severity, "part": part, "text": text}
        if found not in self.findings:
            self.findings.append(found)

    def previous_text(self, check: str, part: str, unit: str) -> str:
        """The text of the last run's finding about a unit of a part; empty without one."""
        found = [str(one.get("text")) for one in self.failing if (one.get("check"), one.get("part")) == (check, part)]
        return next((text for text in found if text.startswith(f"{unit} ")), "")

    def load_generation(self) -> None:
        """Read the number of the current generation, its manifest, and the state of all units."""
        try:
            current = os.readlink(self.path(self.declared["config"] + "/current"))
        except OSError:
            current = ""
        if re.fullmatch("generations/[1-9][0-9]{0,8}", current):
            self.generation = int(current.partition("/")[2])
            folder = f"{self.declared['config']}/{current}"
            self.manifest = json.loads(self.text(f"{folder}/manifest.json") or "{}")
            self.unit_files = sorted(os.listdir(self.path(f"{folder}/units")))
            self.folder = folder
        wanted = [*self.unit_files, *(one["unit"] for one in self.declared["units"]), self.declared["job"]]
        self.units = self._show(wanted)

    def active(self, unit: str) -> str:
        """What a unit is doing, in systemd's word."""
        return self.units.get(unit, {}).get("ActiveState", "")


def show_units(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Unit -> its properties, asked at once; a block of lines each, blocks apart by an empty line."""
    done = subprocess.run(
        ["systemctl", "show", "--property=" + ",".join(PROPERTIES), "--", *names],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )
    blocks = done.stdout.decode(errors="replace").strip("\n").split("\n\n")
    if done.returncode or len(blocks) != len(names):
        raise Unreadable("systemctl does not answer")
    rows = [dict(line.partition("=")[::2] for line in block.split("\n")) for block in blocks]
    return dict(zip(names, rows))  # noqa: B905 (of Python 3.10; compared above)
