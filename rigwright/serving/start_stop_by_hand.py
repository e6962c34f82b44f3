"""Instances that are started, stopped and started again by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rigwright.gateway.gateway_units import WAKE_STATES
from rigwright.host import script_output
from rigwright.host.deploy_lock_state import LOCKS, parse_holder
from rigwright.host.script_output import free_text, unit, word
from rigwright.model.gateway_schema import DRAIN
from rigwright.model.instance import CACHES, WARM, Instance, instance_of
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.serving.instance_units import STOPPED

LifecycleVerb = Literal["start", "stop", "restart"]
DOING: Mapping[LifecycleVerb, str] = {"start": "starting", "stop": "stopping", "restart": "restarting"}
LOG_LINES = 12
SCHEMA: script_output.Schema = {
    "held": (parse_holder,),
    "busy": (free_text,),
    "missing": (unit,),
    "unstopped": (free_text,),
    "refused": (unit, free_text),
    "left": (unit,),
    "state": (unit, word, word),
    "log": (unit, free_text),
}
"""The output of templates/serving/by_hand.sh.j2."""


@dataclass(frozen=True)
class LifecycleOutcome:
    """The result on one host."""

    refusal: str = ""
    """Why nothing was done; empty where something was."""
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Instance -> systemd's two words for what its unit is now."""
    log: tuple[tuple[str, str], ...] = ()
    """(Instance, line): the last ones of those that are not what they are to be."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Instance on demand -> why the residency service has not loaded it."""
    left: frozenset[str] = frozenset()
    """Instances on demand that have answered, and sleep again."""

    def is_right(self, verb: LifecycleVerb) -> bool:
        """Whether all of them are what they are to be."""
        return not self.refusal and all(
            name in self.left or _is_right_state(verb, state) for name, (state, _) in self.states.items()
        )

    def describe_outcome(self, verb: LifecycleVerb) -> list[str]:
        """It in words, a line each."""
        if self.refusal:
            return [f"refused: {self.refusal}"]
        found = []
        for name, (state, detail) in self.states.items():
            lines = [f"  {line}" for of, line in self.log if of == name]
            text = "stopped until `start` or the next deploy" if verb == "stop" else "serves"
            if name in self.left:
                text = "has answered, and is asleep again: another instance needed its memory"
            elif not _is_right_state(verb, state):
                reason = f": {self.reasons[name]}" if name in self.reasons else ""
                text = f"{state} ({detail}){reason}{'; last log lines:' if lines else ''}"
            found += [f"{name}: {text}", *lines]
        return found


def _is_right_state(verb: LifecycleVerb, state: str) -> bool:
    return state in (("inactive", "failed") if verb == "stop" else ("active",))


def render_lifecycle_script(
    roots: Roots,
    instances: tuple[Instance, ...],
    verb: LifecycleVerb,
    names: Sequence[str],
    holder: str,
    *,
    recompile: bool = False,
    drain: int = DRAIN,
) -> str:
    """The script that root runs on a host.

    Args:
        roots: Directories on the host.
        instances: The declared instances.
        verb: The action.
        names: To which instances of it.
        holder: The record of the deploy lock's holder, without a newline.
        recompile: Whether what they have compiled is removed before they start.
        drain: Seconds that another instance has to leave its memory to one on demand.
    """
    return render(
        "serving/by_hand.sh.j2",
        verb=verb,
        instances=[(one.name, one.unit) for one in instances if one.name in names],
        at_boot=[one.unit for one in instances if one.name in names and not one.is_on_demand],
        on_demand=[
            (one.name, one.unit, one.variant.ready_timeout + drain)
            for one in instances
            if one.name in names and one.is_on_demand
        ],
        current=f"{roots.config}/current",
        stopped=f"{roots.config}/{STOPPED}",
        states=WAKE_STATES,
        ledger=f"{roots.residency}/ledger.json",
        holder=holder,
        locks=LOCKS,
        log_lines=LOG_LINES,
        recompile=recompile,
        caches=CACHES,
        warm=WARM,
    )


def parse_outcome(output: Iterable[str]) -> LifecycleOutcome:
    """Read what a host has told.

    Raises:
        ValueError: it told something else, or was cut off.
    """
    told = script_output.parse_output(output, SCHEMA)
    refusals = [str(one) for one in told.all("held")]
    refusals += [f"{name} is at work" for name in told.all("busy")]
    refusals += [f"{instance_of(name)} is not there yet: deploy first" for name in told.all("missing")]
    refusals += [
        f"systemctl stop failed ({reason}): compiled kernels stay, and no instance restarts"
        for reason in told.all("unstopped")
    ]
    states = {instance_of(name): (state, detail) for name, state, detail in told.many("state")}
    log = tuple((instance_of(name), line) for name, line in told.many("log"))
    reasons = {(name := instance_of(unit)): str(text).removeprefix(f"{name}: ") for unit, text in told.many("refused")}
    left = frozenset(instance_of(name) for name in told.all("left"))
    return LifecycleOutcome("; ".join(refusals), states, log, reasons, left)
