"""State in force that files decide: listeners of units, mounts, sshd's settings, the manager's environment.

A row is explained by the file that decides it, as long as that file is explained: a change by hand has no such file.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress

from checks.survey.host import common, dpkg, packaged_modes
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.host_entry import HostEntry

SSHD = "/etc/ssh/sshd_config"
TRANSIENT = "/run/systemd/transient"
RECORDER = re.compile(r"rigwright_memory-[a-z0-9][a-z0-9-]{0,47}-[0-9a-f]{32}[.]service")
RECORDING = re.compile(
    r"ExecStart=@?/usr/bin/python3 (?:/usr/bin/python3 )?-I -S -B (?:-X pycache_prefix=/dev/null )?"
    r"((?:/[\w.-]+){1,16}/generations/[0-9]{1,9}/memory/recorder)(?: [\w./@-]{1,300}){5}"
)
"""The command of the recorder of a start's memory (templates/serving/memory.sh.j2), without quotes."""
TRIED = 120.0
"""Seconds: a check tries nothing for longer."""
UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system")
PORTS = {
    "/usr/sbin/sshd": ("tcp *:22",),
    "/usr/lib/systemd/systemd-resolved": tuple(
        f"{kind} 127.0.0.{last}:53" for kind in ("tcp", "udp") for last in (53, 54)
    ),
    "/usr/sbin/chronyd": ("udp 127.0.0.1:323", "udp [::1]:323"),
    "/usr/lib/systemd/systemd-networkd": ("udp *:68", "udp *:546"),
    "/usr/sbin/dhclient": ("udp *:68",),
}
"""Packaged program -> where it listens by its package's settings."""
PATHS = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
)
LOCALE = re.compile(r"(?:LANG|LC_[A-Z]+|LANGUAGE)=[\w.@-]+|TZ=[\w/+-]+|TERM=[\w-]+")
MODES = {
    "passwd": ("file 0644 root:root",),
    "group": ("file 0644 root:root",),
    "shadow": ("file 0640 root:shadow", "file 0600 root:root", "file 0600 root:shadow"),
    "gshadow": ("file 0640 root:shadow", "file 0600 root:root", "file 0600 root:shadow"),
    "opasswd": ("file 0600 root:root",),
    "subuid": ("file 0644 root:root", "file 0600 root:root"),
    "subgid": ("file 0644 root:root", "file 0600 root:root"),
}
"""Modes of account databases and their backups, as base-passwd and passwd make them."""
CONTAINER = ("/run/host", "/run/host/*", "/proc/kmsg", "/proc/sys/kernel/random/boot_id", "/dev", "/tmp")  # noqa: S108


def attribute_live(host: Attribution) -> None:
    """Explain rows that are no files."""
    explainers: dict[str, Callable[[Attribution, HostEntry], str]] = {
        "account_database_files": _database_file,
        "sshd": _sshd_setting,
        "systemd_settings": _environment,
        "mounts": _mount,
        "listeners": _listener,
        "units": _transient_unit,
        "network_hooks": _shared_address,
    }
    for entry in host.entries:
        explainer = explainers.get(entry.kind)
        if explainer is None or (entry.origin and entry.kind != "listeners"):
            continue
        if found := explainer(host, entry):
            host.explain(entry, found)
        elif entry.kind == "listeners":
            entry.origin = ""


def _transient_unit(host: Attribution, entry: HostEntry) -> str:
    """A unit that a deploy or a check has started: a job with root's record, or a try of this moment."""
    name = entry.path.rpartition("/")[2]
    if entry.path == f"{TRANSIENT}/{name}" and RECORDER.fullmatch(name):
        return "rigwright" if _starts_recorder(f"{dpkg.ROOT}{entry.path}") else ""
    if entry.path != f"{TRANSIENT}/{name}" or not re.fullmatch(r"rw-(?:job|check)-[\w.@-]+[.]service", name):
        return ""
    if name.startswith("rw-check-"):
        return "rigwright" if 0 <= time.time() - entry.ctime < TRIED else ""
    words = name.removesuffix(".service").split("-")
    # a step of a job has its name and one more word
    for folder in host.deployed.get("jobs", {}):
        for end in (len(words), len(words) - 1):
            with suppress(OSError):
                if os.lstat(f"{dpkg.ROOT}{folder}/{'-'.join(words[:end])}/script").st_uid == packaged_modes.OWNER:
                    return "rigwright"
    return ""


