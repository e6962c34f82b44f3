"""Signs in lines of engines' logs, replayed as engines and their operators have shown them."""

import re

import pytest

from rigwright.engines import kinds
from rigwright.engines.log_causes import find_cause, select_faults
from rigwright.operate import kernel_messages
from rigwright.project_root import ROOT

REPLAYED = {
    "the driver is older than the engine's CUDA": (
        "llama.cpp",
        "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime version",
        "likely cause: the driver is older than the engine's CUDA version: upgrade it",
    ),
    "too much for the card": (
        "llama.cpp",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 590.07 MiB on device 0: cudaMalloc failed: "
        "out of memory",
        "likely cause: model and context do not fit in free card memory: lower context",
    ),
    "an option of another version": (
        "llama.cpp",
        "error: invalid argument: --mlock",
        "likely cause: this llama-server has no such option",
    ),
    "a file that is no GGUF": (
        "llama.cpp",
        "gguf_init_from_reader: invalid magic characters: '<htm', expected 'GGUF'",
        "likely cause: the file is not a GGUF, or is damaged (see `rigwright check --only W06`)",
    ),
    "values without flash attention": (
        "llama.cpp",
        "llama_init_from_model: quantized V cache requires flash_attn to be enabled",
        "likely cause: a quantised V cache needs flash attention",
    ),
    "pages that cannot be locked": (
        "llama.cpp",
        "warning: failed to mlock 19327352832-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
        "harmless: not all weights are locked in RAM",
    ),
    "attention of newer cards": (
        "vllm",
        "ERROR [fa_utils.py:85] Cannot use FA version 2 is not supported due to FA2 is only supported on compute "
        "capability >= 8",
        "harmless: cards below compute capability 8.0 need another backend",
    ),
    "a variable of an older version": (
        "vllm",
        "WARNING [envs.py:1] Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND",
        "harmless: this version does not use it",
    ),
    "a worker that hangs": (
        "vllm",
        "INFO [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.",
        "likely cause: a worker hangs or works long",
    ),
    "a head that is not loaded": (
        "vllm",
        "INFO [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 tokens/s",
        "likely cause: the draft model or MTP layers are not loaded, or their patch is missing (see "
        "`rigwright check --only V04`)",
    ),
    "an image's CUDA beyond the driver's": (
        "image",
        "Error 804: forward compatibility was attempted on non supported HW",
        "likely cause: the driver is too old for the CUDA version",
    ),
    "a spec of the driver before": (
        "image",
        "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0",
        "likely cause: /",
    ),
}


@pytest.mark.parametrize("case", REPLAYED)
def test_a_line_betrays(case: str) -> None:
    kind, line, said = REPLAYED[case]
    found = find_cause(kinds()[kind].causes, line)
    assert found
    assert found.sentence.startswith(said)


HEALTHY = (
    ("vllm", "INFO [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.61, Accepted throughput: 31.2"),
    ("vllm", "INFO [cuda.py:300] Using FLASHINFER attention backend out of potential backends: ('FLASHINFER',)"),
    ("llama.cpp", "srv  update_slots: all slots are idle"),
)


@pytest.mark.parametrize(("kind", "line"), HEALTHY)
def test_a_line_of_a_healthy_engine_betrays_nothing(kind: str, line: str) -> None:
    assert find_cause(kinds()[kind].causes, line) is None


def test_a_harmless_line_is_no_cause_of_a_failed_start() -> None:
    for kind in kinds().values():
        assert {one.id for one in select_faults(kind.causes)} == {
            one.id for one in kind.causes if not (one.harmless or one.context)
        }
    assert any(one.harmless for one in kinds()["vllm"].causes)


def test_checks_that_are_named_are_there() -> None:
    page = (ROOT / "docs" / "reference" / "check-list.md").read_text()
    known = set(re.findall(r"^\| ([A-Z][0-9]{2}) \|", page, re.MULTILINE))
    causes = [*kernel_messages.CAUSES, *(one for kind in kinds().values() for one in kind.causes)]
    named = {check for one in causes for check in one.check.split(",") if check}
    assert named
    assert named <= known
