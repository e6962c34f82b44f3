"""The checks of what a deploy owns, run by a deploy itself over its own connection and without pytest's frame."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from checks import Drift, Items, continue_past_waived
from checks.automatic_repairs import DriftedCheck, find_repairs, has_foreign_additions
from checks.remedy import rig_command
from checks.required_check_ids import OWNED
from checks.result_waivers import cover_items
from checks.survey.section import SurveyScope
from checks.survey_run import SurveyedHost
from rigwright.check_waivers import format_day
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.plan.repairs import Repair

DRIVER = "N"
"""The prefixes of checks of a driver and its cards."""
UNRUN = ("baseline", "answers", "sandbox", "preflight", "host_changes")
"""Files of checks that say nothing of what a deploy makes on a host: speeds, completions, attempts to escape,
refusals, and changes around it."""


PARTNER = "partner"
"""The fixture of checks that compare two hosts, of which a deploy of one sees one."""


@dataclass(frozen=True)
class HostAgreement:
    """The verdict of the checks about a host after a deploy."""

    owned: tuple[DriftedCheck, ...] = ()
    """Of what a deploy owns."""
    foreign: tuple[DriftedCheck, ...] = ()
    """Of what surrounds it."""
    repairs: frozenset[Repair] = frozenset()
    repaired: frozenset[str] = frozenset()
    """Checks that repairs are about."""
    passed: int = 0
    """Checks of what a deploy owns that hold, each part of a host counted."""
    waived: tuple[str, ...] = ()
    """Checks of it that fail and that the inventory waives: ids and parts."""


class _OneRun:
    """Values of fixtures for one host, or for a part of it, made as the checks' own conftest makes them."""

    def __init__(self, seen: SurveyedHost, module: ModuleType, part: tuple[str, object] | None) -> None:
        self.module, self.common = module, importlib.import_module("checks.conftest")
        self.values: dict[str, object] = {
            "surveyed_host": seen,
            "record_property": lambda name, value: None,
            "pytestconfig": _Options(),
            "verdicts": {},  # of a complete run of checks, which a deploy is not
            **(dict([part]) if part else {}),
        }

    def call(self, function: Callable[..., Any]) -> Any:
        """A check or a fixture, with all that it asks for."""
        return function(**{name: self._value(name) for name in inspect.signature(function).parameters})

    def _value(self, name: str) -> object:
        if name not in self.values:
            made = getattr(self.module, name, None) or getattr(self.common, name)
            self.values[name] = self.call(made._fixture_function)
        return self.values[name]


class _Options:
    """pytest's options, of which none is set."""

    def getoption(self, name: str) -> bool:
        """Whether one is set."""
        return False


def is_owned(identifier: str, manages_driver: bool) -> bool:
    """Whether a check is about what a deploy has made of a rig: a driver that it does not manage is its operator's."""
    return identifier in OWNED and (manages_driver or not identifier.startswith(DRIVER))


def judge_host(seen: SurveyedHost) -> HostAgreement:
    """Run the checks over a survey of a host, and name what a deploy repairs of what fails."""
    owned, foreign, passed = list[DriftedCheck](), list[DriftedCheck](), 0
    waived: list[str] = []
    today = format_day(time.time())
    for failed in _failures(seen, today):
        if isinstance(failed, DriftedCheck) and _is_waived(failed, seen.rig.waivers, today):
            waived.append(f"{failed.id} {failed.part}".rstrip())
            continue
        if isinstance(failed, str):
            passed += is_owned(failed, seen.rig.driver.managed)
            continue
        (owned if is_owned(failed.id, seen.rig.driver.managed) else foreign).append(failed)
    repairs: dict[str, frozenset[Repair]] = {}
    if (owned or foreign) and (survey := seen.survey):
        scope = SurveyScope(seen.rig, seen.desired)
        # a program that comes up again would be the same
        futile = any(failed.id == "U05" for failed in foreign) or has_foreign_additions(survey, scope)
        for failed in (*owned, *foreign):
            found = find_repairs(survey, scope, failed)
            found = frozenset(one for one in found if not (futile and one.action == "restart"))
            repairs[failed.id] = repairs.get(failed.id, frozenset()) | found
    return HostAgreement(
        tuple(owned),
        tuple(foreign),
        frozenset(one for found in repairs.values() for one in found),
        frozenset(name for name, found in repairs.items() if found),
        passed,
        tuple(waived),
    )


def _is_waived(failed: DriftedCheck, waivers: Sequence[WaiverEntry], today: str) -> bool:
    return cover_items(waivers, failed.id, failed.part, today)(failed.drift.waivable_items)


def _failures(seen: SurveyedHost, today: str) -> Iterator[DriftedCheck | str]:
    """Each check that applies: its failure, or its name where it holds."""
    import pytest

    from checks.asleep_instances import is_asleep_for
    from checks.check_catalogue import HERE
    from checks.check_items import describe_part
    from checks.host_checks import PARTS

    for path in sorted(HERE.glob("test_*.py")):
        if path.stem[5:] in UNRUN:
            continue
        module = importlib.import_module(f"checks.{path.stem}")
        for function in vars(module).values():
            mark = next((one for one in getattr(function, "pytestmark", ()) if one.name == "check"), None)
            if mark is None or function.__module__ != module.__name__:
                continue
            fixtures = _fixtures(function, module)
            if PARTNER in fixtures:
                continue
            named = next((name for name in PARTS if name in fixtures), "")
            for part in PARTS[named](seen.rig) if named else [None]:
                label, what = describe_part(part) if named else "", mark.kwargs
                if is_asleep_for(what["identifier"], part, seen.survey):
                    continue
                is_waived = cover_items(seen.rig.waivers, what["identifier"], label, today)
                with suppress(pytest.skip.Exception):
                    drift = _run(seen, module, function, (named, part) if named else None, is_waived)
                    if drift is None:
                        yield what["identifier"]
                    else:
                        unit = getattr(part, "unit", "") or getattr(part, "unit_name", "")
                        yield DriftedCheck(what["identifier"], what["title"], label, unit, drift)


def _fixtures(function: Callable[..., Any], module: ModuleType) -> set[str]:
    """The names that a check asks for, and those that these ask for."""
    found: set[str] = set()
    left = [*inspect.signature(function).parameters]
    common = importlib.import_module("checks.conftest")
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        made = getattr(getattr(module, name, None) or getattr(common, name, None), "_fixture_function", None)
        left += inspect.signature(made).parameters if made else ()
    return found


def _run(
    seen: SurveyedHost,
    module: ModuleType,
    function: Callable[..., Any],
    part: tuple[str, object] | None,
    is_waived: Callable[[Items], bool],
) -> Drift | None:
    try:
        with continue_past_waived(is_waived):
            _OneRun(seen, module, part).call(function)
    except Drift as drift:
        return drift
    except Exception as error:  # a check without a verdict proves nothing
        found = f"{type(error).__name__}: {error}"
        return Drift("a check that reaches a verdict", found, rig_command("check"), is_waivable=False)
    return None
