"""What vLLM says of itself: lines as 0.21.0 wrote them on a processor and on an H100, and lines of a liar."""

from __future__ import annotations

import pytest

from rigwright.engines.kind import Begun
from rigwright.engines.vllm.told import MARKS, begun

TOKENS = "(EngineCore pid=4321) INFO 11-22 21:16:18 [kv_cache_utils.py:1710] GPU KV cache size: 131,072 tokens"
INIT = "(EngineCore pid=4321) INFO [core.py:306] init engine (profile, create kv cache, warmup model) took 27.60 s"
LOADED = (
    "(Worker_TP{0} pid=7) INFO 11-22 [gpu_model_runner.py:1] Model loading took 1.25 GiB memory and 3.512345 seconds"
)
BACKEND = "(Worker_TP0 pid=7) INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: ['A']."


def test_a_start_is_read() -> None:
    lines = [BACKEND, BACKEND, LOADED.format(0), LOADED.format(1), TOKENS, INIT]
    assert begun(lines) == Begun(131072, "FLASH_ATTN", 31.1)
    assert all(any(mark in line for mark in MARKS) for line in lines)


@pytest.mark.parametrize(
    "line",
    ["", "KV cache size: ,,, tokens", "GPU KV cache size: 1" + ",000" * 9 + " tokens", "Using x attention backend"],
)
def test_what_is_no_such_line_says_nothing(line: str) -> None:
    assert begun([line]) == Begun()


def test_starts_are_alike_within_what_a_driver_takes() -> None:
    first = Begun(100_000, "FLASH_ATTN", 30.0)
    assert Begun(97_000, "FLASH_ATTN", 90.0).like(first)
    assert not Begun(50_000, "FLASH_ATTN", 30.0).like(first)
    assert not Begun(100_000, "TRITON_ATTN", 30.0).like(first)
    assert not Begun().like(first)
