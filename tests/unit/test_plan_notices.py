"""Messages of a plan that refuse nothing."""

from rigwright.plan.preflight import describe_shared_memory
from tests.unit.samples import GIB, sample_facts, sample_instance, sample_rig
from tests.unit.vllm_samples import vllm_instance, vllm_rig


def test_shared_memory_that_the_host_has_not_is_warned_of() -> None:
    two = vllm_rig(vllm_instance("chat", shm_size="16G"), vllm_instance("code", port=8021, shm_size="8G"))
    assert describe_shared_memory(two.instances, sample_facts(memory_kib=24 * GIB)) == []
    (line,) = describe_shared_memory(two.instances, sample_facts(memory_kib=23 * GIB))
    assert line == "chat, code: /dev/shm may take 24.0 GiB, and the host has 23.0 GiB of memory: lower shm_size"


def test_an_engine_without_any_is_not_counted() -> None:
    assert describe_shared_memory(sample_rig(sample_instance()).instances, sample_facts(memory_kib=GIB)) == []
