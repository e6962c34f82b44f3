"""Events on a host that explain several failures at once: package changes, a lost network, missing mounts."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checks.survey.host import common, mount_table

ROOT = Path("/")  # a test has a folder for a host
TAIL = 1 << 18  # bytes that are read of a log's end
LATEST = 30 * 86400  # seconds; older changes explain no failure of today
MOST = 200  # changes; an upgrade of a whole release has more, and its latest say what it was
FILES = 4000  # of all packages
MOMENT = "%Y-%m-%d %H:%M:%S"
# dpkg(1), --log: `DATE TIME ACTION PACKAGE:ARCHITECTURE VERSION VERSION`
CHANGED = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) (install|upgrade|remove|purge) "
    r"([a-z0-9][a-z0-9+.-]{0,127}):[a-z0-9-]{1,32} (<none>|[A-Za-z0-9.+:~-]{1,128}) (<none>|[A-Za-z0-9.+:~-]{1,128})"
)
# /var/log/apt/history.log: blocks of `Name: value`
DATED = re.compile(r"(Start|End)-Date: ([0-9]{4}-[0-9]{2}-[0-9]{2})  ([0-9]{2}:[0-9]{2}:[0-9]{2})")
COMMAND = re.compile(r"Commandline: (?:[A-Za-z0-9_./+-]*/)?([A-Za-z0-9_.+-]{1,64})(?: .*)?")
REQUESTED = re.compile(r"Requested-By: ([a-z_][a-z0-9_-]{0,31}) \([0-9]{1,10}\)")
# files that a running process has open of a package: programs and libraries
LOADED = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[^/\s]{1,128}|/\S{1,200}\.so(?:\.[0-9.]{1,32})?")
MERGED = ("/bin/", "/sbin/", "/lib/", "/lib64/")  # links to /usr (hier(7))
ROUTE = re.compile(r"\S+\t00000000\t[0-9A-F]{8}\t([0-9A-F]{4})\t.*")
ROUTE_6 = re.compile(r"0{32} 00 0{32} 00 [0-9a-f]{32} [0-9a-f]{8} [0-9a-f]{8} [0-9a-f]{8} ([0-9a-f]{8}) +\S+")
UP, REJECT = 0x1, 0x200  # linux/route.h: RTF_UP and RTF_REJECT


@dataclass
class AptRun:
    """A block of apt's history."""

    begins: float = 0.0
    ends: float = 0.0
    program: str = ""
    user: str = ""


def look(_asked: dict[str, Any]) -> dict[str, object]:
    """All of it; nothing is asked."""
    now = time.time()
    return {
        "now": now,
        "monotonic": time.monotonic(),
        "changes": changes(now),
        "default_routes": default_routes(),
        "nameservers": len(re.findall(r"(?m)^nameserver\s+\S", common.begin(ROOT / "etc/resolv.conf"))),
        "unmounted": unmounted(),
    }


def tail(path: Path) -> list[str]:
    """The last complete lines of a log; none where it cannot be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return []
    try:
        size = os.fstat(opened).st_size
        data = os.pread(opened, TAIL, max(0, size - TAIL))
    except OSError:
        return []
    finally:
        os.close(opened)
    lines = common.text(data).split("\n")
    # the last one has no end, and the first one may have no begin
    return lines[1 if size > TAIL else 0 : -1]


def moment(text: str) -> float:
    """Seconds since 1970 of a time in the host's own zone; 0 for none."""
    try:
        return time.mktime(time.strptime(text, MOMENT))
    except (ValueError, OverflowError):
        return 0.0


def changes(now: float) -> list[dict[str, object]]:
    """The latest changes of packages."""
    log = ROOT / "var/log"
    lines = [*tail(log / "dpkg.log.1"), *tail(log / "dpkg.log")]
    runs = [*apt_runs(tail(log / "apt/history.log.1")), *apt_runs(tail(log / "apt/history.log"))]
    found: list[dict[str, object]] = []
    for line in lines:
        matched = CHANGED.fullmatch(line)
        if not matched:
            continue
        at = moment(matched[1])
        if not now - LATEST < at:
            continue
        before, after = (one if one != "<none>" else "" for one in matched.groups()[3:])
        run = next((one for one in reversed(runs) if one.begins <= at <= (one.ends or now) + 1), AptRun())
        found.append(
            {
                "moment": at,
                "action": matched[2],
                "package": matched[3],
                "before": before,
                "after": "" if matched[2] in ("remove", "purge") else after,
                "program": run.program,
                "user": run.user,
                "files": [],
            }
        )
    found = found[-MOST:]
    left = FILES
    for one in reversed(found):
        if one["before"] and one["after"]:
            files = package_files(str(one["package"]))[:left]
            left -= len(files)
            one["files"] = files
    return found


def apt_runs(lines: list[str]) -> list[AptRun]:
    """Runs of apt, by its history."""
    found: list[AptRun] = []
    for line in lines:
        if dated := DATED.fullmatch(line):
            at = moment(f"{dated[2]} {dated[3]}")
            if dated[1] == "Start":
                found.append(AptRun(begins=at))
            elif found:
                found[-1].ends = at
        elif found and (command := COMMAND.fullmatch(line)):
            found[-1].program = command[1]
        elif found and (requested := REQUESTED.fullmatch(line)):
            found[-1].user = requested[1]
    return found


def package_files(package: str) -> list[str]:
    """Programs and libraries of a package, by dpkg's list, where they are since /bin and /lib are links to /usr."""
    folder = ROOT / "var/lib/dpkg/info"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")
    text = common.read(folder / f"{package}.list") or common.read(folder / f"{package}:{machine}.list") or ""
    paths = (
        f"/usr{line}" if line.startswith(MERGED) else line for line in common.lines(text) if LOADED.fullmatch(line)
    )
    return sorted(set(paths))


def default_routes() -> int:
    """How many ways lead out of the host's networks."""
    old = [ROUTE.fullmatch(line) for line in common.lines(common.read(ROOT / "proc/net/route") or "")]
    new = [ROUTE_6.fullmatch(line) for line in common.lines(common.read(ROOT / "proc/net/ipv6_route") or "")]
    return sum(1 for one in [*old, *new] if one and int(one[1], 16) & UP and not int(one[1], 16) & REJECT)


def unmounted() -> list[str]:
    """Mount points of /etc/fstab that are mounted at boot and are not mounted now (fstab(5))."""
    mounted = {one.point for one in mount_table.list_mounts("self", str(ROOT).rstrip("/"))}
    table = mount_table.read_table(str(ROOT).rstrip("/"))
    wanted = [one for one in table if one.point.startswith("/") and one.kind != "swap" and "noauto" not in one.options]
    return sorted(one.point for one in wanted if one.point not in mounted)[:50]
