"""Entries of the fingerprint that are rows of a file or settings in force; `live_entries` has those of the kernel."""

from __future__ import annotations

import base64
import binascii
import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

from checks.survey.host import (
    common,
    entry_files,
    entry_privileges,
    ledger_entries,
    live_entries,
    process_entries,
    secret_entries,
)
from checks.survey.host.host_entry import LONGEST, HostEntry, text_entry
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
Reader = Callable[[str, dict[str, Any]], Iterable[HostEntry]]
DATABASES = ("passwd", "shadow", "group", "gshadow", "security/opasswd")
ALGORITHMS = {
    **{"1": "md5crypt", "2": "bcrypt", "2a": "bcrypt", "2b": "bcrypt", "2y": "bcrypt", "5": "sha256crypt"},
    **{"6": "sha512crypt", "7": "scrypt", "y": "yescrypt", "gy": "gost-yescrypt"},
}
KEY_TYPE = re.compile(r"(?:^|[\s,\"])((?:ssh|ecdsa|sk)-[a-z0-9@.-]+)[ \t]+([A-Za-z0-9+/=]+)(?:[ \t]+(.*))?$")
MOST_ROWS = 20_000  # of a file
MOST_CONTAINERS = 500
MOST_MATCHED = 40  # users that Match blocks of sshd are asked for
SSHD_FILES = ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*")
MATCH = re.compile(r"(?im)^\s*match\b(?!\s+all\s*$)")
RIGHTS = ("PidMode", "NetworkMode", "IpcMode", "UTSMode", "UsernsMode", "CgroupnsMode")


def _rows(name: str) -> list[list[str]]:
    text = common.read(f"{ROOT}/etc/{name}") or ""
    return [line.split(":") for line in common.lines(text)[:MOST_ROWS]]


def describe_password(field: str) -> str:
    """The state of a password, and by which algorithm it is kept; nothing of the password itself."""
    if not field:
        return "empty"
    bare = field.lstrip("!")
    if not bare or bare.startswith("*"):
        return "none"
    parts = bare.split("$")
    algorithm = ALGORITHMS.get(parts[1], "another algorithm") if len(parts) > 2 else "descrypt"
    return f"{'locked, ' if bare != field else ''}{algorithm}"


