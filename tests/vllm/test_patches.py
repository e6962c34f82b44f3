"""The locked wheels of vLLM take every patch that is for their version, and do what it says: `./rig test vllm`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from cli.lock_resolver.range_requests import open_wheel
from rigwright.patches.apply import outcome
from rigwright.patches.patch import Patch, load_patches
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.stand_ins import wheel_cache
from tests.stand_ins.wheel_cache import CachedWheel
from tests.vllm.environment import program_output, start_program

PATCHES = [one for one in load_patches([ROOT / "patches"]).values() if one.keys.verdict == "needed"]


@pytest.mark.parametrize("group", ["cuda", "vllm-0.20.2", "vllm-0.21.0"])
@pytest.mark.parametrize("patch", PATCHES, ids=str)
def test_it_takes_every_patch_that_is_for_its_version(patch: Patch, group: str) -> None:
    rows = Lock.load([ROOT / "locks"]).groups[group]
    row = next(
        (one for one in rows if canonicalize_name(one.name) == canonicalize_name(patch.keys.target_distribution)), None
    )
    if row is None or row.version not in patch.keys.versions:
        pytest.skip(f"{patch} is not for {row}")
    wheel = CachedWheel(row.name, row.version, row.file, row.sha256, row.size)
    wheel_cache.fetch_wheels([wheel], "3.10")
    with open_wheel(wheel.cache_path) as (read, _):
        assert set(outcome(patch.plan, read)) == set(patch.patched_digests)


@pytest.mark.parametrize("version", ["0.20.2", "0.21.0"])
def test_a_hit_is_as_long_in_each_kind_of_layer(version: str, installed: Callable[[str], Path]) -> None:
    """`mamba-prefix-cache-mtp`: without it, attention lacks a block of the tokens that vLLM reports as cached."""
    python = installed(version)
    (patch,) = (one for one in PATCHES if one.name == "mamba-prefix-cache-mtp")
    (site,) = python.parent.parent.glob("lib/python3.*/site-packages")
    assert prefix_cache_hits(python) == {"draft": [64, 3, 4], "alone": [64, 4, 4]}
    before = {path: (site / path).read_bytes() for path in patch.patched_digests}
    try:
        for path, after in outcome(patch.plan, before.get).items():
            put(site / path, after)
        assert prefix_cache_hits(python) == {"draft": [48, 3, 3], "alone": [64, 4, 4]}
    finally:
        for path, content in before.items():
            put(site / path, content)


def prefix_cache_hits(python: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(
        program_output(start_program(python, "tests.vllm.inside.prefix_cache_hits"))
    )
    return found


def put(path: Path, content: bytes) -> None:
    """In place of a file that has another name elsewhere."""
    path.unlink()
    path.write_bytes(content)
