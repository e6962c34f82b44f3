"""`check --json` with the fingerprint alone: the host answers no other section of the survey."""

from __future__ import annotations

import sys

from cli import import_speedups
from tests.hosts.host_changes.report_findings import FINGERPRINT

SECTIONS = ("fingerprint", "host_summary")
"""Sections of the survey that checks of the fingerprint read, and the report itself."""


def main(inventory: str) -> int:
    """Print the report of all checks of the fingerprint; returns their exit status."""
    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (as `cli.check` imports it: before anything else of it)

    from checks.check_catalogue import list_checks
    from checks.runner import run_checks
    from checks.survey import collection
    from checks.survey.section import Phase, Section
    from checks.survey.sections import list_sections

    def list_read_sections(*phases: Phase) -> tuple[Section[object], ...]:
        return tuple(section for section in list_sections(*phases) if section.name in SECTIONS)

    collection.list_sections = list_read_sections  # type: ignore[assignment]
    identifiers = {one.id for one in list_checks() if one.id.startswith(FINGERPRINT)}
    return run_checks(inventory, f"--only={','.join(sorted(identifiers))}", "--json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
