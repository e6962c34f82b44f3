"""What the check of a host by itself decides: each function adds what does not hold, with the id of the check that a
controller makes of the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat

from .observed_host import Host, Unreadable

TYPE_CHECKING = False  # as in observed_host.py
if TYPE_CHECKING:
    from typing import Any

LIST_BYTES = 64 << 20  # of dpkg's list of packages, and of the kernel's of sockets
HEALTHY_PACKAGE = ("installed", "config-files", "not-installed")
RUNNING = ("active", "activating", "reloading")


def judge_generation(host: Host) -> None:
    """The current generation has the digest that was sealed, and systemd has read it."""
    if host.generation is None:
        host.fail("G01", "high", "", "`current` leads to no generation")
        return
    sums: list[tuple[str, str | None]] = []
    modes: list[tuple[str, str]] = []
    links: list[str] = []
    todo = [""]
    while todo:
        below = todo.pop()
        with os.scandir(host.path(host.folder) + below) as entries:
            for entry in entries:
                name = f"{below}/{entry.name}"
                if name in ("/meta", "/proven"):
                    continue
                if entry.is_symlink():
                    links.append(f"link {name[1:]} {os.readlink(entry.path)}")
                elif entry.is_dir():
                    todo.append(name)
                else:
                    sums.append((name[1:], host.sha256(host.folder + name)))
                    modes.append((name[1:], f"{stat.S_IMODE(entry.stat().st_mode):o}"))
    lines = [f"{digest}  {name}" for name, digest in sorted(sums)]
    lines += [f"mode {mode} {name}" for name, mode in sorted(modes)] + sorted(links)
    found = hashlib.sha256("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")).hexdigest()
    if found != (host.text(f"{host.folder}/meta").split() or [""])[0]:
        host.fail("G01", "high", "", f"files of generation {host.generation} were changed since it was written")
    if host.lstat(f"{host.declared['config']}/activating"):
        host.fail("G01", "high", "", "an interrupted activation")


def judge_units(host: Host) -> None:
    """Each unit of ours is loaded from its own file, without drop-ins, and starts at boot."""
    units, config = host.declared["unit_folder"], host.declared["config"]
    expected: dict[str, dict[str, Any] | None] = dict.fromkeys(host.unit_files)
    expected.update({one["unit"]: one for one in host.declared["units"]})
    for name, one in expected.items():
        path, shown = f"{units}/{name}", host.units[name]
        found = host.lstat(path)
        if one is None:
            right = found and stat.S_ISLNK(found.st_mode)
            right = right and os.readlink(host.path(path)) == f"{config}/current/units/{name}"
        else:
            right = found and stat.S_ISREG(found.st_mode) and host.sha256(path) == one["sha256"]
        if not right:
            host.fail("U01", "critical", "", f"{path} {'is not as deployed' if found else 'is missing'}")
        elif shown["LoadState"] != "loaded":
            host.fail("U01", "critical", "", f"{name} is {shown['LoadState']}")
        elif shown["FragmentPath"] != path:
            host.fail("U01", "critical", "", f"{name} is loaded from {shown['FragmentPath'] or 'nowhere'}")
        for added in shown["DropInPaths"].split():
            host.fail("U02", "critical", "", f"drop-in {added}")
        if shown["NeedDaemonReload"] == "yes":
            host.fail("G02", "high", "", f"systemd has read an older {name}")
    pulled = [("multi-user.target", "rigwright.target")] if host.generation is not None else []
    pulled += [(target, one["unit"]) for one in host.declared["units"] for target in one["wanted_by"]]
    for target, name in pulled:
        if not host.lstat(f"{units}/{target}.wants/{name}"):
            host.fail("U04", "critical", "", f"no link in {units}/{target}.wants points to {name}")


def judge_services(host: Host) -> None:
    """What runs is up, and was started from what the generation has; an instance stopped by hand may be down."""
    for name, one in host.manifest.get("instances", {}).items():
        if host.lstat(f"{host.declared['stopped']}/{name}"):
            continue
        for unit, digest in one["units"].items():
            has_failed = host.units.get(unit, {}).get("Result", "success") != "success"
            if one.get("on_demand") and host.active(unit) == "inactive" and not has_failed:
                continue  # asleep
            judge_instance(host, name, unit, digest)
    for one in host.manifest.get("gateway", []):
        if host.active(one["unit"]) not in RUNNING:
            host.fail("D02", "high", "", f"{one['unit']} is {host.active(one['unit']) or 'not there'}")
        elif started_from(host, one["unit"]) not in ("", one["started_from"]):
            host.fail("D02", "high", "", f"{one['unit']} was started with other settings")
    instances = {unit for one in host.manifest.get("instances", {}).values() for unit in one["units"]}
    for name in host.unit_files:
        active = host.active(name)
        if name.endswith((".socket", ".target")) and active != "active":
            host.fail("U09", "critical", "", f"{name} is {active or 'not there'}")
        elif active == "failed" and name not in instances:
            host.fail("U09", "critical", "", f"{name} has failed")
    for one in host.declared["units"]:
        active = host.active(one["unit"])
        if active == "failed" or (one["runs"] and active not in RUNNING):
            host.fail(one["check"], one["severity"], "", f"{one['unit']} is {active or 'not there'}")


def judge_instance(host: Host, name: str, unit: str, digest: str) -> None:
    """One instance without the marker of a stop by hand. Repeated failures are one finding until it serves."""
    active, sub = host.active(unit), host.units.get(unit, {}).get("SubState", "")
    before = host.previous_text("S01", name, unit)
    if (
        active not in (*RUNNING, "deactivating")
        or sub == "auto-restart"
        or (before and active not in ("active", "reloading"))
    ):
        result = host.units.get(unit, {}).get("Result", "")
        host.fail(
            "S01", "critical", name, before or f"{unit} is {active or 'not there'} ({sub or 'unknown'}, {result})"
        )
    elif active == "active" and started_from(host, unit) != digest:
        host.fail("S02", "high", name, f"{unit} was started from something else")


def started_from(host: Host, unit: str) -> str:
    """The digest that root has noted when it started a unit; empty for none."""
    return (host.text(f"{host.declared['started_from']}/{unit}").split("\n") or [""])[0]


def judge_ports(host: Host) -> None:
    """The declared ports have a listener."""
    wanted = [("S04", "critical", one["leads_to"], one["address"]) for one in host.manifest.get("listeners", [])]
    for one in host.manifest.get("gateway", []):
        for addresses in one["sockets"].values():
            wanted += [("D01", "critical", "", address) for address in addresses if address != "unix"]
    for one in host.declared["units"]:
        if one["listens"] and host.active(one["unit"]) == "active":
            wanted.append((one["listens"][0], "critical", "", one["listens"][1]))
    if not wanted:
        return
    ports: set[int] = set()
    for name in ("tcp", "tcp6"):
        # of the first process: this one has a network of its own
        for line in host.text(f"/proc/1/net/{name}", LIST_BYTES).split("\n")[1:]:
            words = line.split()
            if len(words) > 3 and words[3] == "0A":
                ports.add(int(words[1].rpartition(":")[2], 16))
    for check, severity, part, address in wanted:
        port = address.rpartition(":")[2]
        if port.isdecimal() and int(port) not in ports:
            host.fail(
                check, severity, part.removeprefix("rigwright-").removesuffix(".service"), f"no socket on {address}"
            )


def judge_files(host: Host) -> None:
    """Files of ours beside the generation have their bytes, mode and owner."""
    for path, (digest, mode, check, severity) in host.declared["files"].items():
        found = host.lstat(path)
        if not found:
            host.fail(check, severity, "", f"{path} is missing")
        elif not stat.S_ISREG(found.st_mode) or host.sha256(path) != digest:
            host.fail(check, severity, "", f"{path} is not as deployed")
        elif f"{stat.S_IMODE(found.st_mode):o}" != mode or (not host.root and found.st_uid):
            host.fail(check, severity, "", f"{path} has mode {stat.S_IMODE(found.st_mode):o} of user {found.st_uid}")


def judge_weights(host: Host) -> None:
    """Weights lie there with the size and time of the record that verified them; their bytes are not read."""
    models = host.declared["models"]
    for path, digest in host.manifest.get("weights", {}).items():
        below = path.removeprefix(f"{models}/")
        record = f"{digest}-{hashlib.sha256(below.encode()).hexdigest()[:12]}"
        words = host.text(f"{host.declared['records']}/{record}").split(" ", 4)
        part = below.rpartition("/")[2]
        found = host.lstat(path)
        if not found:
            host.fail("W01", "critical", part, f"{path} is missing")
        elif len(words) < 5:
            host.fail("W06", "high", part, f"no record of {path}")
        elif (words[0], words[1]) != (
            str(found.st_size),
            f"{found.st_mtime_ns // 10**9}.{found.st_mtime_ns % 10**9:09}",
        ):
            host.fail("W01", "critical", part, f"{path} was changed since it was verified")


def judge_packages(host: Host) -> None:
    """Packages are whole, those that the rig needs are installed, and the driver's are those of the last deploy."""
    record = json.loads(host.text(f"{host.declared['config']}/driver.json") or "{}")
    driver = record.get("packages") or {}
    held = host.text(host.declared["held"]).split()
    wanted = sorted({*host.declared["packages"], *driver, *held})

    def compute() -> dict[str, Any]:
        found: dict[str, list[str]] = {}
        broken: list[str] = []
        text = host.text("/var/lib/dpkg/status", LIST_BYTES)
        for block in text.split("\n\n"):
            match = re.match(r"Package: (\S+)\nStatus: (\S+) \S+ (\S+)\n", block)
            if not match:
                continue
            if match[3] not in HEALTHY_PACKAGE:
                broken.append(f"{match[1]} is {match[3]}")
            if match[1] in names and match[3] == "installed":
                version = re.search(r"^Version: (\S+)$", block, re.MULTILINE)
                found[match[1]] = [match[2], version[1] if version else ""]
        return {"wanted": wanted, "found": found, "broken": broken[:20]}

    names = frozenset(wanted)
    known = host.cached("/var/lib/dpkg/status", compute)
    if known is None:
        raise Unreadable("/var/lib/dpkg/status is missing")
    if known["wanted"] != wanted:
        known = host.cache["/var/lib/dpkg/status"][1] = compute()
    for text in known["broken"]:
        host.fail("B03", "high", "", text)
    for name in host.declared["packages"]:
        if name not in known["found"]:
            host.fail("B04", "high", "", f"{name} is not installed")
    for name, version in sorted(driver.items()):
        _, there = known["found"].get(name, ["", ""])
        if there != version:
            host.fail("N14", "high", "", f"{name} {there or 'is not installed'}, deployed was {version}")
    for name in held:
        if known["found"].get(name, ["hold"])[0] != "hold":
            host.fail("N15", "high", "", f"{name} is not held")


