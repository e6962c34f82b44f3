"""Files that root leaves for node exporter in a box's folder of figures, each file by a rename, and age limits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rigwright.model.monitoring_schema import Monitoring
from rigwright.model.roots import Roots

if TYPE_CHECKING:
    pass

DEPLOY_STARTED = "rigwright_deploy_started_seconds"
CHECK_FINISHED = "rigwright_check_finished_seconds"
CHECK_FAILED = "rigwright_check_failed"
CHECK_CHANGED = "rigwright_check_changed"
ADVISORIES = "rigwright_advisories"
# Of the check that a box makes of itself (roles/self_check/host/run.py).
SELF_CHECK_FAILED = "rigwright_self_check_failed"
SELF_CHECK_RUN = "rigwright_self_check_run_seconds"
# Of the service that keeps instances out of the rotation (roles/gateway/host/rotation/run.py).
ROTATION_LEFT = "rigwright_rotation_left_seconds"
# Of the residency service (roles/residency/host/service.py).
RESIDENCY_AWAKE = "rigwright_residency_awake"
RESIDENCY_FAILED = "rigwright_residency_failed_starts"
ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def textfile_folder(roots: Roots) -> str:
    """Where root leaves figures for node exporter, each file by a rename."""
    return f"{roots.state}/metrics"


def deploy_textfile(roots: Roots, monitoring: Monitoring | None) -> str:
    """The file with the state of a deploy; empty for a box that exports no metrics."""
    return f"{textfile_folder(roots)}/deploy.prom" if monitoring else ""


def check_textfile(roots: Roots, monitoring: Monitoring | None) -> str:
    """The file with the results of the checks; empty for a box that exports no metrics."""
    return f"{textfile_folder(roots)}/check.prom" if monitoring else ""


def render_check_metrics(
    finished: float,
    generation: int | None,
    counts: Mapping[str, int],
    failed: Iterable[tuple[str, str, str]],
    advisories: Mapping[str, int] | None = None,
    changed: Mapping[str, int] | None = None,
) -> str:
    """The results of the checks of a box, in Prometheus' text format.

    Args:
        finished: When, in seconds since 1970.
        generation: The one that is current there; None where that was not seen.
        counts: Verdict -> checks that came to it.
        failed: Identifier, severity and part of the host of each that does not hold.
        advisories: State -> published advisories that cover the box; None or empty where they were not counted.
        changed: Identifier of a check -> its changes that are not accepted; without those that are only listed.
    """
    lines = [f"# TYPE {CHECK_FINISHED} gauge", f"{CHECK_FINISHED} {int(finished)}"]
    if generation is not None:
        lines += ["# TYPE rigwright_generation gauge", f"rigwright_generation {generation}"]
    lines.append("# TYPE rigwright_checks gauge")
    lines += [
        f"rigwright_checks{{{render_labels(verdict=verdict)}}} {number}" for verdict, number in sorted(counts.items())
    ]
    lines.append(f"# TYPE {CHECK_FAILED} gauge")
    # one that is run of several parts of the same name would be told twice, and node exporter would tell nothing
    for check, level, part in sorted(set(failed)):
        lines.append(f"{CHECK_FAILED}{{{render_labels(check=check, level=level, part=part)}}} 1")
    if changed:
        lines.append(f"# TYPE {CHECK_CHANGED} gauge")
        lines += [
            f"{CHECK_CHANGED}{{{render_labels(check=check)}}} {number}" for check, number in sorted(changed.items())
        ]
    if advisories:
        lines.append(f"# TYPE {ADVISORIES} gauge")
        lines += [
            f"{ADVISORIES}{{{render_labels(state=state)}}} {number}" for state, number in sorted(advisories.items())
        ]
    return "\n".join(lines) + "\n"


def render_labels(**values: str) -> str:
    """Labels as Prometheus' text format has them, whatever is in their values."""
    return ",".join(f'{name}="{value.translate(ESCAPED)}"' for name, value in values.items())
