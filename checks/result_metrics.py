"""Metrics of a run of the checks for the node exporter: results and open advisories."""

from __future__ import annotations

import shlex
from collections import Counter, deque
from dataclasses import replace

from checks.results import HostReport, count_changes
from checks.survey_run import SurveyedHost
from rigwright.advisories.assessment import STATES
from rigwright.advisories.audit import UnreadableData, audit
from rigwright.model.rig import Rig
from rigwright.monitoring.textfile import check_textfile, render_check_metrics
from rigwright.problems import Invalid
from roles import root_shell

LIMIT = 20.0  # seconds
KEPT = 16  # rigs whose advisories are known
# a missing folder means that the box was never deployed
WRITE = '[ -d "${1%/*}" ] && umask 022 && cat > "$1.new" && mv -f "$1.new" "$1"'


def write_check_metrics(seen: SurveyedHost, report: HostReport, finished: float) -> str:
    """Leave a host's verdicts there, if it is declared to tell; returns why that went wrong, or nothing.

    Args:
        seen: The host.
        report: The results of all checks.
        finished: When, in seconds since 1970.
    """
    path = check_textfile(seen.rig.roots, seen.rig.monitoring)
    if not path:
        return ""
    counts = Counter[str](one.verdict for one in report.checks)
    failed = [(one.id, one.severity, one.part) for one in report.checks if one.verdict == "fail"]
    changed = {one.id: number for one in report.checks if (number := count_changes([one]))}
    text = render_check_metrics(finished, report.generation, counts, failed, report.advisories, changed)
    try:
        answer = root_shell.run_command(seen.target, f"set -- {shlex.quote(path)}; {WRITE}", text, LIMIT, whole=LIMIT)
    except root_shell.ConnectionGone as error:
        return str(error)
    return "" if answer.status == 0 else answer.complaint or "no deployed program reads them"


class AdvisoryCounts:
    """Numbers of advisories of rigs. Rigs that differ in their names only are assessed once."""

    def __init__(self) -> None:
        self.known: deque[tuple[Rig, dict[str, int]]] = deque(maxlen=KEPT)

    def count(self, rig: Rig) -> dict[str, int]:
        """State -> advisories, by the shipped data and those of the rig's bundle; empty where these cannot be read.

        An open advisory is no drift: the host is what its rig declares, so no check fails for it.
        """
        nameless = replace(rig, name="")
        found = next((counts for one, counts in self.known if one == nameless), None)
        if found is None:
            found = _count_advisories(rig)
            self.known.append((nameless, found))
        return dict(found)


def _count_advisories(rig: Rig) -> dict[str, int]:
    try:
        (found,) = audit({rig.name: rig})
    except (Invalid, UnreadableData):
        return {}
    return {state: found.count(state) for state in STATES}
