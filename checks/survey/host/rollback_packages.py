"""Package files that are kept for the way back."""

from __future__ import annotations

import glob
import hashlib
import os

from checks.survey.host import common

ROOT = ""  # a test has a folder for a host


def kept(folder: str, deep: bool) -> list[dict[str, object]]:
    """The sets that a folder has, each with its files: their sizes, and their sums where those were to be looked at."""
    found: list[dict[str, object]] = []
    for path in sorted(glob.glob(f"{ROOT}{folder}/*/"), key=os.path.getmtime, reverse=True):
        if path.endswith(".new/") or os.path.basename(path.rstrip("/")).startswith("fetched."):
            continue
        listed = common.read(f"{path}SHA256SUMS")
        since = os.stat(f"{path}SHA256SUMS").st_ctime if listed is not None else 0.0
        # a touch of the list moves its times to now, and not when it was made
        since = min(since, common.born([f"{path}SHA256SUMS"]).get(f"{path}SHA256SUMS", since))
        files = []
        for entry in sorted(os.scandir(path), key=lambda one: one.name):
            seen = entry.stat(follow_symlinks=False)
            plain = entry.is_file(follow_symlinks=False)
            # linked there before the list was written: its inode has not changed since, or its bytes are read
            read = plain and entry.name != "SHA256SUMS" and (deep or seen.st_ctime > since + 1)
            files.append(
                {
                    "name": entry.name,
                    "size": seen.st_size if plain else -1,
                    "sha256": digest(entry.path) if read else "",
                }
            )
        found.append({"version": os.path.basename(path.rstrip("/")), "listed": listed, "files": files})
    return found


def digest(path: str) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
