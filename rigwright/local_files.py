"""Files on the operator's machine: read whole, where they are of a likely size, and written whole or not at all."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from rigwright.project_root import require_own_place

MIB = 1 << 20


@cache
def read_program(path: Path) -> str:
    """The text of a program that is part of Rigwright: it stays the same while a run reads it for each host."""
    return path.read_text()


class SecretUnavailable(ValueError):
    """A secret that its source does not provide; the text never repeats the secret."""


def read_content(path: str | Path, most: int) -> bytes:
    """The contents of a file.

    Args:
        path: The file; a link to one will do.
        most: Bytes that it may have.

    Raises:
        ValueError: it is no file, cannot be read, or holds more; the text says which, without the path.
    """
    refuse_special_file(path)
    try:
        with open(path, "rb") as file:
            found = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(found) > most:
        raise ValueError(f"has more than {most >> 20} MiB" if most >= MIB else f"has more than {most} bytes")
    return found


def refuse_special_file(path: str | Path) -> None:
    """Refuse what is no file: a pipe would be waited for, and a device read, without end.

    Raises:
        ValueError: it is no file; the text names it, with the nearest name where there is nothing.
    """
    place = Path(path)
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        if place.is_symlink():
            raise ValueError(f"is a link to {place.readlink()}, which does not exist") from None
        raise ValueError(f"does not exist{suggest_path(place)}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(mode):
        raise ValueError("is not a file: a folder")
    if not stat.S_ISREG(mode):
        raise ValueError("is not a file: a pipe, a socket or a device")


def suggest_path(path: Path) -> str:
    """`; did you mean "x"?` for the name in a path's folder that is nearest to it, or in the folder above."""
    folder = path.parent
    try:
        if not folder.is_dir():
            above = [one.name for one in folder.parent.iterdir() if one.is_dir()]
            found = difflib.get_close_matches(folder.name, above, n=1)
            return f'; did you mean the folder "{folder.with_name(found[0])}"?' if found else f"; no folder {folder}"
        found = difflib.get_close_matches(path.name, [one.name for one in folder.iterdir()], n=1)
    except (OSError, ValueError):
        return ""
    return f'; did you mean "{folder / found[0]}"?' if found else ""


def describe_exposure(path: str | Path) -> str:
    """Why a file with a secret is not kept from others, and the command that fixes it; empty where it is, or is not
    there. It is judged as ssh judges a private key (sshkey_perm_ok in OpenSSH's authfile.c).
    """
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return ""
    return f"is readable by others (mode {mode:04o}): chmod 600 {path}" if mode & 0o077 else ""


def write_atomically(place: Path, text: str, *, makes_folder: bool = False, private: bool = False) -> None:
    """Write a file next to its place, under an unpredictable name, and put it there: whole, or not at all.

    A link of that name is replaced, and what it points at stays as it is. A file keeps its mode and owner.

    Args:
        place: The file.
        text: Its content.
        makes_folder: Whether to make the folder that it is in.
        private: Whether its owner alone may read it, whatever mode a file there has.

    Raises:
        OSError: it cannot be written; the earlier file is as it was.
    """
    require_own_place(place)
    if makes_folder:
        place.parent.mkdir(exist_ok=True)
    made, name = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
    beside = Path(name)
    try:
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
        if private:
            beside.chmod(0o600)
        elif place.is_file() and not place.is_symlink():
            there = place.stat()
            with suppress(PermissionError):
                os.chown(beside, there.st_uid, there.st_gid)
            beside.chmod(stat.S_IMODE(there.st_mode) & 0o777)
        else:
            mask = os.umask(0)
            os.umask(mask)
            beside.chmod(0o666 & ~mask)
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
