"""Report files of `check` in formats of others, from the results of one run."""

from __future__ import annotations

from pathlib import Path

from checks.pytest_frame import ChecksPlugin
from cli.output_file import write_output


def write_check_reports(frame: ChecksPlugin, *, page: str | None, ctrf: str | None, arf: Path | None) -> None:
    """Write the files that the command names.

    Raises:
        NotAsDeclared: one cannot be written.
    """
    if page:
        from cli.check_page import write_check_page

        write_check_page(page, frame)
    if ctrf:
        from cli.ctrf_report import render_ctrf

        write_output(ctrf, render_ctrf(frame.build_report()))
    if arf:
        from cli.arf_report import write_arf_reports

        write_arf_reports(arf, frame.build_report())
