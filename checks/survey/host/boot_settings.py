"""Files read at boot that concern cards or Rigwright, by the program that reads them and in its order."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
import stat

from checks.survey.host import command_effects, common, dpkg, next_boot_config, scheduled_jobs, systemd_properties

ROOT = ""  # a test has a folder for a host
CARDS = re.compile(r"nvidia|nouveau|nova_core|10de|vfio|driver_override", re.IGNORECASE)
KINDS = {
    "modprobe": ("modprobe.d", ".conf"),
    "sysctl": ("sysctl.d", ".conf"),
    "modules-load": ("modules-load.d", ".conf"),
    "udev": ("udev/rules.d", ".rules"),
    "tmpfiles": ("tmpfiles.d", ".conf"),
    "depmod": ("depmod.d", ".conf"),
}
SINGLE = {
    "modules-load": ("/etc/modules", "/etc/initramfs-tools/modules"),
    "dkms": ("/etc/dkms/nvidia*.conf", "/etc/dkms/framework.conf", "/etc/dkms/framework.conf.d/*"),
}
DKMS = re.compile(
    r"\s*(?:export\s+)?(?:post_transaction|sign_file|sign_tool|install_tree|source_tree|dkms_tree|(?:PRE|POST)_[A-Z]+|MAKE.*|PATCH.*|BUILD_EXCLUSIVE.*|no_autoinstall|autoinstall_all_kernels|AUTOINSTALL|build_environment)\s*="
)
SCHEDULED = (
    "/etc/systemd/system/*.service", "/etc/systemd/system/*.service.d/*.conf", "/etc/systemd/system/*.timer",
    "/run/systemd/system/*.service", "/usr/local/lib/systemd/system/*.service", "/etc/crontab", "/etc/cron.*/*",
    "/var/spool/cron/crontabs/*", "/etc/rc.local", "/etc/init.d/*", "/etc/udev/rules.d/*", "/etc/network/if-*.d/*",
    "/etc/profile.d/*",
)  # fmt: skip
# What programs of the driver's are called, and those that a deploy and our units start
NAMES = re.compile(
    r"nvidia-.*|nvcc|dkms|depmod|insmod|update-initramfs|mkinitramfs|dpkg.*|apt.*|systemctl|systemd-.*|journalctl|"
    r"sh|bash|dash|python3(?:\.[0-9]+)?|env|nginx|openssl|sysctl|curl|ldconfig|ip|ss|mount|umount|chown|chmod|cat|grep|"
    r"sed|awk|find|stat|sha256sum|timeout|id|getent|useradd|userdel|groupadd|sudo|setpriv|nsenter|runuser|flock|sync|"
    r"install|ln|ls|mv|rm|cp|cut|tr|sort|head|tail|tee|wc|date|readlink|realpath|xargs|tar|gzip|xz|zstd|nft|ip6?tables.*|"
    r"make|ninja|cc|gcc|g\+\+|ld|as|mktemp|findmnt|lsmod|modinfo|udevadm|nologin|logrotate|passwd|usermod|"
    r"gpasswd|kill|pgrep|perl|su|login|sshd|agetty"
)
BEFORE, AFTER = ("/usr/local/sbin", "/usr/local/bin"), ("/usr/sbin", "/usr/bin")
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "FragmentPath", "DropInPaths",
    "NeedDaemonReload", "ExecStart", "MainPID", "User",
)  # fmt: skip


def about(kind: str, line: str, asked: dict[str, list[str]]) -> bool:
    """Whether a line of a file can concern cards or us."""
    if kind == "sysctl":
        key = line.lstrip("-").partition("=")[0].strip().replace("/", ".")
        return any(fnmatch.fnmatchcase(name.replace("/", "."), key) for name in asked["sysctl"])
    if kind == "tmpfiles":
        place = [*line.split(" "), ""][1].strip('"')
        return any(common.meets(place, root) for root in asked["paths"])
    if kind == "dkms":
        return bool(DKMS.match(line))
    return bool(CARDS.search(line))


def rows(asked: dict[str, list[str]]) -> list[dict[str, object]]:
    """(kind, file, line) of what counts; and files that hide one of a package's that has such lines."""
    found: list[dict[str, object]] = []
    for kind, (folder, suffix) in KINDS.items():
        for first, *rest in next_boot_config.parts(folder, suffix):
            found += [
                {"kind": kind, "path": first, "line": line}
                for line in next_boot_config.lines(first)
                if about(kind, line, asked)
            ]
            hidden = [path for path in rest if any(about(kind, line, asked) for line in next_boot_config.lines(path))]
            if hidden and not os.path.samefile(f"{ROOT}{first}", f"{ROOT}{hidden[0]}"):
                found.append({"kind": f"hidden {kind}", "path": first, "line": hidden[0]})
    for kind, patterns in SINGLE.items():
        for pattern in patterns:
            for path in sorted(glob.glob(f"{ROOT}{pattern}")):
                place = path.removeprefix(ROOT)
                found += [
                    {"kind": kind, "path": place, "line": line}
                    for line in next_boot_config.lines(place)
                    if about(kind, line, asked)
                ]
    owner = dpkg.owners({str(one["path"]) for one in found})
    brought = as_brought(owner)
    return [
        {**one, "package": owner.get(str(one["path"]), ""), "brought": str(one["path"]) in brought} for one in found
    ]


