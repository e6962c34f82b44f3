"""nginx's configuration of a gateway, as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rigwright.declaration.instance import Instance
from rigwright.gateway.entry import Gateway

LUA = Path(__file__).resolve().parents[2] / "templates/gateway/gateway.lua"


def text(gateway: Gateway, instances: Sequence[Instance], folder: str) -> str:
    return ""
