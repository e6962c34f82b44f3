"""An entry of a host's fingerprint while it is collected and attributed; the answer has another type."""

from __future__ import annotations

import hashlib

LONGEST = 300  # characters of a state; a longer text is content


class HostEntry:
    """One entry: collected first, then attributed."""

    __slots__ = (
        *("content", "ctime", "expected_from", "gid", "key", "kind", "md5", "mode", "origin", "package", "path"),
        *("problem", "sha256", "size", "state", "uid", "unread"),
    )

    def __init__(self, kind: str, key: str, state: str, path: str = "", content: bytes | None = None) -> None:
        self.kind, self.key = kind, key
        self.state = state
        """Kind, mode, owner and group of a file, a link's target, or a reader's words: all but content."""
        self.path = path
        """The file that it is or comes from; empty for kernel state."""
        self.content = content
        """Of a file, as far as it was read; None where the cache knows its digests or it has none."""
        self.md5 = ""
        """Of a file's content, as dpkg has it; empty where nothing was read."""
        self.sha256 = ""
        """Of the content; empty where nothing was read. It does not leave the host but through a key."""
        self.mode = self.uid = self.gid = self.size = 0
        """Of a file, as lstat(2) has them, with its kind in the mode; 0 of any other entry."""
        self.ctime = 0.0
        self.package = ""
        """The package that lists the path in dpkg's database; empty for none."""
        self.unread = False
        """Whether the file was left unread: it has not changed since the package was unpacked, and is no conffile."""
        self.origin = ""
        """Its explanation: `package NAME`, `rigwright`, `derived from ...`; empty for nothing."""
        self.expected_from = ""
        """The package or derivation that it differs from."""
        self.problem = ""
        """Why it can never be accepted."""


def text_entry(kind: str, key: str, text: str, path: str = "") -> HostEntry:
    """An entry of a reader's words; long ones are its content."""
    if len(text) <= LONGEST and "\n" not in text:
        return HostEntry(kind, key, text, path)
    entry = HostEntry(kind, key, f"{text.count(chr(10)) + 1} lines", path, text.encode(errors="replace"))
    entry.sha256 = hashlib.sha256(entry.content or b"").hexdigest()
    return entry


def printable(text: str) -> str:
    """A text of one line, in which bytes that are no text are written with backslashes."""
    return text if text.isprintable() else text.encode("unicode_escape", "surrogateescape").decode()
