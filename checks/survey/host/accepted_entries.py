"""Entries that the operator has accepted, as the host keeps them: values, and copies of contents for differences."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from checks.survey.host import common, entry_digests, entry_files
from checks.survey.host.host_entry import HostEntry

RECORD, COPIES = "accepted.json", "accepted_copies"
FORMAT = 1
MOST_RECORD = 32 << 20  # bytes
LONGEST_COPY = 1 << 16  # bytes of a content that is copied
MOST_LINES = 20  # of a difference
LONGEST_LINE = 160  # characters of one


class AcceptedEntries:
    """The operator's last acceptance."""

    def __init__(self, folder: str, classes: list[dict[str, Any]]) -> None:
        """Read the record.

        Args:
            folder: Where it lies.
            classes: Those of the fingerprint, with `name`, `secret` and `private_copies`.
        """
        self.folder = folder
        self._secret = {one["name"] for one in classes if one["secret"]}
        self._private = {one["name"] for one in classes if one["private_copies"]}
        self.serial, self.digest, self.values = 0, "", dict[str, str]()
        self.moment = 0.0
        """When it was stored, in seconds since 1970; 0 for never."""
        with suppress(ValueError, TypeError, KeyError, RecursionError, AttributeError):
            kept = json.loads(entry_digests.private_bytes(f"{folder}/{RECORD}", MOST_RECORD) or b"null")
            if kept["format"] == FORMAT:
                values = {str(key): str(value) for key, value in kept["values"].items()}
                self.serial, self.digest, self.values = int(kept["serial"]), str(kept["digest"]), values
                self.moment = os.stat(f"{folder}/{RECORD}").st_mtime

    def value(self, entry: HostEntry) -> str:
        """The accepted value of an entry; empty for none."""
        return self.values.get(_name(entry.kind, entry.key), "")

    def find_gone(self, entries: Iterable[HostEntry]) -> list[HostEntry]:
        """Accepted entries that the host has no more, without a state."""
        there = {_name(entry.kind, entry.key) for entry in entries}
        rows = [name.partition("\n")[::2] for name in self.values if name not in there]
        return [HostEntry(kind, key, "", key if key.startswith("/") else "") for kind, key in rows]

    def store(self, serial: int, digest: str, values: dict[str, str], entries: list[HostEntry]) -> int:
        """Keep what is accepted now, in the place of what was; returns how many contents were copied.

        Raises:
            OSError: it cannot be written.
        """
        folder = f"{self.folder}/{COPIES}"
        fresh = f"{folder}.new"
        shutil.rmtree(fresh, ignore_errors=True)
        os.mkdir(fresh, 0o700)
        copies = 0
        for entry in entries:
            content = self._content(entry)
            if content is not None:
                entry_digests.write_private(f"{fresh}/{_file_name(entry)}", content)
                copies += 1
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fresh, folder)
        kept = {"format": FORMAT, "serial": serial, "digest": digest, "values": values}
        entry_digests.write_private(f"{self.folder}/{RECORD}", json.dumps(kept).encode())
        return copies

    def difference(self, entry: HostEntry) -> list[str]:
        """Lines by which a content differs from the accepted one, without secrets; none where no copy was due."""
        old = entry_digests.private_bytes(f"{self.folder}/{COPIES}/{_file_name(entry)}", LONGEST_COPY)
        new = self._content(entry)
        if old is None or new is None or old == new:
            return []
        lines = difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=0)
        found = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
        told = [common.masked(line)[:LONGEST_LINE] for line in found[:MOST_LINES]]
        return [*told[: MOST_LINES - 1], f"... {len(found) - MOST_LINES + 1} more"] if len(found) > MOST_LINES else told

    def _content(self, entry: HostEntry) -> bytes | None:
        """A content of which a copy may be kept and differences may be told: text, and no secret by class or mode."""
        if entry.kind in self._secret:
            return None
        if not entry.path or not stat.S_ISREG(entry.mode):
            content = entry.content
        elif not entry.mode & 0o004 and entry.kind not in self._private:
            return None
        else:
            content = None
            with suppress(OSError, RuntimeError):
                content = common.data(f"{entry_files.ROOT}{entry.path}", LONGEST_COPY)
            # its owner may have put a link to another file there meanwhile
            if content and hashlib.sha256(content).hexdigest() != entry.sha256:
                return None
        if not content or b"\0" in content or entry_digests.is_private_key(content):
            return None
        return content if len(content) <= LONGEST_COPY else None


def _lines(content: bytes) -> list[str]:
    return common.lines(common.text(content))


def _name(kind: str, key: str) -> str:
    return f"{kind}\n{key}"


def _file_name(entry: HostEntry) -> str:
    return hashlib.sha256(_name(entry.kind, entry.key).encode(errors="replace")).hexdigest()[:40]
