"""The probe's facts of weights and parts of weights."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rigwright.host.channel import HostOutput, number, optional, path, tolerant
from rigwright.model.fact_source import FactSource
from rigwright.model.rig import Rig

# Where packages lie (Artefact.package_path). No hub's owner has a name that begins so.
PACKAGES = "_packages"
# The end of the name of a file that is not whole yet.
PART = ".part"


def _values(rig: Rig) -> Mapping[str, object]:
    folders = {f"{rig.roots.models}/{artefact.weight_folder}" for artefact in rig.weights}
    return {"jobs": rig.jobs, "weights": [*sorted(folders), f"{rig.roots.models}/{PACKAGES}"]}


def _read(output: HostOutput) -> Mapping[str, object]:
    rows = [(size, path) for size, path in output.many("weight") if path]
    return {"sent_kib": output.one("sent_kib"), "weight_bytes": MappingProxyType(_parse_weight_sizes(rows))}


def _parse_weight_sizes(rows: list[tuple[int, str]]) -> dict[str, int]:
    """Bytes and path of whole files and of parts: a part counts where there is no whole one."""
    found = {path: size for size, path in rows}
    parts = {path.removesuffix(PART): size for path, size in found.items() if path.endswith(PART)}
    return parts | {path: size for path, size in found.items() if not path.endswith(PART)}


WEIGHT_FACTS = FactSource(
    "weights",
    "weights/probe.sh.j2",
    _values,
    {"sent_kib": (optional(number, 0),), "weight": (number, tolerant(path))},
    _read,
)
