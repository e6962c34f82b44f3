"""What the next boot makes of the kernel and of the host's own units, by the files that it reads in their order."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from checks.survey.host import common, dpkg

# What systemd, udev and kmod read, the first of the same name counting (modprobe.d(5), sysctl.d(5), udev(7))
PARTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
# Of which services and deploys need more than that
FEWEST = {"kernel.threads-max": 4096, "kernel.pid_max": 4096, "fs.file-max": 65536, "fs.nr_open": 65536}
FEWEST |= {f"user.max_{name}_namespaces": 64 for name in ("user", "mnt", "net", "ipc", "pid", "uts", "cgroup")}
FEWEST |= {"vm.max_map_count": 65530, "net.core.somaxconn": 128}
# ...which with these are refused memory, or have none that is whole
BAD = {"vm.overcommit_memory": "2", "vm.panic_on_oom": "1", "kernel.modules_disabled": "1"}
SYSCTL = "/proc/sys/"
LINK, NAMED = re.compile(r"^Name=(\S+)$"), re.compile(r'SUBSYSTEM=="net".*\bNAME:?="([^"$%]+)"')
CARD = re.compile("(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}")
OFF = re.compile(r"(?:blacklist\s+|install\s+)([\w-]+)(?:\s+/(?:usr/)?bin/(?:true|false)\b.*)?$")
STARTS = re.compile(r"Exec(?:Start|StartPre|Condition)\s*=\s*[-+!@:|]*(/\S+)")
HELPERS = {
    "modprobe": (
        "modprobe.d",
        re.compile(r"(?:install|remove)\s+\S+\s+(?P<modprobe>/(?!(?:usr/)?bin/(?:true|false)\b)\S+)"),
    ),
    "binfmt": ("binfmt.d", re.compile(r"(.)(?:[^:]*\1){5}(?P<binfmt>[^:]*)")),
}
# Numbers of machines whose programs a kernel runs itself, as they lie in a file (elf.h)
MACHINES = {"x86_64": (b"\x3e\0", b"\x03\0"), "aarch64": (b"\xb7\0", b"\x28\0")}


def parts(folder: str, suffix: str) -> list[list[str]]:
    """Each name's files in a folder of PARTS, the one that counts first; by name."""
    names: dict[str, list[str]] = {}
    for part in PARTS:
        if part == "/lib" and os.path.islink(f"{dpkg.ROOT}/lib"):
            continue
        for path in glob.glob(f"{dpkg.ROOT}{part}/{folder}/*{suffix}"):
            names.setdefault(os.path.basename(path), []).append(path.removeprefix(dpkg.ROOT))
    return [names[name] for name in sorted(names)]


def lines(path: str, joined: bool = True) -> list[str]:
    """What a file says, without remarks."""
    said = [
        line for line in common.lines(common.read(f"{dpkg.ROOT}{path}") or "") if line.strip()[:1] not in ("#", ";")
    ]
    # a remark ends with its line, whatever that ends with
    text = "\n".join(said).replace("\\\n", " ") if joined else "\n".join(said)
    return [" ".join(line.split()) for line in text.split("\n") if line.strip()]


def risky() -> list[list[str]]:
    """(file, line) of settings of the kernel's that the next boot makes, and that open or starve what is ours."""
    found = []
    for first, *_ in [*parts("sysctl.d", ".conf"), ["/etc/sysctl.conf"]]:
        for line in lines(first, joined=False):
            key, _, value = (part.strip() for part in line.lstrip("-").partition("="))
            if odd(key, value):
                found.append([first, line])
    for first, *_ in parts("tmpfiles.d", ".conf"):
        # what is written there is a setting, too (tmpfiles.d(5))
        for line in lines(first):
            words = line.split(" ", 6)
            writes = words[0][:1] == "w" and len(words) == 7 and words[1].startswith(SYSCTL)
            if writes and odd(words[1].removeprefix(SYSCTL), words[6]):
                found.append([first, line])
    found += helpers()
    now = (common.read(f"{dpkg.ROOT}/proc/sys/kernel/core_pattern") or "").strip()
    return found + ([["/proc/sys/kernel/core_pattern", now]] if piped("kernel.core_pattern", now) else [])


def helpers() -> list[list[str]]:
    """(file, line) by which a module that is wanted, or a file that is run, has a program started that no package has
    brought (modprobe.d(5), binfmt.d(5)).
    """
    said: list[tuple[str, str, str]] = []
    for kind, (folder, form) in HELPERS.items():
        for first, *_ in parts(folder, ".conf"):
            said += [(first, line, found[kind]) for line in lines(first) if (found := form.match(line))]
    for path in sorted(glob.glob(f"{dpkg.ROOT}/proc/sys/fs/binfmt_misc/*")):
        text = common.read(path) or ""
        if (found := re.search("^interpreter (/.*)$", text, re.MULTILINE)) and not of_others(text):
            said.append((path.removeprefix(dpkg.ROOT), found[0], found[1]))
    ends = {one[2]: os.path.realpath(f"{dpkg.ROOT}{one[2]}").removeprefix(dpkg.ROOT) for one in said}
    owned = dpkg.owners(ends.values())
    return [[path, line] for path, line, program in said if ends[program] not in owned]


