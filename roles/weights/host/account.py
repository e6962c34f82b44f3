"""The user that the hub's client runs as, and how root takes over a file that this user has made.

The client is a program of many libraries. It gets no privilege, and of secrets the token alone, through an open file.
Names in its folder are its own: it may put a link, a pipe or another file behind one at any moment. Root opens them one
folder at a time without following links, goes by the opened file from then on, and keeps it once nothing can write to
it.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from .hold import FileLease, LeaseUnsupported, copy_file
from .spec import FetchRefused

MANY = 1000
"""Names of a folder that are read."""


class ClientAccount:
    """A system user.

    Raises:
        FetchRefused: there is no such user, or it is root.
    """

    def __init__(self, name: str) -> None:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            raise FetchRefused(
                f"the user {name or 'of the client'} does not exist: deploy again, which makes it"
            ) from None
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        if self.uid == 0:
            raise FetchRefused("the hub's client does not run as root: name another service_user")

    @property
    def command_prefix(self) -> list[str]:
        """The prefix of a command: the rest runs as this user, with no privilege and no way to one."""
        words = ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", *words, "--"]

    @contextmanager
    def open_own_file(self, top: Path, path: str) -> Iterator[int]:
        """A regular file of this user's below one of its folders, open to be read while the block runs.

        Args:
            top: The folder, in one that is root's.
            path: From there; the last part may be `*` and an ending.

        Raises:
            FetchRefused: there is a link on the way, it is no regular file, or it is not this user's.
            OSError: it is not there.
        """
        folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            *folders, last = path.split("/")
            for one in folders:
                inner = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = inner
            if last.startswith("*"):
                with os.scandir(folder) as entries:
                    names = [one.name for one in islice(entries, MANY) if one.name.endswith(last[1:])]
                if not names:
                    raise FileNotFoundError(path)
                last = names[0]
            # a pipe would be waited for without end
            handle = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != self.uid:
                raise FetchRefused(f"{path} is not a file that the hub's client has made")
            yield handle
        finally:
            os.close(handle)


def link_in_place(handle: int, path: Path) -> None:
    """Give an open file another name, in the place of what has it."""
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), path.lstat()):
            return
        path.unlink()
    # with a folder linkat(2) is called, which goes by what the descriptor stands for
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)


def take_over(path: Path) -> None:
    """Make a file root's, whose name is in a folder of root's, so that nothing writes to it any more.

    Raises:
        FetchRefused: a process has it open to write; it was removed.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(handle, 0, 0)
        os.fchmod(handle, 0o644)
    finally:
        os.close(handle)
    try:
        with FileLease(path) as hold:
            hold.check_unchanged(path)
    except LeaseUnsupported:
        other = path.with_name(f"{path.name}.copy.part")
        copy_file(path, other, 0)
        other.replace(path)
    except FetchRefused:
        path.unlink()
        raise
