"""Rules for fields of requests: catalog/gateway/fields.toml, and the exceptions that a rig declares.

Only `gateway.allow_fields` changes the rules; a folder next to an inventory does not.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from rigwright import toml

FILE = Path(__file__).resolve().parents[2] / "catalog/gateway/fields.toml"
_BOUNDED = {"scalars", "entries", "prompts", "number", "size", "regex", "patterns", "counts", "stamp"}
_MODEST = (
    "with counts of at most 2000, at most 10000 characters and at most 64 times * + ? or {m,n} when all counts are "
    "multiplied out, and without * or + after an expression that can be empty"
)
_NAMING = {"scalars", "words", "schemes", "stamp"}


class RequestRule(BaseModel):
    """One rule, as the file has it; roles/gateway/host/router/fields.py says what each kind demands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z_]{1,64}$")]
    kind: Literal[
        "absent",
        "scalars",
        "entries",
        "prompts",
        "number",
        "size",
        "words",
        "schemes",
        "regex",
        "patterns",
        "references",
        "counts",
        "stamp",
    ]
    location: tuple[str, ...]
    names: tuple[str, ...] = ()
    minimum: int = 0
    maximum: int = 0
    paths: tuple[str, ...] = ()
    """Of the API, after `/v1/`; none: all."""
    reason: str
    source: Annotated[tuple[str, ...], Field(min_length=1)]
    rejected: dict[str, JsonValue]
    """Members of a body that the rule rejects. Where the kind is about a size, a number is a text or list of it."""
    accepted: dict[str, JsonValue]
    """Members of a body that the rule accepts."""

    @model_validator(mode="after")
    def _check_complete(self) -> RequestRule:
        if bool(self.names) != (self.kind in _NAMING):
            raise ValueError(f"{self.name}: names for the kinds {', '.join(sorted(_NAMING))}, and for no other")
        if self.maximum and self.kind not in _BOUNDED:
            raise ValueError(f"{self.name}: {self.kind} has no limit")
        return self

    @property
    def demand(self) -> str:
        """The demand of the rule, as the end of a sentence that begins with a field."""
        listed = ", ".join(self.names)
        return {
            "absent": "must not be sent",
            "scalars": f"may have {listed}, each a number, true, false or text of at most {self.maximum} bytes",
            "entries": f"may have at most {self.maximum} entries",
            "prompts": f"may have at most {self.maximum} entries",
            "number": f"must be {self.minimum}"
            if self.minimum == self.maximum
            else f"must be {self.minimum} to {self.maximum}",
            "size": f"may be at most {self.maximum} bytes",
            "words": f"must not be {listed}",
            "schemes": f"must begin with {listed}",
            "stamp": f"must have {self.maximum} ASCII characters and a semicolon behind its first cch= if it begins "
            f"with {listed}",
            "regex": f"may be at most {self.maximum} bytes, {_MODEST}",
            "patterns": f"may have patterns of at most {self.maximum} bytes each and {4 * self.maximum} together, "
            f"{_MODEST}",
            "counts": f"may have minItems, maxItems and similar counts of at most {self.maximum} each and "
            f"{4 * self.maximum} together, and minLength and maxLength of at most 1000000",
            "references": "must not have a $ref that leads to itself without a property or an item in between, and a "
            "schema that is a text must be JSON",
        }[self.kind]

    @property
    def setting(self) -> dict[str, object]:
        """The rule as the router reads it."""
        allow = f'an operator can allow it with gateway.allow_fields = ["{self.name}"]'
        return {
            "name": self.name,
            "kind": self.kind,
            "at": [*self.location],
            "names": [*self.names],
            "least": self.minimum,
            "most": self.maximum,
            "paths": [*self.paths],
            "demand": f"{self.demand}: {self.reason}; {allow}",
        }


class RequestRules(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: tuple[RequestRule, ...]


@cache
def load_request_rules() -> tuple[RequestRule, ...]:
    """All rules, in the order of the file."""
    return toml.load_toml(FILE, RequestRules).rule


def rule_names() -> tuple[str, ...]:
    """The names that `gateway.allow_fields` accepts."""
    return tuple(one.name for one in load_request_rules())
