"""The running kernel and the bootable ones: modules, their builds, device files and settings."""

from __future__ import annotations

import filecmp
import glob
import os
import re
import stat
import time
from contextlib import suppress

from checks.survey.host import common, dpkg, pci_cards
from checks.survey.host.thread_pool import Pool

ROOT = ""  # a test has a folder for a host
FIELDS = ("filename", "version", "license", "signer", "vermagic", "srcversion")
# modinfo(8), --null: `filename:` and blanks, then each field as the module has it; a warning may come before one
MODULE_FIELD = re.compile(r"(?:^|\n)(\w+)[:=](.*)\Z")
FOLLOWING = ("nvidia_uvm", "nvidia_modeset", "nvidia_drm")
DRIVEN = re.compile(rb"(?:nvidia|nouveau)[a-z_-]*\.ko(?:\.[a-z0-9]+)?\Z")
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
LIBRARY = re.compile(r"lib(?:cuda|nvidia-[^ ]*|nvcuvid|nvoptix)\.so\.[0-9.]+ \(libc6,x86-64[^)]*\)")
OURS = re.compile(r"0::/rigwright\.slice/(?:rigwright-[^/]*\.slice/)?(rigwright-[^/]*)\.service", re.MULTILINE)


def first(path: str) -> str:
    """A file's first line; empty without one."""
    return (common.read(f"{ROOT}{path}") or "").split("\n", 1)[0].strip()


def modinfo(kernel: str, names: tuple[str, ...]) -> list[dict[str, str]]:
    """The modules of these that kmod would load for a kernel, in their order; missing ones are left out.

    An empty or truncated file has its `filename` and no other field.

    Raises:
        RuntimeError: kmod fails, or its output lacks a part of a module's fields.
    """
    found: list[dict[str, str]] = []
    # of some that are not there it says so, and ends with 1; a host without modules has no kmod
    status, said, complaint = common.ended("modinfo", "-0", "-k", kernel, *names, limit=10)
    if status not in (0, 1, 127):
        raise RuntimeError(f"modinfo: {complaint.strip()[:200] or f'exit status {status}'}")
    for field in common.require_whole("modinfo", said, "\0").split("\0"):
        matched = MODULE_FIELD.search(field)
        key, value = matched.groups() if matched else ("", "")
        if key == "filename":
            found.append(dict.fromkeys(FIELDS, ""))
        # each has both, and each once
        if key in ("filename", "vermagic") and (not found or found[-1][key]):
            raise RuntimeError("modinfo does not name a module's file")
        if key in FIELDS and found and not found[-1][key]:
            found[-1][key] = value.strip()
    if any(not one["vermagic"] and any(one[key] for key in FIELDS if key != "filename") for one in found):
        raise RuntimeError("modinfo does not tell a module's vermagic")
    return found


def loose(path: str) -> bool:
    """Whether others than root can write there."""
    seen = os.stat(path)
    return seen.st_uid != 0 or bool(seen.st_mode & 0o002) or bool(seen.st_mode & 0o020 and seen.st_gid)


