"""Files of the boot and of kernel modules, made anew from their inputs: initramfs, grub.cfg, lists of depmod, DKMS.

Each is expensive, and done once for a file: the answer is kept with the file's digest. Caches and accounts that hooks
put into an initramfs are compared only by name, and a module of DKMS with DKMS's own copy of its build.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from checks.survey.host import common, dpkg, initramfs
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.host_entry import HostEntry

LIMIT = 40.0  # s for all
SCRATCH = "/run/rw-check-boot"
GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
HARDWARE = "/usr/lib/udev/hwdb.bin"
KERNEL_LINK = re.compile(r"(?:/boot)?/(vmlinuz|initrd\.img)(?:\.old)?")
INPUTS = ("modules.order", "modules.builtin", "modules.builtin.modinfo")
"""Lists of a kernel's package, from which depmod makes others."""
INITRD = re.compile(r"/boot/initrd\.img-(.+)")
LISTS = re.compile(r"/usr/lib/modules/([^/]+)/modules\.[\w.]+")
MODULE = re.compile(r"/usr/lib/modules/([^/]+)/updates/(?:dkms/)?([^/]+\.ko(?:\.\w+)?)")
PLACES = (
    "",
    "/usr",
    "/usr/share/initramfs-tools",
    "/etc/initramfs-tools",
    "/usr/lib/initramfs-tools",
    "/usr/lib/klibc",
)
"""Folders whose files an initramfs has at its top."""
GENERATED = re.compile(
    r"(?:conf/modules|cryptroot/.*|etc/(?:fstab|mtab|ld\.so\.cache|default/.*|console-setup/.*|passwd|group|"
    r"nsswitch\.conf|machine-id|hostname)|"
    r"(?:usr/)?lib/modules/[^/]+/modules\..*|(?:usr/)?lib/udev/hwdb\.bin|kernel/x86/microcode/.*|var/.*|dev/.*|"
    r"TRAILER!!!)"
)
"""The files that hooks write into an initramfs, or change there."""
COPIED = re.compile(r"etc/(?:modprobe\.d|udev)/.*")
"""Settings that it has of the host, whatever they are: these are entries of their own."""
ORDER = re.compile(r"scripts/[^/]+/ORDER")
ORDERED = re.compile(rb'/scripts/[\w./+-]+ "\$@"|\[ -e /conf/param\.conf \] && \. /conf/param\.conf|')
"""A shell command by which an initramfs starts its scripts, as mkinitramfs(8) writes it."""
SOURCED = re.compile(r"conf/(?:arch\.conf|initramfs\.conf|conf\.d/[^/]+)")
ASSIGNED = re.compile(rb"(?:DPKG_ARCH|RESUME)=[\w./:=-]*|#.*|")
"""A line of settings that its first program takes for shell, as hooks write it."""
READ = {ORDER: ORDERED, SOURCED: ASSIGNED}
"""Names of files that an initramfs runs as shell -> lines that they may have by themselves."""
SETTINGS = ("/etc/initramfs-tools", "/usr/share/initramfs-tools")
"""Folders of the host from which it has further ones: these are entries of their own."""
LONGEST_READ = 1 << 16  # bytes


def attribute_boot(host: Attribution) -> None:
    """Explain entries of the boot and of modules that are what their inputs come to."""
    if not (os.path.isdir(f"{dpkg.ROOT}/boot") or os.path.isdir(f"{dpkg.ROOT}/usr/lib/modules")):
        return
    known: dict[str, list[str]] = host.index.cache.setdefault("boot", {})
    until = time.monotonic() + LIMIT
    lists: dict[str, dict[str, bytes]] = {}
    for entry in host.entries:
        if entry.origin or entry.key != entry.path or not _is_derived(entry.path):
            continue
        if stat.S_ISLNK(entry.mode):
            if found := _derive(host, entry, lists):
                host.explain(entry, found)
            continue
        if not entry.sha256:
            continue
        row = known.get(entry.path)
        if (not row or row[0] != entry.sha256) and time.monotonic() < until:
            known[entry.path] = row = [entry.sha256, _derive(host, entry, lists)]
            host.index.changed = True
        if row and row[0] == entry.sha256 and row[1] and host.content(entry, 1 << 30) is not None:
            host.explain(entry, row[1])


