"""Where programs lie on a host, and what of it is looked at where anybody may put as much as he likes."""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Collection, Iterator
from contextlib import suppress

from checks.survey.host import common, fs_responsiveness

# Where programs lie, and what anybody can write to
HELD = (
    *("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/libexec", "/usr/lib"),
    *("/opt", "/tmp", "/var/tmp", "/dev/shm", "/run", "/root"),  # noqa: S108 # what lies there is looked at
    *("/", "/etc", "/srv", "/home", "/var", "/var/lib"),
    *("/var/cache", "/var/spool", "/usr/local", "/usr/local/share", "/usr/share", "/usr/games", "/mnt", "/boot"),
)
# Below these whatever lies there, the nearest first; not what checks of trees read
BELOW = ("/home", "/srv", "/opt", "/usr/local", "/var/tmp", "/tmp", "/var/lib", "/root")  # noqa: S108
MANY = 5000  # entries of one owner that are looked at below one of them, so that his own hide nobody else's
CROWD = 100_000  # ...of a folder that others may write to, and of all together, beyond which it is not known
ALL = 300_000
MADE = re.compile(
    r"/(?:opt/rigwright|srv/models|var/lib/(?:dpkg|apt|docker|containers|containerd|kubelet|rancher|lx[cd]|incus|machines"
    r"|portables|systemd/coredump))(?:/|$)"
)


def held(gone: Collection[str], crowded: list[str]) -> Iterator[os.DirEntry[str]]:
    """Files where programs lie, and then in folders below where others than packages put them, up to so many.

    The folder says what a thing is, and the kernel where something is mounted: a look at a mount point waits for a
    server that is gone.

    Args:
        gone: Folders whose file system does not answer.
        crowded: Gets folders of which the rest is not known, as their entries are too many.
    """
    for folder in HELD:
        if folder in gone:
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for number, one in enumerate(entries):
                if number >= CROWD:
                    crowded.append(folder)
                    break
                if one.is_file(follow_symlinks=False):
                    yield one
    looked, mounts, alone = 0, fs_responsiveness.mount_points(), _private_groups()
    spent: Counter[tuple[str, int]] = Counter()
    left = deque((one, one) for one in BELOW if one not in gone)
    while left:
        top, folder = left.popleft()
        if looked >= ALL:
            crowded.append(top)
            return
        with suppress(OSError), os.scandir(folder) as entries:
            own = os.stat(folder)
            # of a user's own group nobody else is
            shared = own.st_mode & (0o002 if own.st_gid in alone else 0o022)
            for number, one in enumerate(entries):
                if number >= CROWD:
                    crowded += [folder] if folder not in crowded else []
                    break
                looked += 1
                if one.path in mounts:
                    continue
                try:
                    whose = top, one.stat(follow_symlinks=False).st_uid
                except OSError:  # it has gone meanwhile: others have not
                    continue
                spent[whose] += 1
                if spent[whose] > MANY:
                    # nobody but root puts anything there beside him
                    if whose[1] == own.st_uid and not shared:
                        break
                elif one.is_dir(follow_symlinks=False):
                    if not MADE.match(one.path):
                        left.append((top, one.path))
                elif one.is_file(follow_symlinks=False):
                    yield one


def _private_groups() -> set[int]:
    """Groups in which nobody is but the user whose name and number they have."""
    passwd = common.rows("/etc/passwd", 7)
    users = {(row[0], row[2], row[3]) for row in passwd}
    first = Counter(row[3] for row in passwd)
    return {
        int(row[2])
        for row in common.rows("/etc/group", 4)
        if (row[0], row[2], row[2]) in users and not row[3] and first[row[2]] == 1 and row[2].isdecimal()
    }