def kernel(release: str, names: list[str]) -> dict[str, object]:
    """A kernel, the driver's modules that it would load, and all that lie below its folder."""
    image = f"{ROOT}/boot/vmlinuz-{release}"
    modules: list[dict[str, str]] = []
    for name in names:
        if modules := modinfo(release, (name,)):
            break
    modules += modinfo(release, FOLLOWING)
    lying = []
    for folder, _, files in os.walk(os.fsencode(f"{ROOT}/lib/modules/{release}")):
        lying += [os.fsdecode(folder + b"/" + name).removeprefix(ROOT) for name in files if DRIVEN.match(name)]
    places = sorted({*lying, *map(os.path.dirname, lying)})
    return {
        "release": release,
        "bootable": os.path.exists(image),
        "days": int((time.time() - os.stat(image).st_mtime) // 86400) if os.path.exists(image) else None,
        "modules": modules,
        "lying": sorted(lying),
        "owned": sorted(dpkg.owners(lying)),
        "loose": [path for path in places if loose(f"{ROOT}{path}")],
        "headers": os.path.isfile(f"{ROOT}/lib/modules/{release}/build/Makefile"),
    }


def builds() -> list[dict[str, object]]:
    """The driver in DKMS: (module, version) and kernel, how far it got, and files that differ from its own."""
    found: list[dict[str, object]] = []
    top = f"{ROOT}/var/lib/dkms"
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else []:
        if not name.startswith("nvidia") or not os.path.isdir(f"{top}/{name}"):
            continue
        for version in sorted(os.listdir(f"{top}/{name}")):
            folder = f"{top}/{name}/{version}"
            if version.startswith("kernel-") or not os.path.isdir(folder) or os.path.islink(folder):
                continue
            source = os.path.realpath(f"{folder}/source").removeprefix(ROOT)
            empty: dict[str, object] = {"kernel": "", "differs": [], "missing": []}
            row = {"name": name, "version": version, "source": source, **empty}
            if not os.path.exists(f"{folder}/source/dkms.conf"):
                found.append({**row, "state": "broken"})
                continue
            made = sorted(glob.glob(f"{folder}/*/*/module"))
            found += [{**row, **built(name, version, one)} for one in made]
            if not made:
                found.append({**row, "state": "added"})
    return found


def built(name: str, version: str, folder: str) -> dict[str, object]:
    """Of one kernel."""
    release, machine = folder.split("/")[-3:-1]
    link = f"{ROOT}/var/lib/dkms/{name}/kernel-{release}-{machine}"
    state = "installed" if os.path.realpath(link) == os.path.realpath(os.path.dirname(folder)) else "built"
    differs, missing = [], []
    for file in sorted(os.listdir(folder)) if state == "installed" else []:
        plain = file.split(".ko")[0] + ".ko"
        there = glob.glob(f"{ROOT}/lib/modules/{release}/updates/dkms/{plain}*")
        there += glob.glob(f"{ROOT}/lib/modules/{release}/**/{plain}*", recursive=True) if not there else []
        if not there:
            missing.append(file)
        elif os.path.basename(there[0]) == file and not filecmp.cmp(f"{folder}/{file}", there[0], shallow=False):
            differs.append(there[0].removeprefix(ROOT))
    return {"kernel": release, "state": state, "differs": differs, "missing": missing}


def devices() -> list[dict[str, object]]:
    """The objects in /dev under the driver's names."""
    found = []
    for path in sorted(glob.glob(f"{ROOT}/dev/nvidia*")):
        seen = os.lstat(path)
        if stat.S_ISDIR(seen.st_mode):
            continue
        # a test's are links to a device
        real = os.stat(path) if ROOT and os.path.exists(path) else seen
        kind = "device" if stat.S_ISCHR(real.st_mode) else "link" if stat.S_ISLNK(real.st_mode) else "file"
        found.append(
            {
                "path": path.removeprefix(ROOT),
                "kind": kind,
                "mode": stat.S_IMODE(real.st_mode),
                "uid": real.st_uid,
                "gid": real.st_gid,
                "major": os.major(real.st_rdev),
                "minor": os.minor(real.st_rdev),
            }
        )
    return found


def secure_boot() -> tuple[str, bool]:
    """Whether the firmware asks for signatures, and whether it trusts the key that DKMS signs with here."""
    if not os.path.isdir(f"{ROOT}/sys/firmware/efi"):
        return "off", False
    try:
        with open(f"{ROOT}{SECURE_BOOT}", "rb") as file:
            said = {0: "off", 1: "on"}.get(file.read(5)[4], "unknown")  # four bytes of attributes, then the value
    except (OSError, IndexError):
        said = "unknown"
    there = [key for key in KEYS if os.path.exists(f"{ROOT}{key}")] if said == "on" else []
    return said, any("already enrolled" in common.ended("mokutil", "--test-key", key, limit=5)[1] for key in there)


def libraries() -> list[list[str]]:
    """(name, path, the file behind it, its package) of the driver's 64-bit libraries, in the loader's order."""
    rows = [(name, path) for name, what, path in common.read_libraries(ROOT) if LIBRARY.fullmatch(f"{name} ({what})")]
    found = [(name, path, os.path.realpath(f"{ROOT}{path}").removeprefix(ROOT)) for name, path in rows]
    owner = dpkg.owners({real for _, _, real in found})
    return [[*row, owner.get(row[2], "")] for row in found]


def peers() -> list[dict[str, object]]:
    """Processes of ours that have GGML_CUDA_P2P in their environment: its presence counts, not its value."""
    found: list[dict[str, object]] = []
    for pid in filter(str.isdecimal, os.listdir(f"{ROOT}/proc")):
        unit = OURS.search(common.read(f"{ROOT}/proc/{pid}/cgroup") or "")
        if unit:
            with suppress(OSError), open(f"{ROOT}/proc/{pid}/environ", "rb") as file:
                if any(one.startswith(b"GGML_CUDA_P2P=") for one in file.read().split(b"\0")):
                    found.append({"instance": unit[1].removeprefix("rigwright-"), "pid": int(pid)})
    return found


def loaded() -> dict[str, list[str]]:
    """Module -> (version, source's version) of those of the driver's and of nouveau that are loaded."""
    names = [os.path.basename(path) for path in glob.glob(f"{ROOT}/sys/module/n*")]
    kept = [name for name in names if re.fullmatch(r"nvidia(?:_uvm|_modeset|_drm|_peermem)?|nouveau|nova_core", name)]
    return {name: [first(f"/sys/module/{name}/version"), first(f"/sys/module/{name}/srcversion")] for name in kept}


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `modules`, the names that the driver's module goes by, and `sysctl`, settings of the kernel's.
    """
    running = common.run("uname", "-r").strip()
    images = [os.path.basename(path).removeprefix("vmlinuz-") for path in glob.glob(f"{ROOT}/boot/vmlinuz-*")]
    releases = list(dict.fromkeys([running, *sorted(images)]))
    with Pool(8) as pool:
        kernels = pool.map(lambda release: kernel(release, asked["modules"]), releases)
        known, boot = pool.submit(libraries), pool.submit(secure_boot)
        made = pool.submit(builds)
        secure, enrolled = boot.result()
        return {
            "running": running,
            "kernels": list(kernels),
            "loaded": loaded(),
            "version": common.read(f"{ROOT}/proc/driver/nvidia/version") or "",
            "params": common.read(f"{ROOT}/proc/driver/nvidia/params") or "",
            "dkms": made.result(),
            "devices": devices(),
            "cards": pci_cards.list_cards(ROOT),
            "libraries": known.result(),
            "secure_boot": secure,
            "key_enrolled": enrolled,
            "sysctl": {name: first(f"/proc/sys/{name.replace('.', '/')}") for name in asked["sysctl"]},
            "peers": peers(),
        }
