"""Ways to become root without authentication: rules, accounts, programs, and what root starts that others change."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import (
    common,
    dpkg,
    fs_responsiveness,
    pam,
    polkit_dbus,
    program_paths,
    root_started_programs,
    scheduled_jobs,
    sshd,
)

ETC = Path("/etc")
RUN = Path("/run")
USR = Path("/usr")
PEOPLE = 1000  # numbers from here on are those of people (login.defs(5))
VAR = Path("/var/lib")
CAPABLE = "security.capability"
# Those of which none makes anybody root: NET_BIND_SERVICE, NET_RAW, IPC_LOCK, SYS_NICE
HARMLESS = 1 << 10 | 1 << 13 | 1 << 14 | 1 << 23
# Credentials that systemd's own services take (systemd.system-credentials(7))
TAKEN = ("tmpfiles.extra", "sysusers.extra", "sysctl.extra", "fstab.extra", "systemd.extra-unit", "udev.rules")
# A module that says yes, where nobody is asked after it
GRANTED = re.compile(
    r"\s*-?auth\s+(?:sufficient|binding|\[[^]]*success=(?:done|[1-9])[^]]*\])\s+(?:\S*/)?pam_permit[.]so"
)
# What anybody at a box's screen may well do: colours, batteries, sleep
HOMELY = re.compile(r"org[.]freedesktop[.](?:color-manager[.]|upower[.]|login1[.](?:hibernate|suspend))")
YES = re.compile(r"Result\s*[.]\s*YES|[\"']yes[\"']")
ASKED = re.compile(r"subject\s*[.]")
# Who is in one of these gets at all that root does, without being asked for a password of root's
ROOTS = ("root", "sudo", "wheel", "admin", "disk", "shadow", "kmem", "docker", "lxd", "incus-admin")
RULE = re.compile(r"(\S+)\s+\S+\s*=.*NOPASSWD:\s*ALL\b")
# Files that sudo reads besides, where it looks for programs, and settings by which it asks nobody, or by which who may
# run one program runs any
INCLUDE, DEEP = re.compile(r"[@#]include(dir)?\s+(\S+)"), 8
SEARCHED = re.compile(r"Defaults\S*\s+(?:.*,\s*)?secure_path\s*=\s*(\"[^\"]*\"|\S+)")
UNASKED = re.compile(
    r"Defaults\s+(?:.*,\s*)?(?:!\s*authenticate\b|env_keep\s*\+?=\s*\"?[^\"]*\b(?:LD_\w+|BASH_ENV|PYTHON\w+|PERL5\w+)|setenv\b|!\s*env_reset\b)"
)
# Where a file that is laid at a boot is obeyed by root
OBEYED = re.compile(
    r"/(?:etc/(?:cron|systemd|ssh|sudoers|profile|pam[.]d|passwd|shadow|group|ld[.]so|udev|modprobe|init[.]d|rc[.]local"
    r"|apt|dpkg)|var/spool/(?:cron|at)|root/|usr/|run/systemd/(?:system|generator))"
)


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: Nothing.
    """
    return {
        "open": [
            *granted(),
            *pam.opened(),
            *pam.foreign(),
            *allowed(),
            *polkit_dbus.opened(),
            *accounts(),
            *sudo(),
            *laid(),
            *plugged(),
        ],
        "programs": [*programs()],
        "loose": [*root_started_programs.loose()],
        "changed": [*root_started_programs.changed(), *merged()],
        "ways": [*sshd.wrong()],
    }


def granted() -> Iterator[dict[str, str]]:
    """Lines of PAM's by which anybody is whom he says."""
    for path in scheduled_jobs.files([ETC / "pam.d"]):
        yield from (
            scheduled_jobs.describe_line(path, line)
            for line in common.lines(common.read(path) or "")
            if GRANTED.match(line)
        )


def allowed() -> Iterator[dict[str, str]]:
    """Rules of polkit's by which anybody may do what only root does."""
    for path in scheduled_jobs.files([ETC / "polkit-1/localauthority", VAR / "polkit-1/localauthority"]):
        sections = re.split(r"^(?=\s*\[)", common.read(path) or "", flags=re.MULTILINE)
        yield from (
            scheduled_jobs.describe_line(path, one) for one in sections if path.suffix == ".pkla" and everybody(one)
        )
    for path in scheduled_jobs.files(
        [ETC / "polkit-1/rules.d", RUN / "polkit-1/rules.d", USR / "local/share/polkit-1/rules.d"]
    ):
        text = re.sub(r"//[^\n]*", "", common.read(path) or "")
        rules = text.split("addRule")[1:]
        yield from (
            scheduled_jobs.describe_line(path, rule) for rule in rules if YES.search(rule) and not ASKED.search(rule)
        )


