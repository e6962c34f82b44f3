"""Questions to a host, asked one by one as testinfra asks them: what bench/conform.py compares our checks with.

$ASKED is a JSON file: host -> a list of questions, each a kind and its words.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test a host and question."""
    asked: dict[str, list[list[str]]] = json.loads(Path(os.environ["ASKED"]).read_text())
    most = max(map(len, asked.values()))
    metafunc.parametrize("number", range(most))


@pytest.fixture
def question(host: Any, number: int) -> list[str]:
    """The question of that number to this host."""
    asked: dict[str, list[list[str]]] = json.loads(Path(os.environ["ASKED"]).read_text())
    name = host.backend.hostname.rpartition("@")[2]
    found = asked[name]
    if number >= len(found):
        pytest.skip("it has fewer")
    return found[number]


def test_asked(host: Any, question: list[str]) -> None:
    """One question, as testinfra's own modules ask it."""
    kind, *words = question
    answers: dict[str, Callable[..., bool]] = {
        "shell": lambda name, shell: host.user(name).shell == shell,
        "groups": lambda name: host.user(name).groups is not None,
        "mode": lambda path, mode: host.file(path).mode == int(mode, 8),
        "owner": lambda path, user: host.file(path).user == user,
        "sha256": lambda path, digest: host.file(path).sha256sum == digest,
        "running": lambda unit: host.service(unit).is_running,
        "property": lambda unit, key: key in host.service(unit).systemd_properties,
        "listening": lambda address: host.socket(address).is_listening,
        "package": lambda name: host.package(name).is_installed,
        "says": lambda command, text: text in host.check_output(command),
    }
    assert answers[kind](*words), question
