"""vLLM's own reports: lines as 0.21.0 wrote them on a processor and on an H100, and lines of a liar."""

import shlex
import subprocess

import pytest

from rigwright.engines.log_causes import StartupFacts
from rigwright.engines.vllm.runtime_log import STARTUP_PATTERNS, parse_startup
from rigwright.serving.activation import Activation
from tests.unit.rendered_scripts import activation_script

TOKENS = "(EngineCore pid=4321) INFO 11-22 21:16:18 [kv_cache_utils.py:1710] GPU KV cache size: 131,072 tokens"
INIT = "(EngineCore pid=4321) INFO [core.py:306] init engine (profile, create kv cache, warmup model) took 27.60 s"
LOADED = (
    "(Worker_TP{0} pid=7) INFO 11-22 [gpu_model_runner.py:1] Model loading took 1.25 GiB memory and 3.512345 seconds"
)
BACKEND = "(Worker_TP0 pid=7) INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: ['A']."


def test_a_start_is_read() -> None:
    lines = [BACKEND, BACKEND, LOADED.format(0), LOADED.format(1), TOKENS, INIT]
    assert parse_startup(lines) == StartupFacts(131072, "FLASH_ATTN", 31.1)
    assert all(any(mark in line for mark in STARTUP_PATTERNS) for line in lines)


@pytest.mark.parametrize(
    "line",
    ["", "KV cache size: ,,, tokens", "GPU KV cache size: 1" + ",000" * 9 + " tokens", "Using x attention backend"],
)
def test_other_lines_have_no_facts(line: str) -> None:
    assert parse_startup([line]) == StartupFacts()


def test_starts_are_alike_within_what_a_driver_takes() -> None:
    first = StartupFacts(100_000, "FLASH_ATTN", 30.0)
    assert StartupFacts(97_000, "FLASH_ATTN", 90.0).is_like(first)
    assert not StartupFacts(50_000, "FLASH_ATTN", 30.0).is_like(first)
    assert not StartupFacts(100_000, "TRITON_ATTN", 30.0).is_like(first)
    assert not StartupFacts().is_like(first)


NCCL = "(Worker_TP0 pid=7) INFO [pynccl.py:1] vLLM is using nccl==2.28.9"
FULL = "ValueError: Free memory on device cuda:0 (1/24 GiB) is less than desired GPU memory utilization (0.92"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([FULL, *["at some line"] * 90, "RuntimeError: Engine core initialization failed."], "see nvidia-smi"),
        (["what echo ends at: \\c", FULL], "see nvidia-smi"),
        ([TOKENS, NCCL], "NCCL_P2P_DISABLE"),
        ([NCCL, *["more"] * 9], ""),
        (["nothing"], ""),
    ],
)
def test_a_start_that_came_to_nothing_betrays_why(lines: list[str], cause: str) -> None:
    script = activation_script(Activation((), (), (), (), (), ()))
    begin = script.index("betrays() {")
    function = script[begin : script.index("\n}\n", begin) + 3]
    calls = [line.strip() for line in script.splitlines() if line.strip().startswith("betrays ")]
    done = subprocess.run(
        ["sh", "-c", "\n".join([function, f"said={shlex.quote(chr(10).join(lines))}", *calls])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert (cause in done.stdout) if cause else done.stdout == ""