def everybody(section: str) -> bool:
    """Whether a section of an authority of polkit's lets all do what makes one of them more than he is."""
    said = [line.strip().partition("=") for line in common.lines(section) if not line.lstrip().startswith(("#", ";"))]
    values = {key.strip(): value.strip() for key, _, value in said}
    actions = [one.strip() for one in values.get("Action", "").split(";") if one.strip()]
    return (
        "*" in values.get("Identity", "")
        and any(key.startswith("Result") and value == "yes" for key, value in values.items())
        and not (actions and all(HOMELY.match(one) for one in actions))
    )


def plugged() -> Iterator[dict[str, str]]:
    """Modules of no package's by which sudo decides."""
    modules: dict[str, str] = {}
    for line in common.lines(common.read(ETC / "sudo.conf") or ""):
        words = line.split()
        if len(words) > 2 and words[0] == "Plugin" and words[2].startswith("/"):
            modules[words[2]] = line
    owned = dpkg.owners(modules)
    yield from (
        scheduled_jobs.describe_line(ETC / "sudo.conf", line) for path, line in modules.items() if path not in owned
    )


def merged() -> Iterator[dict[str, str]]:
    """What a boot lays over /usr and /etc, or takes for settings, by its place alone (systemd-sysext(8))."""
    for place in (ETC / "extensions", RUN / "extensions", VAR / "extensions", VAR / "confexts", RUN / "confexts"):
        with suppress(OSError):
            yield from (
                scheduled_jobs.describe_line(one, "a boot may lay it over the system's own files")
                for one in place.iterdir()
            )
    for place in (ETC / "credstore", RUN / "credstore"):
        for path in scheduled_jobs.files([place]):
            if path.name in TAKEN or path.name.startswith(("ssh.", "passwd.")):
                yield scheduled_jobs.describe_line(path, "systemd takes it for settings at each boot")


def services() -> set[str]:
    """Accounts of services, and nobody, without the one that has logged in to look: people may have any id from 1000
    on that a directory gives them, and who deploys is meant to be root.
    """
    found = {row[0]: int(row[2]) for row in common.rows(ETC / "passwd", 7) if row[2].isdecimal()}
    return {name for name, uid in found.items() if 0 < uid < 1000 or uid == 65534} - {sshd.comer(os.getpid())[0]}


def accounts() -> Iterator[dict[str, str]]:
    """Those that nobody is asked a password for, and services that are as good as root."""
    for line in common.lines(common.read(ETC / "shadow") or ""):
        name, _, rest = line.partition(":")
        if rest.startswith(":"):
            yield scheduled_jobs.describe_line(ETC / "shadow", f"{name} has an empty password")
    own = services()
    for line in common.lines(common.read(ETC / "group") or ""):
        name, _, rest = line.partition(":")
        members = rest.rpartition(":")[2].split(",")
        for one in (one for one in members if name in ROOTS and one in own):
            yield scheduled_jobs.describe_line(ETC / "group", f"{one} is in {name}")


def sudo() -> Iterator[dict[str, str]]:
    """Rules by which a service, or everybody, is root without a password."""
    own = services()
    files = [one for path in scheduled_jobs.files([ETC / "sudoers", ETC / "sudoers.d"]) for one in included(path)]
    for path in dict.fromkeys(files):
        if way := root_started_programs.others(str(path).removeprefix(root_started_programs.ROOT)):
            yield scheduled_jobs.describe_line(path, way)
        for line in common.lines((common.read(path) or "").replace("\\\n", " ")):
            rule, places = RULE.match(line.strip()), SEARCHED.match(line.strip())
            folders = places[1].strip('"').split(":") if places else []
            loose = any(not one.startswith("/") or root_started_programs.others(one) for one in folders)
            if loose or UNASKED.match(line.strip()) or (rule and (rule[1] in own or rule[1] == "ALL")):
                yield scheduled_jobs.describe_line(path, line)


def included(path: Path, depth: int = 0) -> Iterator[Path]:
    """A file of sudo's, and those that it includes (sudoers(5))."""
    yield path
    for line in common.lines((common.read(path) or "") if depth < DEEP else ""):
        if not (match := INCLUDE.match(line.strip())):
            continue
        place = path.parent / match[2].strip('"')
        inside = scheduled_jobs.files([place]) if match[1] else iter([place])
        for one in inside:
            if not match[1] or not ("." in one.name or one.name.endswith("~")):
                yield from included(one, depth + 1)


