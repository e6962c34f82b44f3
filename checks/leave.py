"""What the checks have found, left on a box for whoever watches it: the one thing that checks write."""

from __future__ import annotations

import shlex
from collections import Counter

from checks.look import Seen
from checks.results import HostReport
from rigwright.monitoring.figures import check_figures, check_file
from roles import root

LIMIT = 20.0  # seconds
# a folder that is not there is somebody's who has not deployed yet
WRITE = '[ -d "${1%/*}" ] && umask 022 && cat > "$1.new" && mv -f "$1.new" "$1"'


def leave(seen: Seen, report: HostReport, finished: float) -> str:
    """Leave a host's verdicts there, if it is declared to tell; returns why that went wrong, or nothing.

    Args:
        seen: The host.
        report: What was found, of all checks.
        finished: When, in seconds since 1970.
    """
    path = check_file(seen.rig)
    if not path:
        return ""
    counts = Counter[str](one.verdict for one in report.checks)
    failed = [(one.id, one.severity, one.part) for one in report.checks if one.verdict == "fail"]
    text = check_figures(finished, report.generation, counts, failed, report.advisories)
    try:
        answer = root.run(seen.target, f"set -- {shlex.quote(path)}; {WRITE}", text, LIMIT, whole=LIMIT)
    except root.Gone as error:
        return str(error)
    return "" if answer.status == 0 else answer.complaint or "nothing was deployed that reads them"
