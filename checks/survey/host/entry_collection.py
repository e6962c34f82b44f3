"""The fingerprint's entries, from files and readers, without those that a host changes by itself."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from fnmatch import translate
from typing import Any

from checks.survey.host import common, entry_files, entry_privileges, entry_readers
from checks.survey.host.entry_digests import EntryDigests
from checks.survey.host.host_entry import HostEntry, printable

GROUPS = "/sys/fs/cgroup"
LONGEST_VALUE = 600  # characters


class EntryCollection:
    """Entries of a host, and what makes values of them."""

    def __init__(self, asked: dict[str, Any]) -> None:
        """Collect.

        Args:
            asked: `classes`, each with `name`, `paths`, `readers` and `secret`; `churn`, with `kind`, `keys`, `states`
                and `reason`; `folder` of key and cache; `nonce`, of this run; `deep`, whether all is read.
        """
        self.digests = EntryDigests(asked["folder"], deep=asked["deep"])
        asked = {**asked, "memory": self.digests.memory}
        self.asked = asked
        self.secret = {one["name"] for one in asked["classes"] if one["secret"]}
        self.excluded: dict[str, int] = {}
        self._churn = [
            (
                re.compile(translate(one["kind"])),
                re.compile("|".join(map(key_expression, one["keys"]))),
                re.compile(translate(one["states"])),
                one["reason"],
            )
            for one in asked["churn"]
            if not one.get("while_active") or any(map(is_active, one["while_active"]))
        ]
        self._churn_of: dict[str, list[tuple[re.Pattern[str], re.Pattern[str], str]]] = {}
        read = entry_readers.collect(asked, self.is_excluded)
        taken = {entry.path for entry in read if entry.path}
        files = entry_files.collect(asked, self.digests, self.is_excluded, taken)
        privileged = [
            entry
            for one in asked["classes"]
            if entry_privileges.PRIVILEGED in one["readers"]
            for entry in entry_privileges.collect(one["name"], files, self.digests)
            if not self.is_excluded(entry)
        ]
        self.entries: list[HostEntry] = [*read, *files, *privileged]
        known: dict[tuple[str, str], int] = {}
        for entry in self.entries:
            name = entry.kind, printable(entry.key)
            known[name] = known.get(name, 0) + 1
            entry.key = name[1] if known[name] == 1 else f"{name[1]} ({known[name]})"
            entry.state = printable(entry.state)

    def is_excluded(self, entry: HostEntry) -> bool:
        """Whether the churn table leaves out an entry; counts it."""
        if entry.kind not in self._churn_of:
            self._churn_of[entry.kind] = [row[1:] for row in self._churn if row[0].match(entry.kind)]
        for keys, states, reason in self._churn_of[entry.kind]:
            if keys.match(entry.key) and states.match(entry.state):
                self.excluded[reason] = self.excluded.get(reason, 0) + 1
                return True
        return False

    def complete(self, entries: list[HostEntry]) -> None:
        """Read those that were left unread, as nothing explains them."""
        for entry in entries:
            if entry.unread:
                entry_files.describe_attributes(entry)
                entry_files.read_entry(entry, self.digests)

    def value(self, entry: HostEntry) -> str:
        """The present entries, by the host's key."""
        digest = self.digests.keyed(entry.sha256.encode()) if entry.sha256 else ""
        return f"{entry.state[:LONGEST_VALUE]} {digest}".rstrip()

    def run_value(self, entry: HostEntry) -> str:
        """The same by the run's nonce; of a secret it is the host's alone, so that no run tells it to be another's."""
        content = self.value(entry) if entry.kind in self.secret else f"{entry.state}\n{entry.sha256}"
        text = content.encode(errors="replace")
        return hmac.new(str(self.asked["nonce"]).encode(), text, hashlib.sha256).hexdigest()[:32]


def is_active(name: str) -> bool:
    """Whether a service of the system has processes, or a program is there.

    Args:
        name: Of the service, or the path of the program.
    """
    if name.startswith("/"):
        return os.path.exists(f"{entry_files.ROOT}{name}")
    events = common.read(f"{GROUPS}/system.slice/{name}/cgroup.events") or ""
    return "populated 1" in common.lines(events)


def key_expression(pattern: str) -> str:
    """A pattern of keys as an expression; a `*` of a path ends with its name."""
    parts = re.split(r"(\*\*|\*|\?|\[[^]]+\])", pattern)
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    made = (words.get(one) or (one if one.startswith("[") else re.escape(one)) for one in parts)
    return f"(?s:{''.join(made)})\\Z"