def as_brought(owner: dict[str, str]) -> set[str]:
    """Those of packages' files that are what the package brought."""
    found: set[str] = set()
    ones = [one for one in dpkg.packages() if one.name in owner.values()] if owner else []
    for path, package in owner.items():
        sums = [one.conffiles.get(path, "") for one in ones if one.name == package]
        for one in (one for one in ones if one.name == package):
            text = common.read(f"{ROOT}{dpkg.ADMIN}/info/{one.base}.md5sums", most=64 << 20) or ""
            sums += [line[:32] for line in common.lines(text) if f"/{line[34:]}" in dpkg.names(path)]
        content = common.read(f"{ROOT}{path}")
        if content is not None and hashlib.md5(content.encode(), usedforsecurity=False).hexdigest() in sums:
            found.add(path)
    return found


def setters() -> list[list[str]]:
    """(file, what it does) of programs that are started at boot or by the clock and set cards."""
    found: list[list[str]] = []
    for pattern in SCHEDULED:
        said = {path: next_boot_config.lines(path.removeprefix(ROOT)) for path in sorted(glob.glob(f"{ROOT}{pattern}"))}
        matched = {path: command_effects.sets_cards("\n".join(text)) for path, text in said.items()}
        found += [[path.removeprefix(ROOT), one[: scheduled_jobs.LINE]] for path, one in matched.items() if one]
    return found


def shadows() -> list[list[str]]:
    """(file, the system's own program) of each that PATH has before."""
    found: list[list[str]] = []
    for folder in dict.fromkeys((*searched(), *BEFORE)):
        for name in sorted(os.listdir(f"{ROOT}{folder}")) if os.path.isdir(f"{ROOT}{folder}") else []:
            path = f"{ROOT}{folder}/{name}"
            own = [f"{place}/{name}" for place in AFTER if os.path.exists(f"{ROOT}{place}/{name}")]
            if NAMES.fullmatch(name) and own and os.path.exists(path) and not os.path.samefile(path, f"{ROOT}{own[0]}"):
                found.append([f"{folder}/{name}", own[0]])
    chosen = {f"/etc/alternatives/{name}": f"/usr/bin/{name}" for name in alternatives() if NAMES.fullmatch(name)}
    ends = {path: os.path.realpath(f"{ROOT}{path}").removeprefix(ROOT) for path in chosen}
    owned = dpkg.owners(ends.values())
    return found + [[path, chosen[path]] for path, end in ends.items() if end not in owned]


