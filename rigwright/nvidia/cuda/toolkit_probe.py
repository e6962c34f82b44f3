"""The probe's facts of the operator's CUDA toolkit and of the C library that its header must fit."""

from __future__ import annotations

from collections.abc import Mapping

from rigwright.host.channel import HostOutput, one_of, optional, version
from rigwright.model.fact_source import FactSource
from rigwright.model.facts import NOWHERE
from rigwright.nvidia.cuda.toolkit_validation import SPECIFIED_SINCE


def _read(output: HostOutput) -> Mapping[str, object]:
    return {
        "cuda_version": output.one("cuda_version"),
        "nvcc": output.one("nvcc"),
        "bare_functions": frozenset(output.all("bare_function")),
        "glibc": output.one("glibc"),
    }


TOOLKIT_FACTS = FactSource(
    "cuda_toolkit",
    "cuda_toolkit/probe.sh.j2",
    lambda rig: {"cuda_root": rig.cuda_root or NOWHERE, "mathematical": sorted(SPECIFIED_SINCE)},
    {
        "cuda_version": (optional(version),),
        "nvcc": (optional(version),),
        "bare_function": (one_of(*SPECIFIED_SINCE),),
        "glibc": (optional(version),),
    },
    _read,
)
