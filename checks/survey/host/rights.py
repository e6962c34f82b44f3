"""Ways to become root without authentication: PAM and polkit rules, and setuid programs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common, dpkg, jobs

ETC = Path("/etc")
RUN = Path("/run")
USR = Path("/usr")
# Where programs lie, and what anybody can write to
HELD = (
    *("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/libexec", "/usr/lib"),
    *("/opt", "/tmp", "/var/tmp", "/dev/shm", "/run", "/root"),  # noqa: S108 # what lies there is looked at
)
# A module that says yes, where nobody is asked after it
GRANTED = re.compile(
    r"\s*-?auth\s+(?:sufficient|binding|\[[^]]*success=(?:done|[1-9])[^]]*\])\s+(?:\S*/)?pam_permit[.]so"
)
YES = re.compile(r"Result\s*[.]\s*YES|[\"']yes[\"']")
ASKED = re.compile(r"subject\s*[.]")


def look(asked: dict[str, str]) -> dict[str, object]:
    """All of it.

    Args:
        asked: Nothing.
    """
    return {"open": [*granted(), *allowed()], "programs": [*programs()]}


def granted() -> Iterator[dict[str, str]]:
    """Lines of PAM's by which anybody is whom he says."""
    for path in jobs.files([ETC / "pam.d"]):
        yield from (jobs.told(path, line) for line in common.lines(common.read(path) or "") if GRANTED.match(line))


def allowed() -> Iterator[dict[str, str]]:
    """Rules of polkit's by which anybody may do what only root does."""
    for path in jobs.files([ETC / "polkit-1/rules.d", RUN / "polkit-1/rules.d", USR / "local/share/polkit-1/rules.d"]):
        text = re.sub(r"//[^\n]*", "", common.read(path) or "")
        rules = text.split("addRule")[1:]
        yield from (jobs.told(path, rule) for rule in rules if YES.search(rule) and not ASKED.search(rule))


def programs() -> Iterator[dict[str, str]]:
    """Those that run as root, whoever starts them, and that no package has brought."""
    found = {}
    for folder in HELD:
        with suppress(OSError), os.scandir(folder) as entries:
            for one in entries:
                with suppress(OSError):
                    seen = one.stat(follow_symlinks=False)
                    if stat.S_ISREG(seen.st_mode) and seen.st_mode & stat.S_ISUID and seen.st_uid == 0:
                        found[one.path] = stat.S_IMODE(seen.st_mode)
    owned = dpkg.owners(found)
    yield from (jobs.told(Path(path), f"mode {mode:o}") for path, mode in found.items() if path not in owned)
