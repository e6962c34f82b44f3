"""pytest items of checks: their mark, their host and part, and the selection of --only and --severity."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from checks import SEVERITIES, Severity
from rigwright.problems import describe_unknown

IDENTIFIER = re.compile(r"[A-Z]{1,4}[0-9]{2,3}")
PARTS = ("instance", "engine_name", "env", "weight", "offered", "listener", "watching")
"""Fixtures that say which part of a host a check is about."""


def describe_part(part: Any) -> str:
    """The name of an instance, engine or weight; one of a model's files as the catalogue names it."""
    name = str(part[0] if isinstance(part, tuple) else getattr(part, "name", part))
    return f"{name}:{part.path}" if getattr(part, "group", None) else name


def read_check_mark(item: pytest.Item) -> dict[str, Any]:
    """A check's own description.

    Raises:
        pytest.UsageError: nothing, or not in the way that checks do.
    """
    mark = item.get_closest_marker("check")
    if mark is None:
        raise pytest.UsageError(f"{item.nodeid} has no @check: every check needs an id, a title and a why")
    if not IDENTIFIER.fullmatch(mark.kwargs["identifier"]):
        raise pytest.UsageError(
            f"{item.nodeid}: {mark.kwargs['identifier']!r} is refused: must be 1 to 4 capitals and 2 or 3 digits"
        )
    return dict(mark.kwargs)


def item_params(item: pytest.Item) -> dict[str, Any]:
    """The arguments of a check's runs."""
    found: dict[str, Any] = getattr(item, "callspec").params  # noqa: B009 (pytest sets it on parametrised items)
    return found


def find_part(params: Mapping[str, Any]) -> str:
    """The part of the host that a check with these arguments is about; empty for all of it."""
    return next((describe_part(params[name]) for name in PARTS if name in params), "")


def reject_duplicate_ids(marks: Iterable[tuple[str, pytest.Item]]) -> None:
    """Refuse ids that two checks have.

    Raises:
        pytest.UsageError: there is one.
    """
    owners: dict[str, tuple[Path, str]] = {}
    for identifier, item in marks:
        owner = (item.path, getattr(item, "originalname", item.name))
        path, function = owners.setdefault(identifier, owner)
        if (path, function) != owner:
            raise pytest.UsageError(f"{item.path}: {owner[1]}: {identifier} is taken by {function} in {path}")


def parse_identifiers(only: Iterable[str]) -> set[str]:
    """The checks that the words of `--only` name."""
    return {word for text in only for word in re.split(r"[,\s]+", text) if word}


def select_checks(
    only: Iterable[str], severity: Severity | None, known: Iterable[str]
) -> Callable[[dict[str, Any]], bool]:
    """Which checks are asked for: these ids, and those of a severity or a graver one.

    Raises:
        pytest.UsageError: no check has one of the ids.
    """
    ids, names = parse_identifiers(only), set(known)
    for missing in sorted(ids - names):
        raise pytest.UsageError(f"--only: {describe_unknown('check', missing, names)}")
    graver = SEVERITIES[: SEVERITIES.index(severity) + 1] if severity else SEVERITIES
    return lambda mark: mark["severity"] in graver and (not ids or mark["identifier"] in ids)