def _starts_recorder(path: str) -> bool:
    """Whether a transient unit starts only the recorder of a generation's starts, which is root's."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.replace('"', "").strip() for line in file.read(1 << 16).splitlines()]
    except OSError:
        return False
    started = [RECORDING.fullmatch(line) for line in lines if line.startswith("Exec") and line != "ExecStart="]
    if len(started) != 1 or started[0] is None:
        return False
    try:
        return os.lstat(f"{dpkg.ROOT}{started[0][1]}/__main__.py").st_uid == packaged_modes.OWNER
    except OSError:
        return False


def _shared_address(host: Attribution, entry: HostEntry) -> str:
    """An address that a gateway shares with another one, and the socket by which its keepalived announces it."""
    socket = re.fullmatch(r"packet socket of (/usr/sbin/keepalived) of (rigwright_keepalived\.service)", entry.key)
    path = _unit_path(host, socket[2]) if socket else ""
    ours = path in host.by_path and host.by_path[path].origin == "rigwright"
    return "rigwright" if ours or entry.key in host.deployed.get("addresses", {}) else ""


def _database_file(host: Attribution, entry: HostEntry) -> str:
    name = entry.path.rpartition("/")[2].rstrip("-")
    return "package base-passwd" if entry.state in MODES.get(name, ()) else ""


def _environment(host: Attribution, entry: HostEntry) -> str:
    if entry.key != "environment of systemd's manager" or entry.content is None:
        return ""
    rows = common.lines(common.text(entry.content))
    known = all(
        LOCALE.fullmatch(row) or row.partition("PATH=")[::2] in [("", path) for path in PATHS] for row in rows if row
    )
    return "derived from systemd" if known else ""


def sshd_values(text: str) -> dict[str, set[str]]:
    """Setting -> words of its values, of the part of a file that holds for all logins (sshd_config(5))."""
    found: dict[str, set[str]] = {}
    for line in common.lines(text):
        words = line.replace("=", " ", 1).split()
        if words[:1] and words[0].lower() == "match":
            break
        if len(words) > 1 and not words[0].startswith("#"):
            found.setdefault(words[0].lower(), set()).update(word.strip('"') for word in words[1:])
    return found


def _sshd_setting(host: Attribution, entry: HostEntry) -> str:
    """A setting that a packaged file of sshd's makes."""
    if not entry.key.startswith("sshd "):
        return ""
    name = entry.key.removeprefix("sshd ")
    wanted = {word for value in entry.state.split("; ") for word in value.split()}
    for path in sorted(path for path in host.by_path if path == SSHD or path.startswith(f"{SSHD}.d/")):
        if host.by_path[path].origin:
            values = sshd_values(common.begin(f"{dpkg.ROOT}{path}")).get(name)
            if values and wanted == values:
                return f"derived from {path}"
    return ""


def unit_of_mount(place: str) -> str:
    """The name of a mount's unit (systemd-escape(1))."""
    words = place.strip("/") or "-"
    escaped = re.sub(r"[^A-Za-z0-9:_./]", lambda one: "".join(f"\\x{byte:02x}" for byte in one[0].encode()), words)
    return ("-" if words == "-" else escaped.replace("/", "-")) + ".mount"


