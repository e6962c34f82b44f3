"""Whether apt can read and verify the sources in one file, without touching the host's package lists."""

from __future__ import annotations

import glob
import os

from checks.survey.host import apt, common

ROOT = ""  # a test has a folder for a host


def others() -> list[str]:
    """An operator's own files that name NVIDIA's archive."""
    paths = [f"{ROOT}/etc/apt/sources.list", *sorted(glob.glob(f"{ROOT}/etc/apt/sources.list.d/*"))]
    return [path.removeprefix(ROOT) for path in paths if "/cuda/repos/" in (common.read(path) or "")]


def look(asked: dict[str, str]) -> dict[str, object]:
    """The exit status and the output of an update of apt's; nothing where there are no such sources.

    Args:
        asked: `source`, the file, where an operator's own may stand in for it; `authority`, a file of certificates, or
            nothing; `proxy` and `none`, as curl has them.
    """
    source = next((path for path in [asked["source"], *others()] if os.path.isfile(f"{ROOT}{path}")), "")
    return apt.update(source, asked)
