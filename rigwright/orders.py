"""What one run is asked for beside its inventory: `pyinfra INVENTORY deploy.py --data key=value`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from rigwright.declaration import connection
from rigwright.declaration.edit import Switch
from rigwright.model.theirs import RULE, Theirs, theirs_of
from rigwright.problems import Invalid, Problem, shown, suggestion
from rigwright.supply.expected import heard
from rigwright.types import CardIndex, Name, VariantName

VERBS = ("deploy", "upgrade", "rollback", "remove")
DIGEST = "the 64 hexadecimal digits printed by `rigwright plan`, in groups or not"


@dataclass(frozen=True)
class Orders:
    """What a run is to do."""

    verb: str = "deploy"
    to: int | None = None
    """The generation to go back to; None for the one before."""
    driver: bool = False
    """Whether it is the driver that goes back."""
    keep_weights: bool = False
    reboot: bool = False
    """Whether hosts may be rebooted where the driver needs it."""
    expect: str = ""
    """The digest that lock and bundle must have; "" where any will do."""
    switch: Switch | None = None
    """An instance that serves another variant than its inventory says, in this run."""
    theirs: Theirs | None = None
    """What served before us: that instance comes in its place, or by a rollback it comes back."""


def _truth(value: object) -> bool:
    return isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _switch(value: object) -> bool:
    return switch_of(value) is not None


def switch_of(value: object) -> Switch | None:
    """A switch as `--data` has it; None where it is none."""
    instance, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    variant, separator, cards = rest.partition(":")
    try:
        return Switch(
            TypeAdapter(Name).validate_python(instance),
            TypeAdapter(VariantName).validate_python(variant),
            TypeAdapter(tuple[CardIndex, ...]).validate_json(f"[{cards}]") if separator else None,
        )
    except ValidationError:
        return None


OWN: dict[str, tuple[Callable[[object], bool], str]] = {
    "verb": (lambda value: value in VERBS, "deploy, upgrade, rollback or remove"),
    "to": (_number, "a generation's number, 1 or more"),
    "driver": (_truth, "true or false"),
    "keep_weights": (_truth, "true or false"),
    "reboot": (_truth, "true or false"),
    "expect": (lambda value: heard(value) is not None, DIGEST),
    "theirs": (lambda value: theirs_of(value) is not None, RULE),
    "switch": (_switch, "INSTANCE:ENGINE/NAME, an instance and a variant, with :CARDS such as 0,1 if it gets others"),
}
# pyinfra hands on its options --ssh-password and --ssh-key-password as if they were data
KEYS = (*OWN, *connection.KEYS, "ssh_password", "ssh_key_password")


def _wrong(key: str, value: object) -> str:
    """What the value of a key that is known must be, where it is refused; empty where it is right."""
    if key in OWN:
        return "" if OWN[key][0](value) else OWN[key][1]
    return connection.wrong(key, value) if key in connection.KEYS else ""


def orders(given: Mapping[str, object]) -> Orders:
    """The orders that a run's `--data` come to.

    Args:
        given: Key -> value, as pyinfra has read them: `true` and `false` are truth values, digits a number.

    Raises:
        Invalid: with every mistake in them. The value of a key that is unknown is not repeated.
    """
    problems = [Problem("--data", key, f"unknown key{suggestion(key, KEYS)}") for key in given if key not in KEYS]
    for key, value in given.items():
        if rule := _wrong(key, value):
            near = difflib.get_close_matches(str(value), VERBS, n=1, cutoff=0.5) if key == "verb" else []
            hint = f'; did you mean "{near[0]}"?' if near else ""
            problems.append(Problem("--data", key, f"{shown(value)} is refused: must be {rule}{hint}"))
    if not problems:
        problems = _together(given)
    if problems:
        raise Invalid(problems)
    read = {"expect": heard, "switch": switch_of, "theirs": theirs_of}
    own = {key: read[key](value) if key in read else value for key, value in given.items() if key in OWN}
    return Orders(**own)  # type: ignore[arg-type]


def _together(given: Mapping[str, object]) -> list[Problem]:
    """Keys that do not go together: a run that ignored one would do something else than it was asked for."""
    verb, driver, reboot = given.get("verb", "deploy"), given.get("driver"), given.get("reboot")
    found = [
        Problem("--data", key, f"needs verb={needed}, not verb={verb}")
        for key, needed in (("to", "rollback"), ("driver", "rollback"), ("keep_weights", "remove"))
        if given.get(key) and verb != needed
    ]
    if verb == "rollback" and driver and given.get("to"):
        found.append(Problem("--data", "to", "is a generation number, and conflicts with driver=true"))
    if given.get("expect") and verb not in ("deploy", "upgrade"):
        found.append(Problem("--data", "expect", f"needs verb=deploy or upgrade, not verb={verb}"))
    if given.get("switch") and verb != "deploy":
        found.append(Problem("--data", "switch", f"needs verb=deploy, not verb={verb}"))
    if given.get("theirs") and not (verb == "rollback" or (verb == "deploy" and given.get("switch"))):
        found.append(Problem("--data", "theirs", "needs switch=INSTANCE:ENGINE/NAME, or verb=rollback"))
    if given.get("theirs") and (driver or given.get("to")):
        found.append(Problem("--data", "theirs", "conflicts with driver and to"))
    if reboot and verb == "remove":
        found.append(Problem("--data", "reboot", "conflicts with verb=remove"))
    if reboot and verb == "rollback" and not driver:
        found.append(Problem("--data", "reboot", "needs driver=true: another generation needs no reboot"))
    return found
