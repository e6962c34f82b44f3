"""Authors of failures: of the file or unit that a failed check names, as far as the host's logs tell."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class FailureAuthors:
    """All of them."""

    authors: list[str]
    """For each failure the last change to what it names, with time and author; empty where no log tells."""


LIMIT = 20.0
"""Seconds for all of them."""
FAILURE_AUTHORS: Section[FailureAuthors] = Section(
    "failure_authors",
    FailureAuthors,
    lambda scene: None,
    LIMIT,
    phase="separate",
    blind="what is in no log, or was changed in them",
)
"""Its question is that of checks/change_authors.py: a host of which checks fail is asked once more."""
