"""Make changes on a deployed throwaway host, and show for each what its checks report."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from tests.hosts.drift_boxes import box_name, running_host
from tests.hosts.drift_tables import FOLDER as DRIFTS
from tests.hosts.drift_tables import area_names
from tests.hosts.host_changes.change_results import ChangeResult, render_drifts, render_row, render_totals
from tests.hosts.host_changes.change_runs import run_changes, run_drifts
from tests.hosts.host_changes.change_tables import ChangeCase, harmless_path, load_changes, new_change_paths
from tests.hosts.host_changes.changed_host import ChangedHost
from tests.hosts.host_changes.report_findings import HostFinding


def select_cases(cases: Mapping[str, ChangeCase], words: str, results: Iterable[ChangeResult]) -> dict[str, ChangeCase]:
    """The cases whose names have these words, without those that have a result."""
    known = {one.name for one in results}
    return {name: case for name, case in cases.items() if words in name and name not in known}


def load_results(path: Path | None) -> list[ChangeResult]:
    """Results of an earlier run; none without a file."""
    if path is None or not path.exists():
        return []
    rows = json.loads(path.read_text())
    return [
        ChangeResult(**row | {"findings": [HostFinding(**one) for one in row["findings"]], "red": tuple(row["red"])})
        for row in rows
    ]


def main() -> None:
    """Run changes and print a line for each, then totals.

    The exit status is 1 where a change is missed, a harmless one is reported too strongly, or one is invalid.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.hosts.host_changes.run", description=__doc__)
    parser.add_argument("inventory", type=Path)
    parser.add_argument("files", type=Path, nargs="*", help="default: harmless.toml and the new changes")
    parser.add_argument("-k", metavar="WORDS", default="", help="those whose name has these words")
    parser.add_argument("--whole", action="store_true", help="all checks report, not the fingerprint's alone")
    parser.add_argument("--old", action="store_true", help="rows of drifts (default: all of this kind of host)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write results; those in it are not run again")
    parser.add_argument("--not-accepted", action="store_true", help="accept nothing: new findings count")
    options = parser.parse_intermixed_args()
    drift_host = running_host(options.inventory)
    box = box_name(drift_host)
    host = ChangedHost(**vars(drift_host), whole=options.whole)
    files = options.files or (
        [DRIFTS / f"{area}.toml" for area in area_names()] if options.old else [harmless_path(), *new_change_paths()]
    )
    cases = {name: case for name, case in load_changes(*files).items() if case.box == box}
    results = load_results(options.json)
    cases = select_cases(cases, options.k, results)
    host.begin(accepts=not options.not_accepted)
    for finding in host.at_rest:
        print(f"at rest: {finding.outcome}: {finding.label}: {finding.text[:200]}")
    run = run_drifts(host, cases) if options.old else run_changes(host, cases, accepts=not options.not_accepted)
    for result in run:
        results.append(result)
        print(render_row(result), flush=True)
        if options.json:
            options.json.write_text(json.dumps([asdict(one) for one in results], indent=1))
    print("\n".join(["", *(render_drifts(results) if options.old else render_totals(results))]))
    sys.exit(any(one.verdict not in ("detected", "as expected") or one.leftover for one in results))


if __name__ == "__main__":
    main()
