"""known_hosts files as OpenSSH reads them (sshd(8)): a line that cannot be read hides no other line.

paramiko's own reader ends at the first line that it does not understand, knows no marker and no pattern.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paramiko
from paramiko.hostkeys import HostKeyEntry

LARGEST = 16 << 20
"""Bytes of a file; 100,000 hosts take 10 MB."""
SYSTEM_FILES = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
"""The files that OpenSSH reads in addition to the user's (GlobalKnownHostsFile)."""
AUTHORITY, REVOKED = "@cert-authority", "@revoked"


class RevokedKey(paramiko.PKey):
    """A key that a file revokes; it equals none, so that no host is taken for one that has it."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key

    def get_name(self) -> str:
        """The key's type."""
        return str(self.key.get_name())

    def asbytes(self) -> bytes:
        """The key itself."""
        return bytes(self.key.asbytes())

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return hash(self.asbytes())


class KeysOfHost(dict[str, paramiko.PKey]):
    """Key type -> key; paramiko takes the first type by its index."""

    def keys(self) -> Any:
        """The types, as a list."""
        return [*super().keys()]


class KnownHosts(paramiko.HostKeys):
    """Host keys of several files, the keys that these revoke, and the lines that were skipped."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[HostKeyEntry]
        self.revoked: set[bytes] = set()
        self.skipped: list[str] = []
        """FILE:LINE of each line that could not be read, or whose marker is not supported."""
        self.unreadable_revocations: list[str] = []
        """FILE:LINE of those of them that revoke a key: it may be any host's."""

    def load(self, filename: Any) -> None:
        """Add a file's lines; one that does not exist has none.

        Raises:
            OSError: the file exists and cannot be read: then nothing is known of any host.
        """
        path = Path(filename)
        if not path.exists():
            return
        with path.open("rb") as opened:
            content = opened.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OSError(f"{filename} has more than {LARGEST >> 20} MiB")
        for number, raw in enumerate(content.split(b"\n"), 1):
            line = raw.decode(errors="replace").strip()
            if line and not line.startswith("#") and not self._add_line(line, number):
                self.skipped.append(f"{filename}:{number}")
                if line.split(maxsplit=1)[0] == REVOKED:
                    self.unreadable_revocations.append(f"{filename}:{number}")

    def _add_line(self, line: str, number: int) -> bool:
        fields = line.split()
        marker = fields.pop(0) if line.startswith("@") else ""
        if marker not in ("", REVOKED):
            return False
        try:
            entry = HostKeyEntry.from_line(" ".join(fields), number)
        except Exception:
            return False
        if entry is None or entry.key is None:
            return False
        if marker:
            self.revoked.add(entry.key.asbytes())
        else:
            self._entries.append(entry)
        return True

    def is_revoked(self, key: paramiko.PKey) -> bool:
        """Whether a file revokes a key, for whatever host."""
        return key.asbytes() in self.revoked

    def refuse_unreadable_revocations(self) -> None:
        """Rely on no key while a line that revokes one cannot be read.

        Raises:
            paramiko.SSHException: there is such a line.
        """
        if self.unreadable_revocations:
            raise paramiko.SSHException(
                f"{self.unreadable_revocations[0]} revokes a host key and is not readable: correct or remove that "
                f"line. "
                "Rigwright has sent no data"
            )

    def lookup(self, hostname: str) -> Any:
        """Key type -> key of a host, or None; a revoked key in it equals no other.

        Raises:
            paramiko.SSHException: the host is known, and a line that revokes a key cannot be read.
        """
        found = super().lookup(hostname)
        if found is None:
            return None
        self.refuse_unreadable_revocations()
        return KeysOfHost({kind: RevokedKey(key) if self.is_revoked(key) else key for kind, key in found.items()})

    def _hostname_matches(self, hostname: str, entry: HostKeyEntry) -> bool:
        plain = [name for name in entry.hostnames if not name.startswith("|1|")]
        if any(name.startswith("!") and matches_pattern(hostname, name[1:]) for name in plain):
            return False
        if any(matches_pattern(hostname, name) for name in plain):
            return True
        return any(
            paramiko.HostKeys.hash_host(hostname, name) == name for name in entry.hostnames if name.startswith("|1|")
        )


def matches_pattern(hostname: str, pattern: str) -> bool:
    """Whether a host's name matches a pattern of known_hosts: `*` any characters, `?` one, nothing else special."""
    parts = re.split(r"([*?])", pattern.lower())
    regex = "".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(regex, hostname.lower()) is not None


_loaded: dict[tuple[str, ...], KnownHosts] = {}


def load_known_hosts(filenames: Iterable[str]) -> KnownHosts:
    """The host keys of files and of the system's own, each file read once a run.

    A declared host key stands alone: with /dev/null as the only file, the system's are not read.

    Raises:
        paramiko.SSHException: a file exists and cannot be read.
    """
    names = tuple(filenames)
    if names != (os.devnull,):
        names = (*names, *SYSTEM_FILES)
    if names not in _loaded:
        made = KnownHosts()
        for name in names:
            try:
                made.load(name)
            except OSError as error:
                raise paramiko.SSHException(f"known_hosts cannot be read: {error}") from None
        _loaded[names] = made
    return _loaded[names]