def _mount(host: Attribution, entry: HostEntry) -> str:
    """A mount that fstab(5), a packaged unit, a deploy or the container's manager makes."""
    place = re.sub(r" \(\d+\)$", "", entry.key.removeprefix("mount "))
    if place == entry.key:
        return ""
    kind, source, *rest = [*entry.state.split(" "), "", ""]
    for folder, prefix in host.deployed.get("mounts", {}).items():
        if os.path.dirname(place) == folder and kind == "tmpfs" and source.startswith(prefix):
            return "rigwright"
    if kind == "tmpfs" and source and host.deployed.get("mount_points", {}).get(place) == source:
        return "rigwright"
    if kind == "proc" and source == "proc" and rest[:1] == [place.removeprefix("/proc")]:
        return "derived from the kernel"
    for line in common.lines(common.begin(f"{dpkg.ROOT}/etc/fstab")):
        words = line.split()
        if (
            len(words) > 2
            and not line.startswith("#")
            and words[1].rstrip("/") == place.rstrip("/")
            and words[2] in (kind, "auto")
        ):
            return "derived from /etc/fstab" if _is_device(words[0], source) else ""
    for folder in UNIT_FOLDERS:
        path = f"{folder}/{unit_of_mount(place)}"
        if host.is_explained(path):
            text = common.begin(f"{dpkg.ROOT}{path}")
            if re.search(rf"(?m)^Where={re.escape(place)}\s*$", text) and re.search(
                rf"(?m)^Type={re.escape(kind)}\s*$", text
            ):
                return f"derived from {path}"
    nested = common.begin(f"{dpkg.ROOT}/run/systemd/container").strip() == "systemd-nspawn"
    if nested and any(place == one or (one.endswith("*") and place.startswith(one[:-1])) for one in CONTAINER):
        return "derived from the container's manager"
    return ""


def _is_device(declared: str, source: str) -> bool:
    """Whether fstab's first field is a mounted device."""
    name, separator, value = declared.partition("=")
    folders = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}
    if separator and name in folders:
        return (
            os.path.realpath(f"{dpkg.ROOT}/dev/disk/{folders[name]}/{value.strip(chr(34))}").removeprefix(dpkg.ROOT)
            == source
        )
    return declared == source or os.path.realpath(f"{dpkg.ROOT}{declared}").removeprefix(dpkg.ROOT) == source


def _unit_path(host: Attribution, unit: str) -> str:
    """The file of a unit that something explains, where systemd finds it first; empty for none."""
    for name in (unit, re.sub(r"@[^.]*\.", "@.", unit)):
        for folder in UNIT_FOLDERS:
            path = f"{folder}/{name}"
            if os.path.lexists(f"{dpkg.ROOT}{path}"):
                return path if host.is_explained(path) else ""
    return ""


def _fits(place: str, pattern: str) -> bool:
    """Whether a listener's key fits a pattern; `*` in it stands for every address."""
    if "*" not in pattern:
        return place == pattern
    kind, _, port = pattern.partition(" *:")
    return place in (f"{kind} 0.0.0.0:{port}", f"{kind} [::]:{port}")


def _listener(host: Attribution, entry: HostEntry) -> str:
    """A listener whose programs are those of explained units: ours, or packaged ones where their packages have them."""
    holders = [holder.partition(" of ")[::2] for holder in entry.state.split("; ")]
    found = ""
    for program, unit in holders:
        if unit == "init.scope" and program == "/usr/lib/systemd/systemd":
            path = _socket_unit(host, entry.key)
        else:
            path = _unit_path(host, unit)
        if not path:
            return ""
        origin = host.by_path[path].origin if path in host.by_path else "package"
        by_default = any(_fits(entry.key, pattern) for pattern in PORTS.get(program, ()))
        if origin != "rigwright" and not (by_default or unit == "init.scope"):
            return ""
        found = "rigwright" if origin == "rigwright" else found or f"derived from {path}"
    return found


def _socket_unit(host: Attribution, key: str) -> str:
    """The socket unit that has a listener by its address and port; empty for none that is explained."""
    place = key.partition(" ")[2]
    for folder in UNIT_FOLDERS:
        try:
            names = sorted(name for name in os.listdir(f"{dpkg.ROOT}{folder}") if name.endswith(".socket"))
        except OSError:
            continue
        for name in names:
            text = common.begin(f"{dpkg.ROOT}{folder}/{name}")
            listens = re.findall(r"(?m)^Listen(?:Stream|Datagram)=(\S+)\s*$", text)
            shown = {f"0.0.0.0:{one}" if one.isdecimal() else one for one in listens}
            shown |= {f"[::]:{one}" for one in listens if one.isdecimal()}
            if place in shown and host.is_explained(f"{folder}/{name}"):
                return f"{folder}/{name}"
    return ""
