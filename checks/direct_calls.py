"""Checks called directly, with values made as pytest makes those of fixtures: its own way takes longer than a check."""

from __future__ import annotations

import inspect
from typing import cast

import pytest

from checks.host_checks import TARGET, CheckFunction, HostCheck

GIVEN = ("pytestconfig", "record_property")
"""Fixtures of pytest that checks may use here."""


class CheckArguments:
    """Values of fixtures for one call of a check."""

    def __init__(self, check: HostCheck, config: pytest.Config, shared: dict[object, object]) -> None:
        """Take the check's own values, and those that were made for its host."""
        self.fixtures = cast("pytest.Function", check.function.item)._fixtureinfo.name2fixturedefs
        self.own: dict[str, object] = {**check.params, "record_property": check.record_property}
        """Values of this call only."""
        self.known: dict[str, object] = {TARGET: self.own.pop(TARGET), "pytestconfig": config}
        self.shared = shared

    def find(self, name: str) -> object:
        """The value of a fixture."""
        if name in self.own:
            return self.own[name]
        if name in self.known:
            return self.known[name]
        fixture = self.fixtures[name][-1]
        if fixture.func not in self.shared:
            made = fixture.func(**{one: self.find(one) for one in fixture.argnames})
            if any(one in self.own for one in fixture.argnames):
                self.own[name] = made
                return made
            self.shared[fixture.func] = made
        self.known[name] = self.shared[fixture.func]
        return self.known[name]


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
        call = function.obj
        if call not in self.callable:
            _require_callable(check.function)
            self.callable.add(call)
        if self.host != check.target:
            self.forget()
            self.host = check.target
        arguments = CheckArguments(check, self.config, self.shared)
        call(**{name: arguments.find(name) for name in function._fixtureinfo.argnames})

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
