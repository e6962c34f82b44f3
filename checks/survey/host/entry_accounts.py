"""Accounts and groups that packages and deploys make: rows of passwd(5) and group(5)."""

from __future__ import annotations

import glob
import re

from checks.survey.host import common, dpkg
from checks.survey.host.entry_attribution import Attribution

SYSTEM = 1000
"""The first user that is a person's (login.defs(5), SYS_UID_MAX)."""
SHELLS = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false", "/usr/bin/false")
ORDINARY_GROUPS = ("1", "65534")
"""Groups of daemons without one of their name: daemon and nogroup."""
MASTERS = ("/usr/share/base-passwd/passwd.master", "/usr/share/base-passwd/group.master")
SYSUSERS = ("/usr/lib/sysusers.d", "/etc/sysusers.d")
PLAIN_GROUP = re.compile(r"gid=\d+ members=\S*")
"""State of a group without password, administrators or members of gshadow(5) alone: packages set none."""
MAKERS = re.compile(r"\b(?:adduser|useradd|addgroup|groupadd|systemd-sysusers|dpkg-statoverride)\b")


def attribute_accounts(host: Attribution) -> None:
    """Explain rows of users and groups."""
    rows = [entry for entry in host.entries if entry.kind in ("accounts", "groups") and not entry.origin]
    if not rows:
        return
    # of two rows, the C library takes the first; the entry of the second has a number, and nothing explains it
    users = {row[0]: row for row in reversed(common.rows(f"{dpkg.ROOT}/etc/passwd", 7))}
    groups = {row[0]: row for row in reversed(common.rows(f"{dpkg.ROOT}/etc/group", 4))}
    shadow = {row[0]: row[1] for row in reversed(common.rows(f"{dpkg.ROOT}/etc/shadow", 9))}
    declared = AccountSources(host)
    for entry in rows:
        name = entry.key.partition(" ")[2]
        if entry.kind == "accounts" and name in users:
            found = declared.user_origin(users[name], shadow.get(name, users[name][1]), groups)
        elif entry.kind == "groups" and name in groups and PLAIN_GROUP.fullmatch(entry.state):
            found = declared.group_origin(groups[name], users)
        else:
            continue
        if found:
            host.explain(entry, found)


class AccountSources:
    """The accounts of packages, read when they are needed."""

    def __init__(self, host: Attribution) -> None:
        self.host = host
        self.users = {row[0]: row for row in self._master(MASTERS[0], 7)}
        self.groups = {row[0]: row for row in self._master(MASTERS[1], 4)}
        self.declared_users: dict[str, tuple[str, str, str]] = {}
        """Name -> home, shell, and the file that declares it."""
        self.declared_groups: dict[str, str] = {}
        self.members: dict[tuple[str, str], str] = {}
        self._sysusers()
        self._scripts: list[tuple[str, str]] | None = None

    def _master(self, path: str, fields: int) -> list[list[str]]:
        text = common.text(self.host.packaged(path) or b"")
        return [row for line in common.lines(text) if len(row := line.split(":")) == fields]

    def _sysusers(self) -> None:
        for folder in SYSUSERS:
            for path in sorted(glob.glob(f"{dpkg.ROOT}{folder}/*.conf")):
                place = path.removeprefix(dpkg.ROOT)
                content = self.host.packaged(place)
                for line in common.lines(common.text(content or b"")):
                    words = re.findall(r'"[^"]*"|\S+', line)
                    if len(words) < 2 or words[0][:1] not in "ugm":
                        continue
                    kind, name = words[0][:1], words[1]
                    rest = [word.strip('"') for word in words[2:]] + ["-"] * 4
                    if kind == "u":
                        home, shell = (value if value != "-" else "" for value in (rest[2], rest[3]))
                        self.declared_users[name] = (home or "/", shell or SHELLS[0], place)
                        self.declared_groups[name] = place
                    elif kind == "g":
                        self.declared_groups[name] = place
                    else:
                        self.members[name, rest[0]] = place

    def script_origin(self, name: str) -> str:
        """The archived package whose script makes an account of this name; empty for none."""
        if self._scripts is None:
            self._scripts = []
            for base in sorted(self.host.index.archives):
                script = self.host.script(base)
                if MAKERS.search(script):
                    self._scripts.append((base, script))
        pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
        return next((base for base, script in self._scripts if pattern.search(script)), "")

    def user_origin(self, row: list[str], password: str, groups: dict[str, list[str]]) -> str:
        """The explanation of a user: it has no password, and all else is as a package or a deploy made it."""
        name, _, uid, gid, _, home, shell = row
        if not password.startswith(("*", "!")):
            return ""
        if password.startswith("!") and len(password.lstrip("!")) > 1:
            # a locked password may be unlocked again: it was in use
            return ""
        master = self.users.get(name)
        if master and [uid, gid, home, shell] == [master[2], master[3], master[5], master[6]]:
            return "package base-passwd"
        if not uid.isdecimal() or not 0 < int(uid) < SYSTEM:
            return ""
        if declared := self.host.deployed.get("accounts", {}).get(name):
            return "rigwright" if home == declared and shell in SHELLS else ""
        if gid not in (*ORDINARY_GROUPS, *groups.get(name, ["", "", ""])[2:3]):
            return ""
        if wanted := self.declared_users.get(name):
            return f"derived from {wanted[2]}" if (home, shell) == wanted[:2] or shell in SHELLS else ""
        if shell not in SHELLS:
            return ""
        origin = self.script_origin(name)
        return f"derived from the scripts of package {origin}" if origin else ""

    def group_origin(self, row: list[str], users: dict[str, list[str]]) -> str:
        """The explanation of a group: its number, and that each of its members was put there by a package."""
        name, password, gid, listed = row
        if password not in ("x", "*", "!", ""):
            return ""
        for member in filter(None, listed.split(",")):
            declared = (member, name) in self.members
            if not declared and name not in self.host.deployed.get("groups", {}).get(member, "").split(","):
                return ""
        if name in self.groups:
            return "package base-passwd" if self.groups[name][2] == gid else ""
        if not gid.isdecimal() or not 0 < int(gid) < SYSTEM:
            return ""
        if name in self.host.deployed.get("accounts", {}):
            return "rigwright"
        if name in self.declared_groups:
            return f"derived from {self.declared_groups[name]}"
        origin = self.script_origin(name)
        return f"derived from the scripts of package {origin}" if origin else ""
