"""Rigwright's other files on the host: the ledger, secrets and directories."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import common

PEM = re.compile("-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\\s]+)-----END CERTIFICATE-----")
CRL = re.compile("-----BEGIN X509 CRL-----([A-Za-z0-9+/=\\s]+)-----END X509 CRL-----")
VERSION = re.compile(rb',"version":{"serial":([0-9]{1,16}),"id":"([0-9a-f]{16})"}}\n?\Z')
MOST_CERTIFICATES = 1 << 20  # bytes of a file with certificates
MOST = 20  # of a kind that are reported


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `roots`; `folders` that are looked at; `ledger`; `credentials`, the folder, and `generations`, that of
            those that need some; `config`, a folder with reported names; `files` that are hashed; `keys`, a file with
            clients' keys, empty for none; `late`, a folder whose times are looked at elsewhere.
    """
    now = time.time()
    loose, ahead = _walked(asked["roots"], asked["late"], set(asked["apart"]), now)
    secrets = common.list_folder(Path(asked["credentials"]))
    guarded = [Path(asked["credentials"]), *secrets]
    return {
        "loose": loose,
        "ahead": ahead,
        "folders": [_folder(Path(path)) for path in asked["folders"]],
        "ledger": _ledger(Path(asked["ledger"])),
        "secrets": [_entry(path) for path in secrets],
        "secrets_listed": [str(path) for path in guarded if _has_access_list(path)],
        "secrets_stuck": [str(path) for path in guarded if not path.is_symlink() and common.stuck(path)],
        "needed": sorted(_needed(Path(asked["generations"]))),
        "config": [path.name for path in common.list_folder(Path(asked["config"]))],
        "files": {path: _sha256(Path(path)) for path in asked["files"]},
        "keys_version": _keys_version(Path(asked["keys"])) if asked["keys"] else "",
        "certificates": {str(path): _certificate(path) for path in secrets},
        "between_boxes": {str(path): _all_certificates(path) for path in secrets if path.name.startswith("gateway-_")},
        "revocations": {str(path): _revocations(path) for path in secrets if path.name.startswith("gateway-_")},
    }


def _walked(
    roots: list[str], late: str, apart: set[str], now: float
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """The objects below roots that others than root can change, and those with a time to come; not the ones that
    services keep apart."""
    loose: list[dict[str, object]] = []
    ahead: list[dict[str, object]] = []

    def note_entry(path: str, there: os.stat_result) -> None:
        if not stat.S_ISLNK(there.st_mode) and (there.st_uid != 0 or there.st_mode & 0o022) and len(loose) < MOST:
            loose.append(_describe_entry(path, there))
        if there.st_mtime > now + 600 and not f"{path}/".startswith(f"{late}/") and len(ahead) < MOST:
            ahead.append(_describe_entry(path, there))

    for root in roots:
        with suppress(FileNotFoundError):
            top = Path(root).lstat()
            note_entry(root, top)
            waiting = [root] if stat.S_ISDIR(top.st_mode) else []
            while waiting:
                with suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        if entry.path in apart:
                            continue
                        with suppress(FileNotFoundError):
                            there = entry.stat(follow_symlinks=False)
                            note_entry(entry.path, there)
                            # only root reaches the contents of a folder of root's, such as a build's
                            closed = there.st_uid == 0 and stat.S_IMODE(there.st_mode) == 0o700
                            if stat.S_ISDIR(there.st_mode) and not closed and there.st_dev == top.st_dev:
                                waiting.append(entry.path)
    return loose, ahead


def _describe_entry(path: str, there: os.stat_result) -> dict[str, object]:
    return {
        "path": path,
        "kind": common.file_kind(there.st_mode),
        "mode": stat.S_IMODE(there.st_mode),
        "uid": there.st_uid,
        "gid": there.st_gid,
        "mtime": there.st_mtime,
    }


def _entry(path: Path) -> dict[str, object]:
    try:
        return _describe_entry(str(path), path.lstat())
    except OSError:
        return {"path": str(path), "kind": "none", "mode": 0, "uid": 0, "gid": 0, "mtime": 0.0}


def _has_access_list(path: Path) -> bool:
    with suppress(OSError):
        return any("posix_acl" in name for name in os.listxattr(path, follow_symlinks=False))
    return False


def _folder(path: Path) -> dict[str, object]:
    """A folder, and whether no user may write to it, root included."""
    entry = _entry(path)
    return {"entry": entry, "stuck": entry["kind"] == "folder" and common.stuck(path)}


def _ledger(path: Path) -> dict[str, object]:
    text = common.read(path, 8 << 20)
    return {
        "entry": _entry(path),
        "lines": sorted(set(common.lines(text or ""))),
        "whole": (text or "\n")[-1:] == "\n",
    }


def _needed(generations: Path) -> Iterator[str]:
    """Names of secrets that a generation was made with."""
    for folder in common.list_folder(generations):
        for line in common.lines(common.read(folder / "references") or ""):
            yield line.rpartition("/")[2]
        if (folder / "gateway").is_dir():
            yield "gateway-keys.json"
        for line in common.lines(common.read(folder / "gateway/tls") or ""):
            yield f"gateway-{line}.pem"


def _certificate(path: Path) -> str:
    """SHA-256 of the first certificate in a file, as a listener shows it; empty where there is none."""
    found = PEM.search(common.begin(path))
    with suppress(ValueError):
        return hashlib.sha256(base64.b64decode(found[1])).hexdigest() if found else ""
    return ""


def _all_certificates(path: Path) -> list[str]:
    """The certificates in a file, in Base64."""
    return ["".join(one.split()) for one in PEM.findall(common.begin(path, MOST_CERTIFICATES))]


def _revocations(path: Path) -> str:
    """The list of revoked certificates in a file, in Base64; empty where there is none."""
    return "".join(next(iter(CRL.findall(common.begin(path, MOST_CERTIFICATES))), "").split())


def _sha256(path: Path) -> str:
    """Of a small file; empty where there is none."""
    content = _content(path)
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _keys_version(path: Path) -> str:
    """SERIAL and ID of the keys in a file; empty where they have none."""
    found = VERSION.search(_content(path) or b"")
    return " ".join(word.decode() for word in found.groups()) if found else ""


def _content(path: Path) -> bytes | None:
    """Of a small file; None where there is none."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        return file.read(common.MOST) if stat.S_ISREG(os.fstat(opened).st_mode) else None
