"""The inputs of the next boot: the contents of initramfs images, the boot loader, and disks of fstab."""

from __future__ import annotations

import glob
import os
import re
import stat
import subprocess
from typing import Any

from checks.survey.host import common, initramfs, mount_table
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
MOST = 4 << 30  # bytes of one initial file system, unpacked
MODPROBE = re.compile(r"(?:usr/)?(?:etc|lib)/modprobe\.d/[^/]+\.conf")
MODULE = re.compile(r"(?:usr/)?(lib/modules/[^/]+/.*/(?:nvidia|nouveau)[^/]*\.ko)(\.[a-z0-9]+)?")
SCRIPT = re.compile(r"(?:init|scripts/.*(?<!/ORDER))")
PLACES = ("/usr/share/initramfs-tools", "/etc/initramfs-tools")
SETTINGS = ("/etc/modprobe.d", "/lib/modprobe.d")  # all of what they have is in an initramfs
GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
ASSIGNED = re.compile(r"""^\s*(?:export\s+)?(GRUB_[A-Z_]+)\+?=\s*(?:"([^"]*)"|'([^']*)'|(\S*))""", re.MULTILINE)


def needs_content(name: str) -> bool:
    """Whether a file's bytes are looked at."""
    return any(one.fullmatch(name) for one in (MODPROBE, MODULE, SCRIPT))


def expanded(words: tuple[str, ...], data: bytes) -> bytes:
    """The input of a compressor.

    Raises:
        ValueError: it is not a whole output.
    """
    done = subprocess.run(words, input=data, capture_output=True, timeout=15, check=False)
    if done.returncode:
        raise ValueError(f"cannot be unpacked by {words[0]}")
    return done.stdout


def disk(path: str) -> bytes | None:
    """A file's bytes, where it is one."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            return file.read(MOST)
    except OSError:
        return None


def as_on_disk(name: str, inside: bytes) -> str:
    """How a file of an initial file system differs from the disk's own; empty where it does not."""
    if module := MODULE.fullmatch(name):
        for path in [f"{ROOT}/{module[1]}{module[2] or ''}", *glob.glob(f"{ROOT}/{glob.escape(module[1])}*")]:
            there = disk(path)
            packed = initramfs.unpacker(there or b"")
            if there is not None and packed and not inside.startswith(there[:4]):
                there = expanded(packed, there)
            if there is not None:
                return "" if there == inside else "has another content than on the disk"
        return "is not on the disk"
    if MODPROBE.fullmatch(name):
        own = name.removeprefix("usr/")
        found = [there for place in ("", "/usr") if (there := disk(f"{ROOT}{place}/{own}")) is not None]
    else:
        found = [there for place in PLACES if (there := disk(f"{ROOT}{place}/{name}")) is not None]
    if inside in found:
        return ""
    return "has another content than on the disk" if found else "is not on the disk"


def initrd(release: str) -> dict[str, object]:
    """A kernel's initial file system: the files of modprobe that it lacks, and those that differ from the disk's."""
    path = f"{ROOT}/boot/initrd.img-{release}"
    found: dict[str, object] = {"release": release, "there": os.path.isfile(path), "problem": ""}
    differs: list[list[str]] = []
    names: set[str] = set()
    try:
        for file in initramfs.list_files(path, needs_content) if found["there"] else ():
            names.add(file.name)
            if stat.S_ISREG(file.mode) and needs_content(file.name) and (said := as_on_disk(file.name, file.content)):
                differs.append([file.name, said])
    except (ValueError, subprocess.SubprocessError, OSError) as error:
        found["problem"] = str(error)
    if names and "init" not in names and not found["problem"]:
        found["problem"] = "has no init: its last part is missing"
    files = (path for place in SETTINGS for path in sorted(glob.glob(f"{ROOT}{place}/*.conf")))
    own = {name.removeprefix("usr/") for name in names}
    lacking = [path.removeprefix(ROOT) for path in files if path.removeprefix(f"{ROOT}/") not in own]
    return {**found, "files": len(names), "lacking": lacking, "differs": differs[:50]}


