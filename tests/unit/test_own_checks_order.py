"""The order of an operator's own checks: fixtures of the session stay while a later host has some."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import pytest_frame
from checks.pytest_frame import ChecksPlugin


def test_a_host_without_own_checks_ends_no_fixture_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, str | None]] = []

    def make_item(host: str) -> Any:
        def run(item: Any, nextitem: Any) -> None:
            ran.append((item.host, nextitem.host if nextitem else None))

        hook = SimpleNamespace(pytest_runtest_protocol=run)
        return SimpleNamespace(host=host, path=Path("/x/own.py"), config=SimpleNamespace(hook=hook))

    plugin: Any = object.__new__(ChecksPlugin)
    plugin.functions = [SimpleNamespace(find_parts=lambda rig: True)]
    plugin._end_host = lambda name: None
    plugin.look = SimpleNamespace(
        hosts={name: SimpleNamespace(rig=None) for name in ("a", "b", "c")},
        choose_next_host=min,
        is_out_of_reach=lambda name: False,
        end_host=lambda name: None,
    )
    monkeypatch.setattr(pytest_frame, "find_only_reporter", lambda session: None)
    monkeypatch.setattr(pytest_frame, "item_params", lambda item: {pytest_frame.TARGET: item.host})
    monkeypatch.setattr(pytest_frame, "list_host_checks", lambda *words: [])
    monkeypatch.setattr(pytest_frame, "raise_if_stopped", lambda session: None)
    announced: list[str] = []
    session: Any = SimpleNamespace(
        items=[make_item("a"), make_item("c")],
        testsfailed=0,
        config=SimpleNamespace(option=SimpleNamespace(collectonly=False)),
        _setupstate=SimpleNamespace(teardown_exact=lambda item: announced.append(item.host)),
    )
    assert plugin.pytest_runtestloop(session)
    assert ran == [("a", "c"), ("c", None)]
    assert announced == ["a", "c"], "pytest ends what the next one of them does not need"
