"""What the loader finds before the system's own libraries, or puts into every program."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class Loader:
    """All of it."""

    before: list[list[str]]
    """(folder, what names it, library) of those that are found before the system's own, or loaded into its programs."""
    put: list[str]
    """Lines by which whoever logs in has a library put into each program."""


LOADER: Section[Loader] = Section(
    "loader",
    Loader,
    lambda scene: {},
    blind="libraries that a program loads by path, or on demand once it runs",
    start_order=14,
)