def grub() -> dict[str, object] | None:
    """GRUB's next entry: the kernel and its command line; None where there is no GRUB."""
    text = next((said for path in GRUB if (said := common.read(f"{ROOT}{path}", most=16 << 20))), None)
    if text is None:
        return None
    kept = common.read(f"{ROOT}/boot/grub/grubenv") or ""
    kept_values = dict(line.split("=", 1) for line in common.lines(kept) if "=" in line and not line.startswith("#"))
    default = re.search(
        r'^\s*set default="?([^"\n]*)"?', text.partition("menuentry ")[0].rpartition("else")[2], re.MULTILINE
    )
    chosen = kept_values.get("next_entry") or (default[1] if default else "0")
    if "saved_entry" in chosen:
        chosen = kept_values.get("saved_entry", "") or "0"
    rows = menu(text)
    wanted = chosen.split(">")[-1]
    fitting = [row for row in rows if row["place"] == chosen or wanted in list(row["names"])] or rows[:1]
    if not fitting:
        return None
    return {
        "chosen": chosen,
        "once": bool(kept_values.get("next_entry")),
        "kernel": fitting[0]["kernel"],
        "words": fitting[0]["words"],
        "waits": bool(re.search(r"^\s*set timeout=-", text, re.MULTILINE)),
    }


def menu(text: str) -> list[dict[str, Any]]:
    """GRUB's entries in their order."""
    rows: list[dict[str, Any]] = []
    depth: list[int] = [-1]
    levels: list[bool] = []
    for line in common.lines(text):
        if begun := re.match(r"""\s*(menuentry|submenu)\s+(?:'([^']*)'|"([^"]*)").*?\{\s*$""", line):
            depth[-1] += 1
            place = ">".join(map(str, depth))
            named = [
                begun[2] or begun[3] or "",
                *re.findall(r"menuentry_id_option\s+'([^']*)'", line),
                *re.findall(r"--id[ =]'?([^' ]*)", line),
            ]
            levels.append(begun[1] == "submenu")
            if begun[1] == "submenu":
                depth.append(-1)
            else:
                rows.append({"place": place, "names": named, "kernel": "", "words": []})
        elif line.strip() == "}" and levels:
            if levels.pop():
                depth.pop()
        elif rows and (started := re.match(r"\s*linux(?:efi|16)?\s+(\S+)\s*(.*)", line)) and not rows[-1]["kernel"]:
            rows[-1]["kernel"] = os.path.basename(started[1]).removeprefix("vmlinuz-")
            rows[-1]["words"] = started[2].split()
    return rows


def planned_words() -> list[list[str]]:
    """(file, word) of what the next configuration of a boot loader has on the kernel's command line."""
    found: list[list[str]] = []
    for path in ["/etc/default/grub", *sorted(glob.glob(f"{ROOT}/etc/default/grub.d/*.cfg"))]:
        place = path.removeprefix(ROOT) if ROOT else path
        for name, *values in ASSIGNED.findall(common.read(f"{ROOT}{place}") or ""):
            if name in ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"):
                found += [[place, word] for word in "".join(values).split()]
            elif name in ("GRUB_DEFAULT", "GRUB_TIMEOUT"):
                found.append([place, f"{name}={''.join(values)}"])
    for path in sorted(
        [
            f"{ROOT}/etc/kernel/cmdline",
            *glob.glob(f"{ROOT}/boot/loader/entries/*.conf"),
            *glob.glob(f"{ROOT}/boot/efi/loader/entries/*.conf"),
        ]
    ):
        text = common.read(path) or ""
        options = text if path.endswith("cmdline") else " ".join(re.findall(r"^options\s+(.*)$", text, re.MULTILINE))
        found += [[path.removeprefix(ROOT), word] for word in options.split()]
    return found


def away() -> list[str]:
    """Rows of fstab that keep the next boot waiting, and then from its end: their device is not there."""
    kinds = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}
    found = []
    for source, point, kind, options in mount_table.read_table(ROOT):
        key, _, value = source.partition("=")
        path = f"/dev/disk/{kinds[key]}/{value.strip(chr(34))}" if key in kinds else source
        optional = {"nofail", "noauto", "x-systemd.automount"} & {*options}
        if path.startswith("/dev/") and kind != "swap" and not optional and not os.path.exists(f"{ROOT}{path}"):
            found.append(f"{source} on {point}")
    return found


def look(_asked: dict[str, object]) -> dict[str, object]:
    """All of it; nothing is asked."""
    releases = sorted(os.path.basename(path).removeprefix("vmlinuz-") for path in glob.glob(f"{ROOT}/boot/vmlinuz-*"))
    with Pool(8) as pool:
        made = list(pool.map(initrd, releases))
    return {
        "initrds": made,
        "dracut": os.path.exists(f"{ROOT}/usr/bin/dracut"),
        "makes": os.path.exists(f"{ROOT}/usr/sbin/update-initramfs"),
        "grub": grub(),
        "words": planned_words(),
        "away": away(),
        "shutdown": " ".join((common.read(f"{ROOT}/run/systemd/shutdown/scheduled") or "").split()),
    }
