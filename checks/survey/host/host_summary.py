"""The host at a glance: clock, current generation, and the versions of what it runs."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from pathlib import Path

from checks.survey.host import common

DRIVER = "/sys/module/nvidia/version"


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `config`, the folder whose `current` leads to a generation.
    """
    versions = {"kernel": os.uname().release, "python": ".".join(map(str, sys.version_info[:3]))}
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', common.read("/etc/os-release") or "", re.MULTILINE)
    if named:
        versions["system"] = named[1]
    if driver := (common.read(DRIVER) or "").strip():
        versions["driver"] = driver
    machine = (common.read("/etc/machine-id") or "").strip()
    try:
        led = re.fullmatch(r"generations/([0-9]{1,9})/?", str(Path(asked["config"], "current").readlink()))
    except OSError:
        led = None
    return {
        "clock": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "generation": int(led[1]) if led else None,
        "versions": versions,
        # systemd asks that the id itself is not published (machine-id(5))
        "machine": hashlib.sha256(f"rigwright-verdict {machine}".encode()).hexdigest() if machine else "",
    }
