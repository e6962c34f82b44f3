"""Options of one run besides its inventory: `pyinfra INVENTORY deploy.py --data key=value`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from rigwright.declaration import connection
from rigwright.declaration.variant_selection import VariantSwitch
from rigwright.plan.separate_roles import NEEDS, select_roles
from rigwright.problems import Invalid, Problem, describe_renamed, format_value, suggestion
from rigwright.serving.takeover import RULE, ExistingService, parse_existing_service
from rigwright.supply.bundle import parse_digest
from rigwright.validated_types import DRIVER_VERSION, CardIndex, Name, VariantName

VERBS = ("deploy", "upgrade", "rollback", "remove")
DIGEST = "the 64 hexadecimal digits printed by `rigwright lock`, `bundle` or `plan --json`, in groups or not"


@dataclass(frozen=True)
class RunOptions:
    """Options of a run."""

    verb: str = "deploy"
    to: int | None = None
    """The generation to go back to; None for the one before."""
    driver: bool = False
    """Whether it is the driver that goes back."""
    driver_version: str = ""
    """The driver to go back to; "" for the one before the installed one."""
    keep_weights: bool = False
    reboot: bool | None = None
    """Whether hosts may be rebooted where the driver needs it; None for those that the inventory allows it for."""
    expected_digest: str = ""
    """The digest that lock and bundle must have; "" where any will do."""
    accept_older: int = 0
    """The serial of a signed lock or bundle that is accepted although the host has a later one; 0 for none."""
    switch: VariantSwitch | None = None
    """An instance that serves another variant than its inventory says, in this run."""
    only: tuple[str, ...] = ()
    """The roles to which a deploy is restricted; none for all."""
    existing_service: ExistingService | None = None
    """The service that ran before Rigwright: a switch replaces it with the instance, a rollback restores it."""

    def includes_role(self, name: str) -> bool:
        """Whether a role runs."""
        return not self.only or name in self.only


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_selection(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(select_roles(value))
    except LookupError:
        return False


def parse_switch(value: object) -> VariantSwitch | None:
    """A switch from its text in `--data`; None if the text has another form."""
    instance, _, rest = value.partition(":") if isinstance(value, str) else ("", "", "")
    variant, separator, cards = rest.partition(":")
    try:
        return VariantSwitch(
            TypeAdapter(Name).validate_python(instance),
            TypeAdapter(VariantName).validate_python(variant),
            TypeAdapter(tuple[CardIndex, ...]).validate_json(f"[{cards}]") if separator else None,
        )
    except ValidationError:
        return None


OWN_KEYS: dict[str, tuple[Callable[[object], bool], str]] = {
    "verb": (lambda value: value in VERBS, "deploy, upgrade, rollback or remove"),
    "to": (_is_number, "a generation's number, 1 or more"),
    "driver": (_is_truth, "true or false"),
    "driver_version": (
        lambda value: isinstance(value, str) and bool(DRIVER_VERSION.fullmatch(value)),
        "a driver's version, such as 580.178.04",
    ),
    "keep_weights": (_is_truth, "true or false"),
    "reboot": (_is_truth, "true or false"),
    "only": (_is_selection, f"roles, comma-separated: {', '.join(NEEDS)}"),
    "expected_digest": (lambda value: parse_digest(value) is not None, DIGEST),
    "accept_older": (_is_number, "the serial of a signed lock or bundle"),
    "existing_service": (lambda value: parse_existing_service(value) is not None, RULE),
    "switch": (
        lambda value: parse_switch(value) is not None,
        "INSTANCE:ENGINE/NAME, an instance and a variant, with :CARDS such as 0,1 if it gets others",
    ),
}
RENAMED = {"expect": "expected_digest", "theirs": "existing_service"}
"""Former name of a key -> its name: a former name is refused."""
# pyinfra hands on its options --ssh-password and --ssh-key-password as if they were data
KEYS = (*OWN_KEYS, *connection.KEYS, "ssh_password", "ssh_key_password")


def _describe_wrong_value(key: str, value: object) -> str:
    """The rule that the value of a known key breaks; empty if the value is valid."""
    if key in OWN_KEYS:
        return "" if OWN_KEYS[key][0](value) else OWN_KEYS[key][1]
    return connection.describe_wrong_value(key, value) if key in connection.KEYS else ""


def parse_run_options(given: Mapping[str, object]) -> RunOptions:
    """The orders that a run's `--data` come to.

    Args:
        given: Key -> value, as pyinfra has read them: `true` and `false` are truth values, digits a number.

    Raises:
        Invalid: with every mistake in them. The value of a key that is unknown is not repeated.
    """
    problems = [
        Problem(
            "--data", key, describe_renamed(RENAMED[key]) if key in RENAMED else f"unknown key{suggestion(key, KEYS)}"
        )
        for key in given
        if key not in KEYS
    ]
    for key, value in given.items():
        if rule := _describe_wrong_value(key, value):
            near = difflib.get_close_matches(str(value), VERBS, n=1, cutoff=0.5) if key == "verb" else []
            hint = f'; did you mean "{near[0]}"?' if near else ""
            problems.append(Problem("--data", key, f"{format_value(value, key)} is refused: must be {rule}{hint}"))
    if not problems:
        problems = _find_conflicts(given)
    if problems:
        raise Invalid(problems)
    read: dict[str, Callable[..., object]] = {
        "expected_digest": parse_digest,
        "only": select_roles,
        "switch": parse_switch,
        "existing_service": parse_existing_service,
    }
    own = {key: read[key](value) if key in read else value for key, value in given.items() if key in OWN_KEYS}
    return RunOptions(**own)  # type: ignore[arg-type]


def _find_conflicts(given: Mapping[str, object]) -> list[Problem]:
    """Keys that do not go together: a run that ignored one would do something else than it was asked for."""
    verb, driver, reboot = given.get("verb", "deploy"), given.get("driver"), given.get("reboot")
    found = [
        Problem("--data", key, f"needs verb={needed}, not verb={verb}")
        for key, needed in (("to", "rollback"), ("driver", "rollback"), ("keep_weights", "remove"))
        if given.get(key) and verb != needed
    ]
    if given.get("driver_version") and not driver:
        found.append(Problem("--data", "driver_version", "needs driver=true"))
    if verb == "rollback" and driver and given.get("to"):
        found.append(Problem("--data", "to", "is a generation number, and conflicts with driver=true"))
    if given.get("expected_digest") and verb not in ("deploy", "upgrade"):
        found.append(Problem("--data", "expected_digest", f"needs verb=deploy or upgrade, not verb={verb}"))
    if given.get("accept_older") and verb not in ("deploy", "upgrade"):
        found.append(Problem("--data", "accept_older", f"needs verb=deploy or upgrade, not verb={verb}"))
    if given.get("switch") and verb != "deploy":
        found.append(Problem("--data", "switch", f"needs verb=deploy, not verb={verb}"))
    if given.get("only") and (verb not in ("deploy", "upgrade") or given.get("switch")):
        found.append(Problem("--data", "only", "needs verb=deploy or upgrade, and conflicts with switch"))
    if given.get("only") and verb == "upgrade" and "nvidia_driver" not in select_roles(str(given["only"])):
        found.append(Problem("--data", "only", "must name nvidia_driver with verb=upgrade"))
    if given.get("existing_service") and not (verb == "rollback" or (verb == "deploy" and given.get("switch"))):
        found.append(Problem("--data", "existing_service", "needs switch=INSTANCE:ENGINE/NAME, or verb=rollback"))
    if given.get("existing_service") and (driver or given.get("to")):
        found.append(Problem("--data", "existing_service", "conflicts with driver and to"))
    if reboot and verb == "remove":
        found.append(Problem("--data", "reboot", "conflicts with verb=remove"))
    if reboot and verb == "rollback" and not driver:
        found.append(Problem("--data", "reboot", "needs driver=true: another generation needs no reboot"))
    return found
