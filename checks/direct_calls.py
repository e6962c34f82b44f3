"""Checks called directly, with values made as pytest makes those of fixtures: its own way takes longer than a check."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

import pytest

from checks.host_checks import TARGET, CheckFunction, HostCheck

GIVEN = ("pytestconfig", "record_property")
"""Fixtures of pytest that checks may use here."""


class DirectCalls:
    """Calls of our checks. Values that only depend on the host are made once for it, while its checks run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.host = ""
        self.shared: dict[object, object] = {}
        """Function of a fixture -> its value for the host."""
        self.callable: set[object] = set()
        """Functions of checks that can be called directly, by their fixtures."""

    def run(self, check: HostCheck) -> None:
        """Run a check of ours.

        Raises:
            TypeError: it needs pytest itself.
        """
        function = cast("pytest.Function", check.function.item)
        if function.obj not in self.callable:
            _require_callable(check.function)
            self.callable.add(function.obj)
        if self.host != check.target:
            self.forget()
            self.host = check.target
        own: dict[str, object] = {**check.params, "record_property": _record_in(check)}
        shared: dict[str, object] = {TARGET: own.pop(TARGET), "pytestconfig": self.config}
        fixtures = function._fixtureinfo.name2fixturedefs

        def find(name: str) -> object:
            if name in own:
                return own[name]
            if name in shared:
                return shared[name]
            fixture = fixtures[name][-1]
            if fixture.func not in self.shared:
                made = fixture.func(**{one: find(one) for one in fixture.argnames})
                if any(one in own for one in fixture.argnames):
                    own[name] = made
                    return made
                self.shared[fixture.func] = made
            shared[name] = self.shared[fixture.func]
            return shared[name]

        function.obj(**{name: find(name) for name in function._fixtureinfo.argnames})

    def forget(self) -> None:
        """Forget the values of the last host."""
        self.host, self.shared = "", {}


def _require_callable(check: CheckFunction) -> None:
    info = cast("pytest.Function", check.item)._fixtureinfo
    left, known = [*info.argnames], {*GIVEN, TARGET, check.about}
    while left:
        if (name := left.pop()) in known:
            continue
        known.add(name)
        fixtures = info.name2fixturedefs.get(name, ())
        # another of the same name, a clean-up, and anything of pytest's own
        if len(fixtures) != 1 or inspect.isgeneratorfunction(fixtures[0].func):
            raise TypeError(f"a check of ours cannot use {name}")
        left += fixtures[0].argnames


def _record_in(check: HostCheck) -> Callable[[str, object], None]:
    return lambda name, value: check.user_properties.append((name, value))