def searched() -> list[str]:
    """Folders that whoever logs in to look has before the system's, as a deploy has them, too."""
    given = common.login_environment().get("PATH", "").split(":")
    first = next((number for number, one in enumerate(given) if one.rstrip("/") in (*AFTER, "/bin", "/sbin")), 0)
    return [one.rstrip("/") for one in given[:first] if one.startswith("/")]


def alternatives() -> list[str]:
    """Names of programs of which several packages have one, where it is one."""
    folder = f"{ROOT}/etc/alternatives"
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name for name in names if os.path.lexists(f"{folder}/{name}")]


def sshd() -> list[str]:
    """Why sshd would not start again: what it cannot read of its settings."""
    status, _, said = common.ended("sshd", "-t", limit=10)
    lines = [line.strip() for line in common.lines(said) if line.strip()]
    known = [line for line in lines if re.search(r"line [0-9]+|Bad configuration|no hostkeys", line)]
    # whatever it says, it would not start; without sshd there is none to start
    unknown = lines[-1:] or [f"exit status {status}"] if status not in (0, 127) else []
    return (known or unknown)[:3]


def folders_of_the_loader() -> list[list[str]]:
    """(folder, the file that names it, a library of the driver's in it) of those that ldconfig is told to look in."""
    found = []
    for path in [
        "/etc/ld.so.conf",
        *(one.removeprefix(ROOT) for one in sorted(glob.glob(f"{ROOT}/etc/ld.so.conf.d/*.conf"))),
    ]:
        for line in next_boot_config.lines(path):
            names = (
                []
                if line.startswith(("include", "hwcap")) or not line.startswith("/")
                else glob.glob(f"{ROOT}{line}/lib*.so*")
            )
            libraries = [
                name for name in map(os.path.basename, names) if re.match(r"lib(?:cuda|nvidia-|nvcuvid)[^/]*\.so", name)
            ]
            found += [[line, path, name] for name in sorted(libraries)[:1]]
    return found


def program(asked: dict[str, list[str]]) -> list[dict[str, object]]:
    """What lies in folders that are ours alone."""
    found: list[dict[str, object]] = []
    for top in asked["folders"]:
        for folder, names, files in os.walk(f"{ROOT}{top}"):
            for name in [*files, *(one for one in names if os.path.islink(f"{folder}/{one}"))]:
                seen = os.lstat(f"{folder}/{name}")
                found.append({"path": f"{folder}/{name}".removeprefix(ROOT), **described(f"{folder}/{name}", seen)})
    return found


def described(path: str, seen: os.stat_result) -> dict[str, object]:
    """What lies at a path."""
    kind = "file" if stat.S_ISREG(seen.st_mode) else "other"
    kind = f"a link to {os.readlink(path)}" if stat.S_ISLNK(seen.st_mode) else kind
    digest = ""
    if kind == "file" and seen.st_size <= common.MOST:
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    return {
        "kind": kind,
        "mode": f"{stat.S_IMODE(seen.st_mode):o}",
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "sha256": digest,
    }


def lying(paths: list[str]) -> list[dict[str, object]]:
    """What lies at each of these paths; without those where nothing does."""
    there = {path: f"{ROOT}{path}" for path in paths if os.path.lexists(f"{ROOT}{path}")}
    return [{"path": path, **described(place, os.lstat(place))} for path, place in there.items()]


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `sysctl`, names of settings; `paths`, ours; `files`, paths that may be ours, `folders`, those that are
            ours alone; `units`, names of units.
    """
    return {
        "rows": rows(asked),
        "setters": setters(),
        "shadows": shadows(),
        "sshd": sshd(),
        "risky": next_boot_config.risky(),
        "loader": folders_of_the_loader(),
        "files": lying(asked["files"]) + program(asked),
        "units": systemd_properties.read_properties(asked["units"], PROPERTIES),
        "masked": next_boot_config.masked(asked["units"]),
        "kept_down": [*next_boot_config.kept_down(asked["ways"]), *next_boot_config.renamed()],
        "applied": (common.read(f"{ROOT}/run/rigwright-power") or "").strip(),
    }
