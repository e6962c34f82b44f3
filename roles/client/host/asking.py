"""Requests, each as it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.client.host import talk


def work(place: talk.Place, asked: dict[str, Any], say: Callable[[dict[str, object]], None]) -> None:
    """Make one request, and say what came."""
    say(talk.ask(place, asked))
