"""The probe's facts of installed engines and environments, and the packages that they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rigwright.engines import kind_of
from rigwright.engines.installer import ENVIRONMENTS
from rigwright.engines.kind import InstallingKind
from rigwright.host.channel import HostOutput, file_name, tolerant
from rigwright.model.fact_source import FactSource
from rigwright.model.rig import Rig


def _values(rig: Rig) -> Mapping[str, object]:
    programs = {ENVIRONMENTS.program} if rig.envs else set()
    programs |= {kind.program for one in rig.instances if isinstance(kind := kind_of(one), InstallingKind)}
    return {"engines": rig.installations, "builds": rig.builds, "programs": sorted(filter(None, programs))}


def _read(output: HostOutput) -> Mapping[str, object]:
    # names that are none of ours are read as nothing
    return {
        "built_engines": frozenset(filter(None, output.all("engine"))),
        "unfit_engines": frozenset(filter(None, output.all("unfit"))),
        "started_builds": frozenset(filter(None, output.all("building"))),
    }


def _packages(rig: Rig, system: str) -> Iterator[str]:
    for instance in rig.instances:
        yield from kind_of(instance).needs(system)
    if rig.envs:
        yield from ENVIRONMENTS.packages


ENGINE_FACTS = FactSource(
    "engines",
    "engines/probe.sh.j2",
    _values,
    {"engine": (tolerant(file_name),), "unfit": (tolerant(file_name),), "building": (tolerant(file_name),)},
    _read,
    _packages,
)