def laid() -> Iterator[dict[str, str]]:
    """What the next boot makes that root obeys, or a second root, by files that no package has brought."""
    folders = [
        place / kind for place in (ETC, RUN, USR / "local/lib", USR / "lib") for kind in ("tmpfiles.d", "sysusers.d")
    ]
    found: dict[str, str] = {}
    for path in scheduled_jobs.files(folders):
        for line in common.lines(common.read(path) or ""):
            words = line.split()
            if path.parent.name == "tmpfiles.d":
                hit = len(words) > 1 and words[0][0] in "fFwLC" and bool(OBEYED.match(words[1]))
            else:
                hit = (
                    len(words) > 2
                    and words[0][0] == "u"
                    and words[1] != "root"
                    and words[2].split(":")[0] in ("0", "root")
                )
            if hit:
                found.setdefault(str(path), line)
    owned = dpkg.owners(found)
    yield from (scheduled_jobs.describe_line(Path(path), line) for path, line in found.items() if path not in owned)


def programs() -> Iterator[dict[str, str]]:
    """Those that run as root or with a privilege of root's, whoever starts them, and that no package makes so."""
    modes: dict[str, str] = {}
    given: dict[str, tuple[str, str]] = {}
    gone = fs_responsiveness.silent((*program_paths.HELD, *program_paths.BELOW))
    yield from (
        scheduled_jobs.describe_line(Path(folder), "its file system does not answer: nobody knows what lies there")
        for folder in gone
    )
    crowded: list[str] = []
    for one in program_paths.held(gone, crowded):
        with suppress(OSError):
            seen = one.stat(follow_symlinks=False)
            if not seen.st_mode & 0o111:
                continue
            as_user = seen.st_mode & stat.S_ISUID and seen.st_uid < PEOPLE
            if as_user or (seen.st_mode & stat.S_ISGID and seen.st_gid < PEOPLE):
                whose = "" if as_user and not seen.st_uid else f" of user {seen.st_uid} and group {seen.st_gid}"
                modes[one.path] = f"mode {stat.S_IMODE(seen.st_mode):o}{whose}"
            elif capable(one.path):
                given[one.path] = "setcap", "has capabilities"
    yield from (
        scheduled_jobs.describe_line(Path(folder), "has too many entries: nobody knows what lies there")
        for folder in crowded
    )
    there = {path.removeprefix(dpkg.ROOT) for path in modes}
    for line in common.lines(common.read(f"{dpkg.ROOT}{dpkg.ADMIN}/statoverride") or ""):
        words = line.split()
        if len(words) == 4 and words[0] == "root" and re.fullmatch("4[0-7]{3}", words[2]):
            path = words[3]
            if there.isdisjoint(dpkg.names(path)) and not closes(path, int(words[2], 8)):
                given[path] = "dpkg-statoverride", f"dpkg-statoverride has mode {words[2]} for its next version"
    owned = dpkg.owners({**modes, **given})
    # one that came with its mode has none by hand
    yield from (scheduled_jobs.describe_line(Path(path), what) for path, what in modes.items() if path not in owned)
    for path, (tool, what) in given.items():
        if path not in owned or not _gives(owned[path], path, tool):
            yield scheduled_jobs.describe_line(Path(path), what)


def capable(path: str) -> bool:
    """Whether a program has capabilities by which somebody gets at what is root's (linux/capability.h)."""
    try:
        data = os.getxattr(path, CAPABLE)
    except OSError:
        return False
    if len(data) < 20 or data[3] not in (2, 3):
        return True
    _, low, low_kept, high, high_kept = struct.unpack_from("<5I", data)
    return bool((low | low_kept | (high | high_kept) << 32) & ~HARMLESS)


def closes(path: str, mode: int) -> bool:
    """Whether a mode only keeps some from a program that runs as root anyway."""
    with suppress(OSError):
        seen = os.lstat(f"{dpkg.ROOT}{path}")
        return bool(seen.st_mode & stat.S_ISUID) and seen.st_uid == 0 and not mode & 0o001
    return False


def _gives(package: str, path: str, tool: str) -> bool:
    """Whether what a package runs when it is set up names a file, and the tool that it gives it rights with."""
    info = Path(f"{dpkg.ROOT}{dpkg.ADMIN}/info")
    name = re.compile(rf"(?<![\w.+-]){re.escape(os.path.basename(path))}(?![\w+-]|[.]\w)")
    texts = [common.read(one) or "" for one in (info / f"{package}.postinst", *info.glob(f"{package}:*.postinst"))]
    return any(tool in text and name.search(text) for text in texts)
