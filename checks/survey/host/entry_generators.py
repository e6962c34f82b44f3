"""Units that systemd's generators make at each reload (systemd.generator(7)): made anew in a scratch folder, and
compared. Only packaged generators of systemd itself are run: they write nothing but into the folders that they are
given.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from contextlib import suppress

from checks.survey.host import dpkg
from checks.survey.host.entry_attribution import Attribution

FOLDERS = ("generator", "generator.early", "generator.late")
PLACE = "/run/systemd"
GENERATORS = "/usr/lib/systemd/system-generators"
SCRATCH = "/run/rw-check-generators"
LIMIT = 10.0  # s for each
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin", "SYSTEMD_SCOPE": "system", "SYSTEMD_IN_INITRD": "0"}


def attribute_generated(host: Attribution) -> None:
    """Explain units that packaged generators make from what is there now.

    A result is kept: generators run again only where an entry has another content.
    """
    prefixes = tuple(f"{PLACE}/{name}/" for name in FOLDERS)
    left = [entry for entry in host.entries if not entry.origin and entry.path.startswith(prefixes)]
    states = {entry.path: generated_state(f"{dpkg.ROOT}{entry.path}") for entry in left}
    known = host.index.cache.get("generated", {})
    if any(known.get(path) != state for path, state in states.items()):
        known = run_generators(host)
        host.index.cache["generated"], host.index.changed = known, True
    for entry in left:
        if states[entry.path] and known.get(entry.path) == states[entry.path]:
            host.explain(entry, "derived by generators of systemd")


def generated_state(path: str) -> str:
    """A file or link as text that is equal for equal ones; empty for all else."""
    with suppress(OSError):
        status = os.lstat(path)
        if status.st_uid == os.geteuid() and stat.S_ISLNK(status.st_mode):
            return f"link {os.readlink(path)}"
        if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode) and not status.st_mode & 0o022:
            with open(path, "rb") as file:
                return f"file {hashlib.sha256(file.read()).hexdigest()}"
    return ""


def run_generators(host: Attribution) -> dict[str, str]:
    """Path -> state of what systemd's generators make now."""
    scratch = f"{SCRATCH}-{os.getpid()}"
    found: dict[str, str] = {}
    try:
        os.mkdir(scratch, 0o700)
        folders = [f"{scratch}/{name}" for name in FOLDERS]
        for folder in folders:
            os.mkdir(folder)
        for name in sorted(os.listdir(f"{dpkg.ROOT}{GENERATORS}")):
            path = f"{GENERATORS}/{name}"
            if name.startswith("systemd-") and host.is_explained(path):
                with suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(
                        [f"{dpkg.ROOT}{path}", *folders],
                        env=ENVIRONMENT,
                        timeout=LIMIT,
                        check=False,
                        stdin=subprocess.DEVNULL,
                        capture_output=True,
                    )
        for folder, folders_, files in os.walk(scratch):
            for place in (f"{folder}/{name}" for name in (*folders_, *files)):
                found[f"{PLACE}{place.removeprefix(scratch)}"] = generated_state(place)
    except OSError:
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return found