def _is_derived(path: str) -> bool:
    return path in (*GRUB, HARDWARE) or any(pattern.fullmatch(path) for pattern in (INITRD, LISTS, MODULE, KERNEL_LINK))


def _derive(host: Attribution, entry: HostEntry, lists: dict[str, dict[str, bytes]]) -> str:
    if entry.path in GRUB:
        return _grub(host, entry)
    if matched := INITRD.fullmatch(entry.path):
        foreign = next(foreign_files(host, f"{dpkg.ROOT}{entry.path}"), "")
        if foreign:
            entry.expected_from = f"files of the host (in the initramfs, {foreign} is another one)"[:300]
        return "" if foreign else f"derived from packages for kernel {matched[1]}"
    if matched := LISTS.fullmatch(entry.path):
        version = matched[1]
        if version not in lists:
            lists[version] = depmod_lists(version)
        same = hashlib.sha256(lists[version].get(entry.path, b"")).hexdigest() == entry.sha256
        return "derived by depmod(8)" if same else ""
    if entry.path == HARDWARE:
        made = hardware_database().get(HARDWARE, b"")
        there = host.content(entry, 256 << 20) or b""
        return "derived by systemd-hwdb(8)" if made and hardware_rows(made) == hardware_rows(there) else ""
    if matched := KERNEL_LINK.fullmatch(entry.path):
        target = host.target(entry)
        known = re.fullmatch(rf"/boot/{re.escape(matched[1])}-(.+)", target)
        return f"derived from {target}" if known and host.index.owner(f"/boot/vmlinuz-{known[1]}") else ""
    if matched := MODULE.fullmatch(entry.path):
        return _dkms(host, entry, matched[1], matched[2])
    return ""


def _grub(host: Attribution, entry: HostEntry) -> str:
    """grub.cfg as grub-mkconfig(8) makes it now, from explained scripts; not where that mounts other systems' disks."""
    program = "/usr/sbin/grub-mkconfig"
    folder = "/etc/grub.d"
    scripts = (
        [f"{folder}/{name}" for name in sorted(os.listdir(f"{dpkg.ROOT}{folder}"))] if os.path.isdir(folder) else []
    )
    settings = common.begin(f"{dpkg.ROOT}/etc/default/grub")
    probes = re.search(r"(?m)^\s*GRUB_DISABLE_OS_PROBER=[\"']?(?:false|no)", settings)
    if probes or not all(map(host.is_explained, [program, *scripts])):
        return ""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run([program], capture_output=True, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL)
        if not done.returncode and done.stdout and done.stdout == host.content(entry):
            return "derived by grub-mkconfig(8)"
    return ""


def depmod_lists(version: str) -> dict[str, bytes]:
    """Path -> content of the lists that depmod(8) makes of a kernel's modules now; none where it fails."""
    place = f"/usr/lib/modules/{version}"

    def prepare(scratch: str) -> list[str]:
        os.makedirs(f"{scratch}/lib/modules/{version}")
        for name in os.listdir(f"{dpkg.ROOT}{place}"):
            if not LISTS.fullmatch(f"{place}/{name}") or name in INPUTS:
                os.symlink(f"{dpkg.ROOT}{place}/{name}", f"{scratch}/lib/modules/{version}/{name}")
        return ["/usr/sbin/depmod", "-b", scratch, version]

    return _made(prepare, {f"lib/modules/{version}/": f"{place}/"}) if re.fullmatch(r"[\w.+~-]+", version) else {}


def hardware_rows(content: bytes) -> tuple[int, set[bytes]]:
    """Size of the nodes in a hardware database, and its words without names of files, which have the scratch folder."""
    if len(content) < 80 or content[:8] != b"KSLPHHRH":
        return 0, set()
    nodes, strings = struct.unpack_from("<QQ", content, 64)
    words = content[len(content) - strings :].split(b"\0") if 0 < strings <= len(content) else []
    return nodes, {word for word in words if not word.endswith(b".hwdb")}


def hardware_database() -> dict[str, bytes]:
    """The same of udev's hardware database, as systemd-hwdb(8) makes it."""

    def prepare(scratch: str) -> list[str]:
        shutil.copytree(f"{dpkg.ROOT}/usr/lib/udev/hwdb.d", f"{scratch}/usr/lib/udev/hwdb.d")
        os.symlink("usr/lib", f"{scratch}/lib")
        if os.path.isdir(f"{dpkg.ROOT}/etc/udev/hwdb.d"):
            shutil.copytree(f"{dpkg.ROOT}/etc/udev/hwdb.d", f"{scratch}/etc/udev/hwdb.d")
        return ["/usr/bin/systemd-hwdb", "update", "--usr", "--root", scratch]

    return _made(prepare, {"usr/lib/udev/": "/usr/lib/udev/"})


