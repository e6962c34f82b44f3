"""One entry of a host's fingerprint while it is collected and attributed; `checks/survey/fingerprint.py` has the answer."""

from __future__ import annotations


class HostEntry:
    """One entry: collected first, then attributed."""

    __slots__ = ("content", "ctime", "key", "kind", "md5", "origin", "expected_from", "path", "problem", "state")

    def __init__(self, kind: str, key: str, state: str, path: str = "", content: bytes | None = None) -> None:
        self.kind, self.key = kind, key
        self.state = state
        """Kind, mode, owner and group of a file, a link's target, or a reader's words: what is no content."""
        self.path = path
        """The file that it is or comes from; empty for kernel state."""
        self.content = content
        """Of a file, as far as it was read; None where the cache knows its digests or it has none."""
        self.md5 = ""
        """Of the content, as dpkg has it."""
        self.ctime = 0.0
        self.origin = ""
        """What explains it: `package NAME`, `rigwright`, `derived from ...`; empty for nothing."""
        self.expected_from = ""
        """The package or derivation that it differs from."""
        self.problem = ""
        """Why it can never be accepted."""
