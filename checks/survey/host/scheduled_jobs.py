"""What of the host's is started by the clock, by a boot or by who logs in, and what daemons' settings come to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import command_effects, common, dpkg, fs_responsiveness

ETC = Path("/etc")
VAR = Path("/var")
RUN = Path("/run")
USR = Path("/usr")
SYS = Path("/sys")
LINE = 300  # characters that are told of a line
MANY = 2000  # scripts that are looked into
# What is started by the clock or at the end of a boot
TIMED = (
    *(ETC / name for name in ("crontab", "anacrontab", "cron.d", "cron.hourly", "cron.daily", "cron.weekly")),
    *(ETC / name for name in ("cron.monthly", "rc.local")),
    *(VAR / name for name in ("spool/cron", "spool/at")),
)
# Where else something of the host's is told to start what, as root, and where what is emptied or removed
JOBS = (
    *TIMED,
    *(ETC / name for name in ("logrotate.d", "logrotate.conf", "profile", "profile.d")),
    *(ETC / name for name in ("bash.bashrc", "environment", "apt/apt.conf.d", "dpkg/dpkg.cfg.d", "tmpfiles.d")),
    *(ETC / name for name in ("network/if-up.d", "network/if-down.d", "network/if-pre-up.d", "network/if-post-down.d")),
    *(ETC / name for name in ("network/interfaces", "network/interfaces.d", "inittab", "incron.d", "update-motd.d")),
    *(ETC / name for name in ("networkd-dispatcher", "NetworkManager/dispatcher.d", "kernel", "initramfs-tools")),
    *(ETC / "udev/rules.d", RUN / "udev/rules.d", VAR / "spool/incron"),
    *(RUN / "tmpfiles.d", USR / "lib/tmpfiles.d", USR / "local/lib/tmpfiles.d", USR / "lib/systemd/system-sleep"),
    USR / "lib/systemd/system-shutdown",
    *(Path("/root") / name for name in (".bashrc", ".profile", ".bash_profile", ".bash_login", ".ssh/rc")),
    ETC / "ssh/sshrc",
)
# Programs that a line names; a distribution's own are no scripts about us
NAMED = re.compile(r"(?<![\w.:$/])(/(?!(?:usr/)?(?:s?bin|lib)/|dev/|proc/|sys/|run/)[\w./+@-]+)")
# What a unit does to the box when it fails, ends or is late (systemd.unit(5))
ACTS = re.compile(
    r"(?:FailureAction|SuccessAction|StartLimitAction|JobTimeoutAction)\s*=\s*(?:reboot|poweroff|halt|exit|kexec|soft-reboot).*"
)
IDLE = ("poweroff", "halt", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "sleep")


def lines(places: Iterable[Path] | None = None) -> Iterator[tuple[Path, str]]:
    """File and line, without remarks, of all that is obeyed, or of what lies in these places."""
    for path in files(JOBS if places is None else places):
        yield from within([str(path)], whole=True)


def files(places: Iterable[Path]) -> Iterator[Path]:
    """Files, and those in folders and below them."""
    for place in places:
        if place.is_dir():
            for folder, _, names in os.walk(place):
                yield from (Path(folder) / name for name in sorted(names))
        elif place.is_file():
            yield place


def within(paths: Iterable[str], *, whole: bool = False) -> Iterator[tuple[Path, str]]:
    """The same of scripts; of files of whatever kind, and of all of them, where `whole`."""
    for path in sorted(paths)[:MANY]:
        text = (common.read(path) or "") if whole else common.begin(path) if _script(path) else ""
        at = Path(path)
        for line in common.lines(text):
            said = line.strip()
            if said and not said.startswith("#"):
                yield at, said


def _script(path: str) -> bool:
    """Whether a shell obeys a file: it does without a first line that says so, too (execlp(3))."""
    begun = common.begin(path, 128)
    text = bool(begun) and "\0" not in begun
    return begun[:2] == "#!" or (text and (path[-3:] == ".sh" or os.access(path, os.X_OK)))


def named(line: str) -> set[str]:
    """Paths of programs in a line that no distribution has brought."""
    return set(NAMED.findall(line))


def describe_line(path: Path, text: str) -> dict[str, str]:
    """A line, for people."""
    return {"file": str(path), "text": common.masked(" ".join(text.split()))[:LINE]}


def ends() -> Iterator[dict[str, str]]:
    """By what the host will be switched off, or started as another system."""
    scripts: set[str] = set()
    for path, text in lines(TIMED):
        scripts.update(named(text))
        if command_effects.ends_box(text):
            yield describe_line(path, text)
    gone = {path for path in scripts if fs_responsiveness.is_unresponsive(path)}
    yield from (
        describe_line(Path(path), "its file system does not answer: nobody knows what it does") for path in sorted(gone)
    )
    yield from (describe_line(path, text) for path, text in within(scripts - gone) if command_effects.ends_box(text))
    action = settings("logind.conf", "[Login]").get("IdleAction", "ignore")
    if action in IDLE:
        yield describe_line(ETC / "systemd/logind.conf", f"IdleAction={action}")
    folders = [place / "systemd/system" for place in (ETC, RUN, USR / "local/lib")]
    acting = [
        (path, text)
        for path, text in lines(folders)
        if ACTS.fullmatch(text) or (text.startswith("Exec") and command_effects.ends_box(text.partition("=")[2]))
    ]
    # by links a boot starts packages' own, of which some are about the end of it
    leads = {path: os.path.realpath(path).removeprefix(dpkg.ROOT) for path, _ in acting if path.is_symlink()}
    own = dpkg.owners(leads.values())
    yield from (describe_line(path, text) for path, text in acting if leads.get(path) not in own)
    if not re.fullmatch(r"[0-9a-f]{32}\s*", common.read(ETC / "machine-id") or ""):
        yield describe_line(
            ETC / "machine-id", "the next boot is taken for the first one, with its presets and questions"
        )
    if (RUN / "nextroot").exists():
        yield describe_line(RUN / "nextroot", "the next reboot is into that (systemd-soft-reboot.service(8))")
    if (common.read(SYS / "kernel/kexec_loaded") or "").strip() == "1":
        yield describe_line(SYS / "kernel/kexec_loaded", "the next reboot may be into the kernel that is loaded")


def settings(name: str, section: str) -> dict[str, str]:
    """What files of settings of a daemon of systemd's come to: the main one, then others by name, of which one in /etc
    hides others of its name (systemd-system.conf(5)).
    """
    folders = [ETC / "systemd", RUN / "systemd", USR / "local/lib/systemd", USR / "lib/systemd"]
    main = next((one for folder in folders if (one := folder / name).is_file()), None)
    others: dict[str, Path] = {}
    for folder in folders:
        with suppress(OSError):
            for path in sorted((folder / f"{name}.d").iterdir()):
                if path.suffix == ".conf":
                    others.setdefault(path.name, path)
    found = {}
    for path in [*([main] if main else []), *(others[one] for one in sorted(others))]:
        within_it = ""
        for line in common.lines(common.read(path) or ""):
            text = line.strip()
            if text.startswith("["):
                within_it = text
            elif within_it == section and "=" in text and text[0] not in "#;":
                key, _, value = text.partition("=")
                found[key.strip()] = value.strip()
    return found
