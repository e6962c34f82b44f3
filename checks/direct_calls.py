"""Checks called directly, with values made as pytest makes those of fixtures: its own way takes longer than a check."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

import pytest

from checks.check_items import item_params, target_of

GIVEN = ("pytestconfig", "record_property")
"""Fixtures of pytest that checks may use here."""


class DirectCalls:
    """Calls of checks. Values that only depend on the host are made once for it, while its checks run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.host = ""
        self.shared: dict[object, object] = {}
        """Function of a fixture -> its value for the host."""
        self.callable: dict[object, bool] = {}
        """Function of a check -> whether its fixtures are such that it can be called."""

    def run(self, item: pytest.Item) -> bool:
        """Run a check; False without running it where it needs pytest itself."""
        function = cast("pytest.Function", item)
        if function.obj not in self.callable:
            self.callable[function.obj] = self._is_callable(function)
        if not self.callable[function.obj]:
            return False
        if self.host != target_of(item):
            self.host, self.shared = target_of(item), {}
        own: dict[str, object] = {**item_params(item), "record_property": _record_in(item)}
        shared: dict[str, object] = {"target_name": own.pop("target_name"), "pytestconfig": self.config}
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
        return True

    @staticmethod
    def _is_callable(function: pytest.Function) -> bool:
        info, params = function._fixtureinfo, item_params(function)
        left, known = [*info.argnames], {*GIVEN, *params}
        while left:
            if (name := left.pop()) in known:
                continue
            known.add(name)
            fixtures = info.name2fixturedefs.get(name, ())
            # another of the same name, a clean-up, and anything of pytest's own
            if len(fixtures) != 1 or inspect.isgeneratorfunction(fixtures[0].func) or fixtures[0].scope != "session":
                return False
            left += fixtures[0].argnames
        return True


def _record_in(item: pytest.Item) -> Callable[[str, object], None]:
    return lambda name, value: item.user_properties.append((name, value))
