"""The last deploy's record of driver and cards."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, ValidationError

from rigwright.model.roots import Roots

FILE = "driver.json"


class RecordedCard(BaseModel):
    """A card when the driver was brought."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    address: str
    vbios: str = ""
    """Empty where nobody has written it down."""


class DriverRecord(BaseModel):
    """The driver that the last deploy left there; of an operator's own it knows the cards alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str = ""
    kernel: str = ""
    packages: dict[str, str] = {}
    cards: tuple[RecordedCard, ...] = ()


def driver_record_path(roots: Roots) -> str:
    """Where it lies on the host."""
    return f"{roots.config}/{FILE}"


def parse_driver_record(text: str) -> DriverRecord | None:
    """The record; None where there is none that can be read."""
    try:
        return DriverRecord.model_validate(json.loads(text))
    except (ValueError, ValidationError, RecursionError):
        return None