def _made(prepare: Callable[[str], list[str]], places: dict[str, str]) -> dict[str, bytes]:
    """Path -> content of files that a command makes in a scratch folder.

    Args:
        prepare: Fills the folder, and returns the command.
        places: Folder there, with a slash -> the host's.
    """
    scratch = f"{SCRATCH}-{os.getpid()}"
    found: dict[str, bytes] = {}
    try:
        os.mkdir(scratch, 0o700)
        words = prepare(scratch)
        done = subprocess.run(words, capture_output=True, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL)
        for place, real in places.items() if not done.returncode else ():
            for name in os.listdir(f"{scratch}/{place}"):
                if not os.path.islink(f"{scratch}/{place}{name}") and os.path.isfile(f"{scratch}/{place}{name}"):
                    found[f"{real}{name}"] = common.data(f"{scratch}/{place}{name}", most=256 << 20) or b""
    except (OSError, RuntimeError, shutil.Error, subprocess.TimeoutExpired):
        return {}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return found


def _dkms(host: Attribution, entry: HostEntry, version: str, name: str) -> str:
    """A module that DKMS built from a packaged source: its own copy has the same bytes."""
    base = f"{dpkg.ROOT}/var/lib/dkms"
    with suppress(OSError):
        for module in sorted(os.listdir(base)):
            for release in sorted(os.listdir(f"{base}/{module}")):
                source = f"/usr/src/{module}-{release}"
                copy = f"{base}/{module}/{release}/{version}/{os.uname().machine}/module/{name}"
                if os.path.isfile(copy) and host.is_explained(f"{source}/dkms.conf"):
                    with open(copy, "rb") as file:
                        if hashlib.sha256(file.read()).hexdigest() == entry.sha256:
                            return f"derived from {source}"
    return ""


def foreign_files(host: Attribution, path: str) -> Iterator[str]:
    """Names in an initramfs that are neither the host's explained files nor what hooks make; why it cannot be read."""
    try:
        for file in initramfs.list_files(path, lambda name: _shell_lines(name) is not None, hashes=True):
            if stat.S_ISREG(file.mode) and not _is_known(host, file):
                yield file.name
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield f"({error})"


def _shell_lines(name: str) -> re.Pattern[bytes] | None:
    """The lines that a file which an initramfs runs as shell may have by itself; None for another file."""
    return next((lines for pattern, lines in READ.items() if pattern.fullmatch(name)), None)


def _is_known(host: Attribution, file: initramfs.InitramfsFile) -> bool:
    """Whether hooks make a file of an initramfs so, or it is a copy of the host's."""
    if lines := _shell_lines(file.name):
        if len(file.content) <= LONGEST_READ and all(map(lines.fullmatch, file.content.split(b"\n"))):
            return True
        sources = (f"{dpkg.ROOT}{folder}/{file.name.removeprefix('conf/')}" for folder in SETTINGS)
        return lines is ASSIGNED and file.md5 in map(_md5, sources)
    if COPIED.fullmatch(file.name):
        return _md5(f"{dpkg.ROOT}/{file.name}") == file.md5
    return bool(GENERATED.fullmatch(file.name)) or _is_copy(host, file.name, file.md5)


def _is_copy(host: Attribution, name: str, digest: str) -> bool:
    """Whether a file of an initramfs is an explained file of the host."""
    short = name.removeprefix("usr/")
    for path in (os.path.realpath(f"{dpkg.ROOT}{place}/{part}") for place in PLACES for part in {name, short}):
        real = path.removeprefix(dpkg.ROOT)
        if _md5(path) == digest and (host.index.owner(real) or host.is_explained(real)):
            return True
    return False


def _md5(path: str) -> str:
    """MD5 of a file; empty where there is none that can be read."""
    with suppress(OSError, RuntimeError):
        content = common.data(path, most=1 << 30)
        return "" if content is None else hashlib.md5(content, usedforsecurity=False).hexdigest()
    return ""
