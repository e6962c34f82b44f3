"""Modes of packaged files: dpkg records none, so that a table has those that are not a plain file's."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from checks.survey.host import common, dpkg

OWNER = 0  # a test's files are its user's
PROGRAMS = ("/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/")
PRIVILEGED: dict[str, tuple[int, str, bool]] = {
    **{
        f"/usr/bin/{name}": (0o4755, "root", False)
        for name in (
            *("chfn", "chsh", "gpasswd", "mount", "newgrp", "ntfs-3g", "passwd", "pkexec", "su", "sudo", "umount"),
            *("fusermount", "fusermount3", "bwrap", "doas", "newuidmap", "newgidmap", "nvidia-modprobe", "at"),
        )
    },
    **{
        f"/usr/sbin/{name}": (0o4755, "root", False)
        for name in ("mount.nfs", "mount.cifs", "mount.ecryptfs_private", "exim4", "pppd")
    },
    "/usr/bin/chage": (0o2755, "shadow", False),
    "/usr/bin/expiry": (0o2755, "shadow", False),
    "/usr/sbin/unix_chkpwd": (0o2755, "shadow", False),
    "/usr/bin/crontab": (0o2755, "crontab", False),
    "/usr/bin/ssh-agent": (0o2755, "_ssh", False),
    "/usr/bin/wall": (0o2755, "tty", False),
    "/usr/bin/write": (0o2755, "tty", False),
    "/usr/bin/bsd-write": (0o2755, "tty", False),
    "/usr/bin/dotlockfile": (0o2755, "mail", False),
    "/usr/lib/openssh/ssh-keysign": (0o4755, "root", False),
    "/usr/lib/dbus-1.0/dbus-daemon-launch-helper": (0o4754, "messagebus", False),
    "/usr/lib/polkit-1/polkit-agent-helper-1": (0o4755, "root", False),
    "/usr/libexec/polkit-agent-helper-1": (0o4755, "root", False),
    "/usr/lib/xorg/Xorg.wrap": (0o4755, "root", False),
    "/usr/lib/snapd/snap-confine": (0o4755, "root", True),
    **{
        f"/usr/bin/{name}": (0o755, "root", True)
        for name in ("ping", "arping", "clockdiff", "mtr-packet", "dumpcap", "fping", "prometheus-blackbox-exporter")
    },
    "/usr/lib/x86_64-linux-gnu/gstreamer1.0/gstreamer-1.0/gst-ptp-helper": (0o755, "root", True),
}
"""Program -> mode, group and whether it has capabilities, as Debian's and Ubuntu's packages install it: dpkg records no
modes."""
OTHER_MODES = {
    "/usr/bin/ping": (0o4755,),
    "/usr/bin/fusermount": (0o4754,),
    "/usr/bin/at": (0o6755,),
    "/usr/bin/crontab": (0o2755, 0o4755),
    "/usr/bin/newuidmap": (0o755,),
    "/usr/bin/newgidmap": (0o755,),
    "/usr/bin/mtr-packet": (0o4755,),
}
"""Modes of other releases' packages."""
FOLDERS = {
    **dict.fromkeys(("/tmp", "/var/tmp"), (0o1777, 0, 0)),  # noqa: S108 (names of places)
    **dict.fromkeys(
        (
            "/var/local",
            *(f"/usr/local{one}" for one in ("", "/bin", "/sbin", "/lib", "/etc", "/share", "/src", "/games")),
        ),
        (0o2775, 0, 50),
    ),
    "/var/mail": (0o2775, 0, 8),
    "/var/spool/cron/crontabs": (0o1730, 0, -1),
}
"""Folders of packages in which others than root may write: mode, owner and group."""
GROUPS = {"/usr/bin/crontab": ("crontab", "_crontab", "root"), "/usr/bin/ssh-agent": ("_ssh", "ssh")}


def has_packaged_mode(path: str, status: os.stat_result) -> bool:
    """Whether owner, group and mode are as a package installs a file: root's, and writable by root alone."""
    extended: list[str] = []
    with suppress(OSError):
        extended = os.listxattr(f"{dpkg.ROOT}{path}", follow_symlinks=False)
    listed, capable = any("posix_acl" in one for one in extended), "security.capability" in extended
    return not listed and fits_package(path, status.st_mode, status.st_uid, status.st_gid, capable=capable)


def fits_package(path: str, mode: int, uid: int, gid: int, *, capable: bool) -> bool:
    """The same of a file without an access list.

    Args:
        path: Of the file.
        mode: As lstat(2) has it.
        uid: Its owner.
        gid: Its group.
        capable: Whether it has capabilities.
    """
    mode = stat.S_IMODE(mode)
    if uid != OWNER or mode & 0o022:
        return False
    if name := next((one for one in dpkg.names(path) if one in PRIVILEGED), ""):
        wanted, group, may = PRIVILEGED[name]
        fits = mode == wanted and common.named(_groups, gid) in (group, *GROUPS.get(name, ()))
        plain = mode == 0o755 and gid == 0
        return (fits or plain or mode in OTHER_MODES.get(name, ())) and (may or not capable)
    if capable or mode & 0o7000:
        return False
    return mode & 0o111 == 0o111 if path.startswith(PROGRAMS) else True


def _groups(number: int) -> tuple[str]:
    """A group's name, by the host's own file."""
    for row in common.rows(f"{dpkg.ROOT}/etc/group", 4):
        if row[2] == str(number):
            return (row[0],)
    raise KeyError(number)
