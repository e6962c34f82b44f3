"""Engines' own reports of their memory, in real lines."""

from pathlib import Path

import pytest

from rigwright.engines.reported_memory import ReportedMemory, parse_llama_memory, parse_vllm_memory

DATA = Path(__file__).with_name("data") / "memory"
MIB, GIB = 1 << 20, 1 << 30


def test_llama_cpp_lists_buffers_of_each_device() -> None:
    found = parse_llama_memory((DATA / "llama_cpp_cpu.log").read_text().splitlines())
    assert found.model == round(53.83 * MIB) + round(47.09 * MIB)
    assert found.cache == round(8.50 * MIB) + round(5.31 * MIB)
    assert found.work == round(0.06 * MIB) + round(25.58 * MIB)
    assert (found.sequences, found.sequence_tokens, found.kv_tokens) == (1, 8192, 8192)
    assert found.devices == ("CPU_Mapped", "CPU_REPACK", "CPU")


# vLLM 0.21.0: v1/worker/gpu_worker.py, gpu_model_runner.py, v1/core/kv_cache_utils.py
VLLM = """\
INFO 06-10 12:00:01 [gpu_model_runner.py:4567] Model loading took 12.65 GiB memory and 21.5 seconds
(Worker_TP1 pid=7) INFO 06-10 12:00:01 [gpu_model_runner.py:4567] Model loading took 12.64 GiB memory and 21.5 seconds
INFO 06-10 12:00:03 [gpu_worker.py:300] Available KV cache memory: 5.20 GiB
INFO 06-10 12:00:03 [kv_cache_utils.py:1200] GPU KV cache size: 131,072 tokens
INFO 06-10 12:00:09 [gpu_model_runner.py:5000] Graph capturing finished in 5 secs, took 0.52 GiB
"""


def test_of_several_workers_of_vllm_the_largest_counts() -> None:
    found = parse_vllm_memory(VLLM.splitlines())
    assert (found.model, found.cache, found.work) == (round(12.65 * GIB), round(5.2 * GIB), round(0.52 * GIB))
    assert found.kv_tokens == 131072


@pytest.mark.parametrize(
    "line",
    [
        "prompt: CPU KV buffer size = 99999.00 MiB",
        "0.1 I x:  CPU KV buffer size = 1e9 MiB",
        "0.1 I x:  CPU KV buffer size = 8.50 MiB and more",
        "Available KV cache memory: inf GiB",
        "GPU KV cache size: 1,2,3 tokens",
    ],
)
def test_other_lines_report_nothing(line: str) -> None:
    assert parse_llama_memory([line]) == ReportedMemory()
    assert parse_vllm_memory([line]) == ReportedMemory()
