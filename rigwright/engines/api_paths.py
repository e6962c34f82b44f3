"""Paths after `/v1/` of the two protocols that engines answer, and the releases that answer Anthropic's."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

COMPLETIONS = ("chat/completions", "completions", "responses")
"""OpenAI's, of engines that generate text."""
MESSAGES = ("messages", "messages/count_tokens")
"""Anthropic's."""


def released_paths(releases: Mapping[str, SpecifierSet], release: str) -> tuple[str, ...]:
    """Those of `MESSAGES` that are open with a release.

    Args:
        releases: Path -> the releases that answer it within the rules for request fields.
        release: A version. One without an order, such as a commit, counts as current: an engine that lacks a path
            refuses it itself.
    """
    try:
        found = Version(release)
    except InvalidVersion:
        return MESSAGES
    return tuple(path for path in MESSAGES if releases[path].contains(found, prereleases=True))
