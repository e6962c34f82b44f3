"""The part of a host's probe that each feature registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rigwright.host.channel import HostOutput, Schema
from rigwright.model.rig import Rig


def _no_values(rig: Rig) -> Mapping[str, object]:
    return {}


def _no_fields(output: HostOutput) -> Mapping[str, object]:
    return {}


def _no_packages(rig: Rig, system: str) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class FactSource:
    """The facts of one feature, and the packages that it needs; rigwright.plan.host_facts lists all sources."""

    name: str
    template: str = ""
    """The script in templates/ that reports its facts; empty without any."""
    values: Callable[[Rig], Mapping[str, object]] = _no_values
    """The values of that template."""
    schema: Schema = field(default_factory=dict)
    """Key that the script reports -> types of its values."""
    read: Callable[[HostOutput], Mapping[str, object]] = _no_fields
    """Field of `rigwright.model.facts.HostFacts` -> its value, from what the script has reported."""
    packages: Callable[[Rig, str], Iterable[str]] = _no_packages
    """The distribution's packages that a rig needs for it on a release; `""` for those of all releases."""
