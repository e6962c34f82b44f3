"""Requests, each as it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from roles.client.host import http_exchange


def work(place: http_exchange.RequestTarget, asked: dict[str, Any], say: Callable[[dict[str, object]], None]) -> None:
    """Make one request, and say what came."""
    say(http_exchange.request_with_retries(place, asked))
