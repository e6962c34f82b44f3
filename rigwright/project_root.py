"""Location of this copy of Rigwright: a clone, or the tree of an installed wheel, which nothing writes to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder with deploy.py, the catalogue, locks and templates."""
IS_CLONE = (ROOT / "rig").is_file()
"""Whether that is a clone: the wheel has no `rig`."""


def cache_folder() -> Path | None:
    """The folder for files that can be made anew: the clone's own, or the user's cache. None where that is not the
    running user's: a file of another user there could be code.
    """
    if IS_CLONE:
        return ROOT / "templates" / "__pycache__"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rigwright" / "templates"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    return folder if found.st_uid == os.geteuid() and not found.st_mode & 0o022 else None


def require_own_place(path: Path) -> None:
    """Refuse to write beside a shipped inventory of an installed wheel: an upgrade would remove the file.

    Raises:
        OSError: the path is in the installed tree.
    """
    if not IS_CLONE and path.resolve().is_relative_to(ROOT):
        raise OSError(errno.EROFS, "it belongs to the installed Rigwright; copy the inventory to a folder of your own")
