"""What polkit and D-Bus let everybody do: what packages have not brought so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common, dpkg, scheduled_jobs

# Actions of polkit's, each with who may (polkit(8))
ACTIONS = ("/usr/share/polkit-1/actions", "/usr/local/share/polkit-1/actions", "/etc/polkit-1/actions")
ANYBODY = re.compile(r"<allow_(any|inactive)>\s*yes\s*</allow_\1>")
BUS = ("/etc/dbus-1/system.d", "/etc/dbus-1/system-local.conf", "/etc/dbus-1/system.conf", "/usr/share/dbus-1/system.d")
# A policy for everybody, and a line of it that lets him be, or ask, whomever he likes (dbus-daemon(1))
POLICY = re.compile(r"<policy\s+(?:context|at_console)=.*?</policy>", re.DOTALL)
WHOEVER = re.compile(
    r"<allow\s+(?:own=[\"'](?:[*]|org[.]freedesktop[.](?:systemd1|login1|PolicyKit1|DBus)[\"'])|own_prefix=|"
    r"send_destination=[\"'][*])[^>]*>"
)
REMARK = re.compile(r"<!--.*?-->", re.DOTALL)


def opened() -> Iterator[dict[str, str]]:
    """Actions that everybody may do from wherever he is, and names that everybody may have."""
    found: dict[str, str] = {}
    for path in scheduled_jobs.files([Path(f"{dpkg.ROOT}{place}") for place in (*ACTIONS, *BUS)]):
        text = REMARK.sub("", common.read(path) or "")
        if path.suffix == ".policy":
            said = ANYBODY.search(text)
        else:
            said = next((one for part in POLICY.findall(text) if (one := WHOEVER.search(part))), None)
        if said:
            found[str(path).removeprefix(dpkg.ROOT)] = said[0]
    brought = dpkg.unchanged(found)
    yield from (scheduled_jobs.describe_line(Path(path), said) for path, said in found.items() if path not in brought)
