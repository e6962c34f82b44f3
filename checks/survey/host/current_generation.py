"""The current generation of a host: its number, and its digest when it was written and now."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from typing import Any

from checks.survey.host import common

MANY = 1000  # files of a generation
LARGEST = 1 << 22  # bytes of one; its templates come to a few KiB


def read_generation(config: str, asked: dict[str, Any]) -> dict[str, object]:
    """The number of the current generation, and its digest when it was written and now."""
    try:
        matched = re.fullmatch("generations/([0-9]{1,9})", os.readlink(f"{config}/current"))
    except OSError:
        matched = None
    if not matched or not os.path.isdir(folder := f"{config}/{matched[0]}"):
        return {"number": None, "sealed": "", "found": ""}
    sealed = (common.read(f"{folder}/{asked['sealed']}") or "").split()
    digest = tree_digest(folder, asked["unsealed"])
    return {"number": int(matched[1]), "sealed": sealed[0][:64] if sealed else "", "found": digest}


def tree_digest(folder: str, unsealed: list[str]) -> str:
    """SHA-256 of all content of a generation's folder, as its own digest is made; empty where it cannot be read."""
    hashes, modes, links = list[tuple[str, str]](), list[tuple[str, str]](), list[tuple[str, str]]()
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = f"{top}/{name}"
            place = os.path.relpath(path, folder)
            if len(hashes) + len(links) > MANY:
                return ""
            try:
                found = os.lstat(path)
                if stat.S_ISLNK(found.st_mode):
                    links.append((place, f"link {place} {os.readlink(path)}"))
                elif stat.S_ISREG(found.st_mode) and place not in unsealed:
                    with open(path, "rb") as file:
                        content = file.read(LARGEST)
                    hashes.append((place, f"{hashlib.sha256(content).hexdigest()}  {place}"))
                    modes.append((place, f"mode {stat.S_IMODE(found.st_mode):o} {place}"))
            except OSError:
                return ""
    lines = [line for rows in (hashes, modes, links) for _, line in sorted(rows)]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode(errors="replace")).hexdigest()
