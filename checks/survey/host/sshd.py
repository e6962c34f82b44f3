"""Whom sshd lets in: who deploys, and nobody by a way that asks for no key of his own."""

from __future__ import annotations

import fnmatch
import glob
import grp
import ipaddress
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, dpkg, root_started_programs, scheduled_jobs

ROOT = ""  # a test has a folder for a host
PROC = "/proc"
FILES = ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf")
# What lets people in whom nobody gave a key, or lets them choose what a program of root's loads
OPEN = re.compile(
    r"(?i)(?:permitemptypasswords\s+yes|hostbasedauthentication\s+yes|ignorerhosts\s+no|permituserenvironment\s+(?!no\b)\S+|strictmodes\s+no"
    r"|acceptenv\s+(?:.*\s)?(?:LD_\S*|[*]\S*|BASH_ENV|PYTHON\S*|PATH)(?:\s.*)?"
    r"|setenv\s+(?:.*\s)?[\"']?(?:LD_\w+|GCONV_PATH|BASH_ENV|PYTHON\w+|PERL5\w+|PATH)=.*)$"
)
PLACES = re.compile(
    r"(?i)(?:authorizedkeysfile|trustedusercakeys|authorizedprincipalsfile|forcecommand|subsystem\s+\S+"
    r"|authorizedkeyscommand|authorizedprincipalscommand)\s+(.*)$"
)
SAYS_WHO = re.compile(r"(?i)authorized(?:keys|principals)command\s+(/\S+)")
# Packages whose program says whose keys are good: those of clouds and of directories
TOLD = (
    *("google-compute-engine-oslogin", "ec2-instance-connect", "sssd-common", "systemd", "systemd-userdbd"),
    *("libpam-aad", "aadsshlogin", "teleport"),
)
# Of its settings those that have a value whether or not somebody has set it
TOLD_ALWAYS = ("usedns", "permitrootlogin")
LISTS = ("allowusers", "denyusers", "allowgroups", "denygroups")


def wrong() -> Iterator[dict[str, str]]:
    """Lines of its settings by which others come in, and why who asks now could not come again."""
    for path in [Path(one) for pattern in FILES for one in sorted(glob.glob(f"{ROOT}{pattern}"))]:
        for line in common.lines(common.read(path) or ""):
            said = " ".join(line.split())
            if said and not said.startswith("#") and (OPEN.match(said) or others(said)):
                yield scheduled_jobs.describe_line(path, said)
    user, address = comer(os.getpid())
    if user:
        for why in shut(user, address):
            yield {"file": "sshd -T", "text": f"{user} from {address}: {why}"}


def others(line: str) -> bool:
    """Whether somebody else than root has a say in what a line names."""
    if (command := SAYS_WHO.match(line)) and not set(dpkg.owners([command[1]]).values()) & set(TOLD):
        return True
    place = PLACES.match(line)
    words = place[1].split() if place else []
    # of a path that is another one for each user, the folders before what differs
    fixed = (one if "%" not in one else one.partition("%")[0].rpartition("/")[0] for one in words)
    return any(root_started_programs.others(one) for one in fixed if one.startswith("/"))


def comer(pid: int) -> tuple[str, str]:
    """Who has logged in to start a process, and from which address; nobody where it was not by SSH."""
    found = ("", "")
    while pid > 1:
        given = common.begin(f"{PROC}/{pid}/environ").split("\0")
        address = next((one.partition("=")[2].split(" ")[0] for one in given if one.startswith("SSH_CONNECTION=")), "")
        status = common.read(f"{PROC}/{pid}/status") or ""
        number = re.search(r"^Uid:\s+(\d+)", status, re.MULTILINE)
        parent = re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)
        if address and number:
            with suppress(KeyError):
                found = (pwd.getpwuid(int(number[1])).pw_name, address)
        pid = int(parent[1]) if parent else 0
    return found


def shut(user: str, address: str) -> Iterator[str]:
    """Why sshd would not let a user in, by what its settings come to for him."""
    status, out, _ = common.ended("sshd", "-T", "-C", f"user={user},host={address},addr={address}", limit=10)
    if status:
        return  # that it cannot be read at all is another check's
    rows: dict[str, list[str]] = {}
    for line in common.lines(common.require_whole("sshd", out)):
        key, _, value = line.partition(" ")
        rows[key] = [*(rows.get(key, []) if key in LISTS else []), *value.split()]
    if not all(key in rows for key in TOLD_ALWAYS):
        raise RuntimeError("sshd does not tell all of its settings")
    groups = {str(one) for one in groups_of(user)}
    tried = {"users": lambda one: fits(one, user, address), "groups": lambda one: named(one, groups)}
    for key in LISTS:
        listed = rows.get(key, [])
        hit = any(tried[key.removeprefix("allow").removeprefix("deny")](one) for one in listed)
        # the name that sshd would find for the address is not known here
        may = rows.get("usedns") == ["yes"] and any(by_name(one, user) for one in listed)
        if listed and hit == key.startswith("deny") and (hit or not may):
            yield f"{key} {' '.join(listed)[:120]}"
    if user == "root" and rows.get("permitrootlogin", ["yes"])[0] in ("no", "forced-commands-only"):
        yield f"permitrootlogin {rows['permitrootlogin'][0]}"
    if (forced := " ".join(rows.get("forcecommand", []))) not in ("", "none"):
        yield f"forcecommand {forced[:120]}"
    if user != "root" and os.path.exists(f"{ROOT}/etc/nologin"):
        yield "/etc/nologin"


def groups_of(user: str) -> Iterator[str]:
    """Names of the groups that a user is in: those of a directory as well, which sshd asks, too."""
    with suppress(KeyError):
        own = pwd.getpwnam(user).pw_gid
        if ROOT:
            rows = common.rows(f"{ROOT}/etc/group", 4)
            yield from (row[0] for row in rows if row[2] == str(own) or user in row[3].split(","))
        else:
            yield from (common.named(grp.getgrgid, one) for one in os.getgrouplist(user, own))


def fits(pattern: str, user: str, address: str) -> bool:
    """Whether a pattern of AllowUsers is about somebody (sshd_config(5))."""
    if pattern.startswith("!"):
        return False
    name, _, place = pattern.rpartition("@") if "@" in pattern else (pattern, "", "*")
    if not fnmatch.fnmatchcase(user, name):
        return False
    with suppress(ValueError):
        return ipaddress.ip_address(address) in ipaddress.ip_network(place, strict=False)
    return fnmatch.fnmatchcase(address, place)


def by_name(pattern: str, user: str) -> bool:
    """Whether a pattern is about somebody from a host that it has the name of."""
    name, _, place = pattern.rpartition("@")
    return bool(name) and fnmatch.fnmatchcase(user, name) and ":" not in place and bool(re.search("[A-Za-z]", place))


def named(pattern: str, groups: set[str]) -> bool:
    """Whether one of the groups fits a pattern."""
    return any(fnmatch.fnmatchcase(one, pattern) for one in groups)