def accounts(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per account."""
    # of two rows, the C library takes the first
    shadow = {row[0]: row for row in reversed(_rows("shadow"))}
    for number, row in enumerate(_rows("passwd"), 1):
        if len(row) != 7:
            yield text_entry(kind, f"line {number}", "no account", "/etc/passwd")
            continue
        name, field, uid, gid, _name, home, shell = row
        aging = shadow.pop(name, [])
        field = field if field != "x" else (aging[1] if len(aging) > 1 else "*")
        state = f"uid={uid} gid={gid} home={home} shell={shell} password={describe_password(field)}"
        if len(aging) > 7 and aging[7]:
            state += f" expires={aging[7]}"
        entry = HostEntry(kind, f"user {name}", state, "/etc/passwd")
        if "$" in field or len(field) > 8:
            entry.sha256 = hashlib.sha256(field.encode(errors="surrogateescape")).hexdigest()
        yield entry
    for name, row in shadow.items():
        if len(row) > 1:
            state = f"no such account, password={describe_password(row[1])}"
            yield HostEntry(kind, f"password of {name}", state, "/etc/shadow")


def groups(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per group."""
    shadow = {row[0]: row for row in reversed(_rows("gshadow")) if len(row) == 4}
    for number, row in enumerate(_rows("group"), 1):
        if len(row) != 4:
            yield text_entry(kind, f"line {number}", "no group", "/etc/group")
            continue
        name, field, gid, members = row
        hidden = shadow.get(name, ["", "*", "", ""])
        state = f"gid={gid} members={members}"
        field = hidden[1] if field in ("x", "*", "!", "") else field
        if describe_password(field) != "none" and field:
            state += f" password={describe_password(field)}"
        if hidden[2]:
            state += f" administrators={hidden[2]}"
        if set(hidden[3].split(",")) - set(members.split(",")) - {""}:
            state += f" shadow members={hidden[3]}"
        yield HostEntry(kind, f"group {name}", state, "/etc/group")


def account_database_files(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Modes and owners of the files that the rows come from, and of their backups."""
    for name in (*DATABASES, *(f"{one}-" for one in (*DATABASES, "subuid", "subgid"))):
        with suppress(OSError):
            path = f"/etc/{name}"
            entry = entry_files.describe_file(kind, path, os.lstat(f"{ROOT}{path}"))
            entry_files.describe_attributes(entry)
            yield entry


@lru_cache(maxsize=MOST_MATCHED + 2)
def _sshd_rows(*options: str) -> dict[str, str]:
    """Setting -> its values, as sshd(8) has them by a file; the reason under "" where it does not tell."""
    status, out, err = common.ended("/usr/sbin/sshd", "-T", *options, limit=10)
    if status:
        return {"": (err.strip().splitlines() or [f"exit status {status}"])[-1]}
    found: dict[str, list[str]] = {}
    for line in common.lines(out):
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return {name: "; ".join(values) for name, values in found.items()}


def sshd_settings(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Settings of sshd in force that are not its defaults."""
    if not os.path.exists(f"{ROOT}/usr/sbin/sshd"):
        return
    now, default = _sshd_rows(), _sshd_rows("-f", "/dev/null")
    for name, value in now.items():
        if not name or value != default.get(name):
            yield text_entry(kind, f"sshd {name}".strip(), value or "none")
    for user in matched_users():
        for name, value in _sshd_rows(*_connection(user)).items():
            if value != now.get(name):
                yield text_entry(kind, f"sshd {name} for user {user}".replace("  ", " "), value or "none")


def _connection(user: str) -> tuple[str, str]:
    """Words by which sshd(8) tells the settings for a user."""
    return "-C", f"user={user},host=localhost,addr=127.0.0.1"


@lru_cache(maxsize=1)
def _matched_users(root: str) -> tuple[str, ...]:
    """Users with settings of their own in Match blocks of sshd_config(5).

    Args:
        root: The folder that stands for the host; empty for the host.
    """
    paths = [path for pattern in SSHD_FILES for path in sorted(glob.glob(f"{root}{pattern}"))]
    text = "\n".join(common.begin(path) for path in paths)
    if not MATCH.search(text):
        return ()
    words = {word for line in common.lines(text) if MATCH.match(line) for word in re.split(r"[\s,]+", line)}
    names = [row[0] for row in _rows("passwd") if len(row) == 7 and re.fullmatch(r"[\w.@-]+", row[0])]
    # those that a block names come first
    return tuple(sorted(names, key=lambda name: name not in words))[:MOST_MATCHED]


def matched_users() -> tuple[str, ...]:
    """The same of this host; none without a program that could tell."""
    return _matched_users(ROOT) if os.path.exists(f"{ROOT}/usr/sbin/sshd") else ()


def authorised_keys(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """A row per key that logs in as an account."""
    places = _sshd_rows().get("authorizedkeysfile", "").split() if os.path.exists(f"{ROOT}/usr/sbin/sshd") else []
    usual = places or [".ssh/authorized_keys", ".ssh/authorized_keys2"]
    matched = {user: _sshd_rows(*_connection(user)).get("authorizedkeysfile", "").split() for user in matched_users()}
    read: set[str] = set()
    for row in _rows("passwd"):
        if len(row) != 7:
            continue
        for place in dict.fromkeys([*usual, *matched.get(row[0], ())]):
            values = {"%h": row[5], "%u": row[0], "%U": row[2], "%%": "%"}
            path = re.sub("%.", lambda found, values=values: values.get(found[0], found[0]), place)  # type: ignore[misc]
            path = path if path.startswith("/") else f"{row[5].rstrip('/')}/{path}"
            if path not in read and not entry_files.is_silent(path):
                read.add(path)
                yield from _keys_in(kind, row[0], path)


def _keys_in(kind: str, user: str, path: str) -> Iterator[HostEntry]:
    try:
        status = os.lstat(f"{ROOT}{path}")
    except OSError:
        return
    yield entry_files.describe_file(kind, path, status)
    text = common.begin(f"{ROOT}{path}")
    rows = common.lines(text)
    if len(rows) > MOST_ROWS or len(text) >= common.BEGIN:
        # sshd reads all of it: the rest is known only by size and time
        with suppress(OSError):
            status = os.stat(f"{ROOT}{path}")
        state = f"longer than is read: {status.st_size} bytes, changed at {status.st_ctime_ns}"
        yield HostEntry(kind, f"{user} {path} {entry_files.BOUND}", state)
    for number, line in enumerate(rows[:MOST_ROWS], 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        matched = KEY_TYPE.search(words)
        try:
            content = base64.b64decode(matched[2], validate=True) if matched else b""
        except (binascii.Error, ValueError):
            content = b""
        if not matched or not content:
            yield text_entry(kind, f"{user} line {number} of {path}", "no key that is readable")
            continue
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        options = common.masked(words[: matched.start(1)].strip())
        state = " ".join(one for one in (matched[1], options and f"options {options}", matched[3] or "") if one)
        yield text_entry(kind, f"{user} SHA256:{digest}", state, path)


def manager_environment(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Variables that systemd gives to every service."""
    status, out, _err = common.ended("systemctl", "show-environment", limit=10)
    if status == 0:
        yield text_entry(kind, "environment of systemd's manager", "\n".join(sorted(common.lines(out))) + "\n")


def privileged_containers(kind: str, _: dict[str, Any]) -> Iterator[HostEntry]:
    """Docker's containers that have rights on the host, running or not."""
    folder = f"{ROOT}/var/lib/docker/containers"
    names = sorted(os.listdir(folder))[:MOST_CONTAINERS] if os.path.isdir(folder) else []
    for name in names:
        with suppress(ValueError, TypeError, AttributeError):
            host = json.loads(common.begin(f"{folder}/{name}/hostconfig.json"))
            config = json.loads(common.begin(f"{folder}/{name}/config.v2.json"))
            state = "; ".join(container_rights(host))
            if state:
                image = config.get("Config", {}).get("Image", "")
                yield text_entry(kind, f"container {config.get('Name', name)}", f"image {image}; {state}")


def container_rights(host: dict[str, Any]) -> Iterator[str]:
    """The permissions of a container on the host, by its settings."""
    if host.get("Privileged"):
        yield "privileged"
    yield from (f"{name} {host[name]}" for name in RIGHTS if str(host.get(name, "")).startswith(("host", "container:")))
    for name in ("CapAdd", "SecurityOpt", "Binds", "GroupAdd", "Devices", "DeviceCgroupRules"):
        if found := host.get(name):
            yield f"{name} {', '.join(sorted(json.dumps(one, sort_keys=True) for one in found))}"


READERS: dict[str, Reader] = {
    "accounts": accounts,
    "groups": groups,
    "account_database_files": account_database_files,
    "sshd_settings": sshd_settings,
    "authorised_keys": authorised_keys,
    "manager_environment": manager_environment,
    "privileged_containers": privileged_containers,
    "secret_copies": secret_entries.secret_copies,
    "ledger_lines": ledger_entries.ledger_lines,
    **live_entries.READERS,
    **process_entries.READERS,
}


def _read_class(kind: str, name: str, asked: dict[str, Any]) -> list[HostEntry]:
    try:
        return [*READERS[name](kind, asked)]
    except Exception as error:  # a reader that fails must not hide the entries of all others
        return [text_entry(kind, f"{name} (not readable)", f"{type(error).__name__}: {error}"[:LONGEST])]


def collect(asked: dict[str, Any], exclude: Callable[[HostEntry], bool]) -> list[HostEntry]:
    """Entries of all readers that the classes name.

    Args:
        asked: `classes`, each with `name` and `readers`; and what readers are to know.
        exclude: Whether the churn table leaves out an entry.
    """
    with Pool(4) as pool:
        calls = [
            pool.submit(_read_class, one["name"], reader, asked)
            for one in asked["classes"]
            for reader in one["readers"]
            if reader != entry_privileges.PRIVILEGED
        ]
        found = [entry for call in calls for entry in call.result()]
    return [entry for entry in found if not exclude(entry)]
