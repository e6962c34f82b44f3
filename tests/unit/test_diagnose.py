"""Causes from logs, looks and checks: every symptom that is known by lines as they were written, and no false alarm."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.engines import kinds
from rigwright.engines.metrics import EngineMetrics
from rigwright.nvidia.cards.xids import FATAL_XIDS
from rigwright.operate.diagnosis_findings import Diagnosis, FailedCheck, HostEvidence
from rigwright.operate.instance_health import CardUse, InstanceHealth
from rigwright.operate.root_cause_analysis import (
    KERNEL,
    diagnose_host,
    diagnose_kernel,
    diagnose_log,
    load_xids,
    symptom_names,
)
from rigwright.project_root import ROOT


def command(verb: str, *words: str) -> str:
    """A command line as `diagnose_host` makes it for a host."""
    return " ".join(["rigwright", verb, "rig.py", *words])


VLLM, LLAMA, IMAGE = (kinds()[name].causes for name in ("vllm", "llama.cpp", "image"))
# Lines as engines, CUDA and the kernel write them, with what is to be said of each.
VLLM_LINES = [
    ("Free memory on device (20.1/23.6 GiB) on startup is less than desired GPU memory utilization (0.92)", "N04"),
    ("4.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.1 GiB)", "max_model_len"),
    ("ValueError: No available memory for the cache blocks. Try increasing it", "raise gpu_memory"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "max_num_batched_tokens"),
    ("RuntimeError: Failed to infer device type, please set the environment variable", "no driver responds"),
    ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "not visible to it"),
    ("RuntimeError: CUDA driver version is insufficient for CUDA runtime version", "upgrade it"),
    ("CUDA error 804: forward compatibility was attempted on non supported HW", "too old"),
    ("CUDA error: no kernel image is available for execution on the device", "machine code"),
    ("RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist", "nvcc is missing"),
    ("INFO [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds.", "a worker hangs"),
    ("INFO [pynccl.py:113] vLLM is using nccl==2.28.9", 'NCCL_P2P_DISABLE to "1"'),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "PIECEWISE"),
    ("vllm: error: unrecognized arguments: --speculative-model x", "no such option"),
    ("ValueError: Concurrent Partial Prefill is not supported.", "max_num_partial_prefills"),
    ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.", 'dtype = "half"'),
    ("RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.", "its torch"),
    ("ValueError: invalid literal for int() with base 10: 'GPU-5f2e'", "card indexes"),
    ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "NCCL_P2P_DISABLE"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "install gcc"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "PATH"),
    ("RuntimeError: Cannot find any model weights with `/srv/models/x`", "W06"),
    ("OSError: [Errno 98] Address already in use", "ss -ltnp"),
    ("SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 tokens/s", "not loaded"),
]
LLAMA_LINES = [
    ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "lower context"),
    ("llama_kv_cache: failed to allocate buffer for kv cache", "lower context"),
    ("gguf_init_from_file_impl: invalid magic characters: 'brok', expected 'GGUF'", "not a GGUF"),
    ("llama_model_load: error loading model: unknown model architecture: 'qwen9'", "newer engine"),
    ("error: invalid argument: --mlock", "no such option"),
    ("llama_init_from_model: quantized V cache was requested, but this requires Flash Attention", "flash_attention"),
    ("LLAMA_SPLIT_MODE_TENSOR not implemented for architecture 'x'", "split_mode"),
]
HARMLESS = [
    "ERROR [fa_utils.py:64] Cannot use FA version 2: FA2 is only supported on compute capability >= 8",
    "WARNING [envs.py] Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND",
    "warning: failed to mlock 1048576-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
    "INFO [custom_all_reduce.py:78] Custom allreduce is disabled because of missing custom allreduce library",
    "WARNING [config.py:70] Support for Transformers v4 is deprecated. The Transformers v4 codepath will become",
    "warning: no usable GPU found, --gpu-layers option will be ignored",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05",
    "SpecDecoding metrics: Mean acceptance length: 2.71, Accepted throughput: 120.00 tokens/s",
    "srv  update_slots: all slots are idle",
    'INFO: 127.0.0.1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
]
XID = "NVRM: Xid (PCI:0000:{card}:00): {code}, pid=1234, name=vllm, something"
OOM = "Memory cgroup out of memory: Killed process 4711 (llama-server) total-vm:1kB, anon-rss:1kB"


@pytest.mark.parametrize(("line", "words"), VLLM_LINES)
def test_every_line_of_vllm_that_is_known_to_betray_something_does(line: str, words: str) -> None:
    (one,) = diagnose_log(["starting", line], VLLM, "chat", command)
    assert words in f"{one.means} {one.cure}"
    assert one.evidence in line
    assert [each.id for each in diagnose_log([line], IMAGE, "chat", command)] == [one.id]


@pytest.mark.parametrize(("line", "words"), LLAMA_LINES)
def test_every_line_of_llama_cpp_that_is_known_to_betray_something_does(line: str, words: str) -> None:
    (one,) = diagnose_log([line, "after it"], LLAMA, "chat", command)
    assert words in one.means


@pytest.mark.parametrize("causes", [VLLM, LLAMA, IMAGE], ids=["vllm", "llama.cpp", "image"])
def test_harmless_lines_stay_silent(causes: tuple[object, ...]) -> None:
    assert list(diagnose_log(HARMLESS, causes, "chat", command)) == []  # type: ignore[arg-type]
    assert list(diagnose_kernel(HARMLESS, "580.1", command)) == []


def test_a_line_that_counts_only_at_the_end_is_ignored_before_others() -> None:
    assert (
        list(diagnose_log(["vLLM is using nccl==2.28.9", "Application startup complete."], VLLM, "chat", command)) == []
    )
    assert len(list(diagnose_log(["vLLM is using nccl==2.28.9", ""], VLLM, "chat", command))) == 1


def test_names_of_symptoms_are_one_each() -> None:
    # a kind of engine may have a remedy of its own for a line that others have, too
    every = {(cause.id, cause.pattern) for kind in kinds().values() for cause in kind.causes}
    names = [name for name, _ in every]
    assert len({*names}) == len(names)


def kernel(*lines: str, driver: str = "580.1") -> list[Diagnosis]:
    return list(diagnose_kernel(lines, driver, command))


def test_an_xid_of_a_card_is_reported_with_what_to_do() -> None:
    (one,) = kernel(XID.format(card="65", code=79))
    assert (one.id, one.where, one.times) == ("xid-79", "GPU 0000:65:00", 1)
    assert "it fell off the bus" in one.means
    assert "power cables" in one.cure
    # effects with this very driver
    (known,) = kernel(XID.format(card="65", code=79), driver="595.71.05")
    assert "issue 1151" in known.means
    assert "issue 1151" not in one.means


def test_a_programs_xid_is_the_programs_until_it_comes_again_and_again() -> None:
    once, often = kernel(XID.format(card="65", code=31)), kernel(*[XID.format(card="65", code=31)] * 3)
    assert "a program's mistake" in once[0].means
    assert "suspect" not in once[0].means
    assert "but 3 times since boot: suspect the card" in often[0].means
    assert once[0].weight < often[0].weight < kernel(XID.format(card="65", code=79))[0].weight
    # of two cards, each has its own
    assert len(kernel(XID.format(card="65", code=31), XID.format(card="b1", code=31))) == 2


def test_an_xid_that_follows_another_is_that_ones() -> None:
    line = XID.format(card="65", code=45) + ", Ch 00000001 caused by previous Xid 149"
    first, second = sorted(kernel(XID.format(card="65", code=149), line), key=lambda one: -one.weight)
    assert (first.id, second.id) == ("xid-149", "xid-45")
    assert "a consequence of Xid 149 (an NVLink error)" in second.means
    assert "program's mistake" not in second.means
    assert second.cure.endswith(first.cure)
    # a program's own among them
    (mixed,) = kernel(line, XID.format(card="65", code=45))
    assert "a program's mistake" in mixed.means


def test_a_card_that_has_come_back_needs_nothing() -> None:
    back = "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert (kernel(back), len(kernel(back.replace("to 0x0 (None)", "to 0x2")))) == ([], 1)


def test_entries_outside_of_the_table_are_reported_as_unknown() -> None:
    (one,) = kernel(XID.format(card="65", code=999))
    assert "not in our table" in one.means
    assert {*FATAL_XIDS} <= {*load_xids()}
    assert all(load_xids()[code].suspect == "card" for code in FATAL_XIDS)


def test_memory_that_was_not_enough_is_distinguished_from_the_kernels_log() -> None:
    (one,) = kernel(OOM, OOM)
    assert (one.id, one.times) == ("out-of-memory", 2)
    assert "the kernel ended llama-server" in one.means


WELL = InstanceHealth("chat", "ready", "", 60.0, 0, 1, EngineMetrics(), None, ())
RED = FailedCheck("S06", "it answers a completion", "chat", "critical", "one token", "no answer", "systemctl restart x")


def test_the_likeliest_cause_comes_first_and_each_once() -> None:
    found = HostEvidence(
        inventory="rig.py",
        host="box1",
        logs={"chat": ["CUDA out of memory", "CUDA out of memory"]},
        kernel=[XID.format(card="65", code=79), XID.format(card="65", code=13)],
        healths=[replace(WELL, state="failed", note="systemd gave up: exit-code")],
        red=[RED],
    )
    told = diagnose_host(found, {"chat": VLLM})
    assert [one.id for one in told] == ["xid-79", "cuda-out-of-memory", "state-failed", "S06", "xid-13"]
    assert told[1].times == 2
    assert told[2].cure == "rigwright logs rig.py --instance chat --limit box1"
    assert all(one.evidence and one.cure and one.means for one in told)


@pytest.mark.parametrize(
    ("health", "found"),
    [
        (WELL, []),
        (replace(WELL, state="wedged", note="no step for 130 s"), ["state-wedged"]),
        (replace(WELL, state="starting"), []),
        (replace(WELL, metrics=EngineMetrics(preemptions=3, kv_used=0.9)), ["preemptions"]),
        (replace(WELL, metrics=EngineMetrics(drafts=100, accepted=1)), ["accept-length"]),
        (replace(WELL, metrics=EngineMetrics(drafts=100, accepted=170)), []),
        (replace(WELL, metrics=EngineMetrics(drafts=5, accepted=0)), []),
    ],
)
def test_a_look_tells_what_it_tells(health: InstanceHealth, found: list[str]) -> None:
    assert [one.id for one in diagnose_host(HostEvidence("rig.py", "box1", healths=[health]), {})] == found
    assert {*found} <= symptom_names()


def card(index: int, used: float) -> CardUse:
    return CardUse(index, used, 24576, None, None, None, None)


BY_HAND = replace(WELL, state="stopped by hand")
UNDEPLOYED = replace(WELL, state="not deployed")
TORN = replace(WELL, state="failed", note="systemd gave up: exit-code")
ON_CARD: dict[str, Any] = {"cards": {"chat": (0,), "code": (0,)}, "uses": [card(0, 20_000), card(1, 9)]}
N02 = replace(RED, id="N02", severity="high")


@pytest.mark.parametrize(
    ("found", "ids"),
    [
        ({"healths": [TORN], **ON_CARD}, {"state-failed", "card-memory-taken"}),
        ({"healths": [BY_HAND], **ON_CARD}, {"state-stopped-by-hand", "card-memory-taken"}),
        ({"healths": [UNDEPLOYED], **ON_CARD}, {"state-not-deployed", "card-memory-taken"}),
        # one of our own processes has the card
        ({"healths": [TORN, replace(WELL, instance="code")], **ON_CARD}, {"state-failed"}),
        ({"healths": [TORN], **ON_CARD, "uses": [card(0, 300)]}, {"state-failed"}),
        ({"healths": [WELL], **ON_CARD}, set()),
        ({"cards_say": "Unable to determine the device handle"}, {"cards-silent"}),
        ({"reboot": True}, set()),
        ({"reboot": True, "red": [N02]}, {"reboot-pending", "N02"}),
        ({"healths": [WELL], "logs": {"chat": ["warning: no usable GPU found, ..."]}}, set()),
        ({"healths": [WELL], "logs": {"chat": ["no usable GPU found"]}, "cards": {"chat": (0,)}}, {"on-the-processor"}),
        ({"healths": [replace(WELL, metrics=EngineMetrics(waiting=3, kv_used=0.97))]}, {"kv-cache-full"}),
        ({"healths": [replace(WELL, metrics=EngineMetrics(waiting=3, kv_used=0.5))]}, set()),
    ],
)
def test_facts_looks_and_logs_are_put_beside_each_other(found: dict[str, Any], ids: set[str]) -> None:
    assert {one.id for one in diagnose_host(HostEvidence("rig.py", "box1", **found), {})} == ids
    assert ids - {"N02"} <= symptom_names()


def test_a_log_is_judged_by_what_is_so_now() -> None:
    lines = ["libcuda.so.1: cannot open shared object file", *["fine"] * 30]

    def first(**found: Any) -> Diagnosis:
        return diagnose_host(HostEvidence("rig.py", "box1", logs={"chat": lines}, **found), {"chat": VLLM})[0]

    alone, doubly, past = first(healths=[TORN]), first(healths=[TORN], red=[N02]), first(healths=[WELL])
    assert {one.id for one in (alone, doubly, past)} == {"libcuda-so-1-cannot-open-shared-object-file"}
    assert past.weight < alone.weight < doubly.weight
    assert "N02 fails, too" in doubly.means
    assert "it serves now" in past.means


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [
        ("NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0xffff:1220)", "card-does-not-start", "power cables"),
        ("NVRM: API mismatch: the client has the version 580.95.05, but", "driver-mismatch", "reboot"),
        ("nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f", "io-page-fault", "iommu=pt"),
    ],
)
def test_the_kernels_messages_about_cards_are_reported(line: str, name: str, words: str) -> None:
    (one,) = kernel(line, line)
    assert (one.id, one.times, words in one.means) == (name, 2, True)
    assert name in symptom_names()
    assert re.search(KERNEL, line)


def diagnose(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cli", "doctor", "--logs", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def test_a_log_is_replayed_from_a_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("\n".join([*HARMLESS, VLLM_LINES[3][0], "token=verysecret cudaMalloc failed: out of memory", OOM]))
    done = diagnose(log, "--json")
    assert done.returncode == 1, done.stderr
    (host,) = json.loads(done.stdout)
    assert {one["id"] for one in host["causes"]} == {
        "out-of-memory",
        "cuda-out-of-memory",
        "on-the-processor",
        "cudamalloc-failed-out-of-memory",
    }
    assert "verysecret" not in done.stdout
    said = diagnose(log).stdout.splitlines()
    assert said[0].startswith(f"{log}: the kernel ended llama-server")
    assert not [line for line in said if "INVENTORY" in line or line.rstrip().endswith("--instance")]
    log.write_text("\n".join(line for line in HARMLESS if "no usable GPU" not in line))
    quiet = diagnose(log)
    assert (quiet.returncode, quiet.stdout) == (0, f"{log}: no fault found\n")