def judge_driver(host: Host) -> None:
    """The loaded module is the deployed one, and each declared card has answered it."""
    cards = host.declared["cards"]
    if not cards:
        return
    record = json.loads(host.text(f"{host.declared['config']}/driver.json") or "{}")
    loaded = host.text("/proc/driver/nvidia/version")
    if not loaded:
        host.fail("N02", "critical", "", "no module of the driver is loaded")
        return
    version = record.get("version")
    if version and version not in loaded.split():
        host.fail("N02", "critical", "", f"the loaded module is not {version}")
    there = len(os.listdir(host.path("/proc/driver/nvidia/gpus")))
    if there < cards:
        host.fail("N01", "critical", "", f"the driver has {there} of {cards} cards")


def judge_disks(host: Host) -> None:
    """File systems of our folders have room, are writable, and those of fstab are mounted."""
    rows = [line.split() for line in host.text("/proc/1/mountinfo").split("\n")]
    mounts = {unescape_path(row[4]): (row[5], row[-1]) for row in rows if len(row) > 6}
    for path, free in host.declared["disks"].items():
        try:
            found = os.statvfs(host.path(path))
        except OSError as error:
            host.fail("O08", "high", "", f"{path}: {error.strerror}")
            continue
        if found.f_bavail * found.f_frsize < free:
            host.fail("O08", "high", "", f"{path} has less than {free >> 20} MiB free")
        point = max((one for one in mounts if is_below(path, one)), key=len, default="")
        if point and any("ro" in options.split(",") for options in mounts[point]):
            host.fail("O08", "high", "", f"{path} is read-only")
    for line in host.text("/etc/fstab").split("\n"):
        words = line.split()
        if len(words) < 4 or words[0].startswith("#") or "noauto" in words[3].split(","):
            continue
        point = unescape_path(words[1])
        ours = any(is_below(path, point) or is_below(point, path) for path in host.declared["disks"])
        if ours and point not in mounts and point.startswith("/"):
            host.fail("M05", "critical", "", f"{point} of /etc/fstab is not mounted")


def unescape_path(word: str) -> str:
    """A path of mountinfo or fstab."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder, or below it."""
    return folder == "/" or path == folder or path.startswith(f"{folder}/")


JUDGEMENTS = (
    (judge_generation, "G01"),
    (judge_units, "U01"),
    (judge_services, "S01"),
    (judge_ports, "S04"),
    (judge_files, "O05"),
    (judge_weights, "W01"),
    (judge_packages, "B03"),
    (judge_driver, "N02"),
    (judge_disks, "O08"),
)
