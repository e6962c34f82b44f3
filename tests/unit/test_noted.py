"""What a plan says although nothing stands in its way."""

from __future__ import annotations

from rigwright.plan.noted import shared_memory
from tests.unit.samples import GIB, facts, instance
from tests.unit.samples import rig as plain
from tests.unit.vllm_samples import rig, vllm


def test_shared_memory_that_the_host_has_not_is_warned_of() -> None:
    two = rig(vllm("chat", shm_size="16G"), vllm("code", port=8021, shm_size="8G"))
    assert shared_memory(two, facts(memory_kib=24 * GIB)) == []
    (line,) = shared_memory(two, facts(memory_kib=23 * GIB))
    assert line == "chat, code: /dev/shm may take 24.0 GiB, and the host has 23.0 GiB of memory: lower shm_size"


def test_an_engine_without_any_is_not_counted() -> None:
    assert shared_memory(plain(instance()), facts(memory_kib=GIB)) == []
