"""The locked wheels of vLLM take every patch that says it is for their version: `./rig test vllm`."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from cli.resolving.ranged import of_wheel
from lab import wheels
from lab.wheels import Wheel
from rigwright.inventory import ROOT
from rigwright.patches.apply import outcome
from rigwright.patches.patch import Patch, load
from rigwright.supply.lock import Lock

PATCHES = [one for one in load([ROOT / "patches"]).values() if one.keys.verdict == "needed"]


@pytest.mark.parametrize("group", ["vllm-0.20.2", "vllm-0.21.0"])
@pytest.mark.parametrize("patch", PATCHES, ids=str)
def test_it_takes_every_patch_that_is_for_its_version(patch: Patch, group: str) -> None:
    rows = Lock.load([ROOT / "locks"]).groups[group]
    row = next((one for one in rows if canonicalize_name(one.name) == canonicalize_name(patch.keys.of)), None)
    if row is None or row.version not in patch.keys.versions:
        pytest.skip(f"{patch} is not for {row}")
    wheel = Wheel(row.name, row.version, row.file, row.sha256, row.size)
    wheels.keep([wheel], "3.10")
    with of_wheel(wheel.place) as (read, _):
        assert set(outcome(patch.plan, read)) == set(patch.becomes)