def of_others(entry: str) -> bool:
    """Whether an entry of the kernel's is for programs of other machines alone, by an interpreter that it holds open.

    A container that registers emulators (tonistiigi/binfmt) leaves those with a path that lies in it alone. Which file
    it was nobody sees, but the kernel runs it for no program of this machine's, and to register one takes root.
    """
    rows = dict(line.partition(" ")[::2] for line in common.lines(entry))
    try:
        magic, mask = bytes.fromhex(rows.get("magic", "")), bytes.fromhex(rows.get("mask", ""))
    except ValueError:
        return False
    own = MACHINES.get(os.uname().machine, ())
    if not own or "F" not in rows.get("flags:", "") or min(len(magic), len(mask)) < 20 or rows.get("offset") != "0":
        return False
    # by what of a machine's number counts (e_machine in elf(5)), none of this one's fits
    counts, told = (int.from_bytes(one[18:20], "big") for one in (mask, magic))
    others = all((int.from_bytes(number, "big") ^ told) & counts for number in own)
    return magic[:4] == b"\x7fELF" and mask[:4] == b"\xff" * 4 and others


def odd(key: str, value: str) -> bool:
    """Whether a setting opens or starves what is ours, or starts a program of nobody's."""
    name = key.replace("/", ".")
    small = value.isdecimal() and int(value) < FEWEST.get(name, 0)
    return small or BAD.get(name) == value or (name.endswith(".route_localnet") and value == "1") or piped(name, value)


def piped(name: str, value: str) -> bool:
    """Whether a setting has the kernel start a program as root that no package has brought."""
    if name == "kernel.core_pattern" and value.startswith("|"):
        program = value[1:].split()[0] if value[1:].split() else ""
    elif name in ("kernel.modprobe", "kernel.hotplug", "kernel.poweroff_cmd"):
        program = value.split()[0] if value else ""
    else:
        return False
    return bool(program) and not dpkg.owners([os.path.realpath(f"{dpkg.ROOT}{program}").removeprefix(dpkg.ROOT)])


def masked(names: list[str]) -> list[str]:
    """Those that the next boot finds masked, whatever systemd has loaded."""
    found = []
    for name in names:
        places = [
            f"{dpkg.ROOT}{place}/systemd/{kind}/{name}" for place in PARTS[:2] for kind in ("system.control", "system")
        ]
        if os.path.realpath(next(filter(os.path.lexists, places), "")) == "/dev/null":
            found.append(name)
    return found


def kept_down(names: list[str]) -> list[list[str]]:
    """(file, line) of what is added to units, or put in their place, and has them start another program."""
    said: list[tuple[str, str, str]] = []
    for name in names:
        for place in PARTS[:3]:
            own = f"{place}/systemd/system/{name}"
            added = [one.removeprefix(dpkg.ROOT) for one in sorted(glob.glob(f"{dpkg.ROOT}{own}.d/*.conf"))]
            for path in [*([] if os.path.islink(f"{dpkg.ROOT}{own}") else [own]), *added]:
                said += [(path, line, found[1]) for line in lines(path) if (found := STARTS.match(line))]
    ends = {one[2]: os.path.realpath(f"{dpkg.ROOT}{one[2]}").removeprefix(dpkg.ROOT) for one in said}
    owned = dpkg.owners(ends.values())
    return [[path, line] for path, line, one in said if ends[one] not in owned or one.endswith(("/true", "/false"))]


def renamed() -> list[list[str]]:
    """(file, line) by which an interface that is there would be called what none is now, or has no driver
    (systemd.link(5), udev(7), modprobe.d(5)).
    """
    there = {path.name for path in Path(f"{dpkg.ROOT}/sys/class/net").glob("*")}
    cards = {(common.read(f"{dpkg.ROOT}/sys/class/net/{name}/address") or "").strip() for name in there}
    found = []
    for folder, suffix, form in (("systemd/network", ".link", LINK), ("udev/rules.d", ".rules", NAMED)):
        for first, *_ in parts(folder, suffix):
            said = lines(first)
            # of one whose cards are others it is no matter
            known = {one.lower() for one in CARD.findall(" ".join(said))}
            if not known or known & cards:
                found += [[first, line] for line in said if (name := form.search(line)) and name[1] not in there]
    # a package's own name cards by what they are (udev has some for management controllers): they did so before
    brought = dpkg.unchanged(path for path, _ in found)
    found = [one for one in found if one[0] not in brought]
    loaded = {line.split(" ")[0] for line in common.lines(common.read(f"{dpkg.ROOT}/proc/modules") or "")}
    drivers = {Path(os.path.realpath(f"{dpkg.ROOT}/sys/class/net/{name}/device/driver/module")).name for name in there}
    for first, *_ in parts("modprobe.d", ".conf"):
        for line in lines(first):
            off = OFF.match(line)
            if off and off[1].replace("-", "_") in loaded & drivers:
                found.append([first, line])
    return found
