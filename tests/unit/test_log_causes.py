"""Lines of public reports, each with the cause that it must get, and files as people have them."""

# ruff: noqa: E501 - lines as programs print them

import bz2
import gzip
import lzma
import re
import subprocess
import time
from pathlib import Path

import pytest

from checks.survey.host import common
from cli import host_evidence
from cli.exit_codes import InvalidRequest
from cli.host_evidence import causes_for_log
from rigwright import safe_text
from rigwright.engines import kinds
from rigwright.engines.log_causes import LONGEST, Cause, find_cause_lines
from rigwright.operate import diagnosis_findings, kernel_messages
from rigwright.operate.diagnosis_findings import HostEvidence
from rigwright.operate.root_cause_analysis import KERNEL, diagnose_host
from tests.unit.adversarial_lines import adversarial_lines, is_unbounded
from tests.unit.log_samples import SAMPLES

CORE = "(EngineCore pid=812) ERROR 11-20 10:02:11 [core.py:1136] "
LLAMA = "0.22.118.201 E "
KERN = "Nov 20 10:02:11 box1 kernel: "
LINES = [
    (LLAMA + "CUDA error: out of memory", "vmm-out-of-memory"),
    (
        CORE + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "an-illegal-memory-access-was-encountered",
    ),
    (LLAMA + "CUDA error: invalid argument", "launch-sizes"),
    (
        KERN
        + "NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out\nNVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        "gsp-hung",
    ),
    (
        LLAMA
        + "init: the tokens of sequence 2 have inconsistent sequence positions:\nsrv send_error: task id = 289, error: Invalid input batch.",
        "sequence-positions",
    ),
    (LLAMA + "CUDA error: out of memory\n" + LLAMA + "  cudaMemGetInfo(free, total)", "memory-query"),
    (
        KERN
        + "NVRM: dmaAllocMapping_GM107: can't alloc VA space for mapping.\n"
        + KERN
        + "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)",
        "gpu-address-space",
    ),
    (
        KERN
        + "NVRM: _kgspBootGspRm: unexpected WPR2 already up\n"
        + KERN
        + "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:1941)",
        "gsp-firmware",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, code: -98, name: EADDRINUSE",
        "port-taken",
    ),
    (LLAMA + "CUDA error: an illegal memory access was encountered", "illegal-memory-access"),
    (CORE + "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "ecc"),
    (CORE + "CUDA error: some error of a release to come", "cuda-other"),
    ("RuntimeError: No CUDA GPUs are available", "no-cards"),
    (LLAMA + "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected", "no-cards"),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "nvcc-architecture"),
    ("ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'", "nvcc-architecture"),
    (LLAMA + "llama_model_load: error loading model: invalid split file name: x.gguf", "gguf-split"),
    (
        LLAMA
        + "llama_model_load: error loading model: error loading model hyperparameters: key not found in model: qwen35.context_length",
        "missing-key",
    ),
    (LLAMA + "couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080", "port-taken"),
    (KERN + "nvidia: version magic '6.8.0-88-generic SMP' should be '6.8.0-90-generic SMP'", "module-version"),
    (KERN + "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.", "card-off-the-bus"),
    (
        KERN + "NVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is not responding",
        "card-off-the-bus",
    ),
    (KERN + "NVRM: kfspSendBootCommands_HAL: WPR2 already up", "gsp-firmware"),
    ("systemd-oomd[400]: Killed /rigwright.slice/chat due to memory pressure", "unit-out-of-memory"),
    ("rigwright-chat.service: Failed with result 'oom-kill'.", "unit-out-of-memory"),
    (KERN + "NVRM: Xid (PCI:0000:41:00 GPU-I:03 GPU-CI:00): 109, pid=1, name=x, CTX SWITCH TIMEOUT", "xid-109"),
]


def ids(*lines: str) -> list[str]:
    lines = tuple(part for line in lines for part in line.split("\n"))
    causes = causes_for_log(lines)
    return [one.id for one in diagnose_host(HostEvidence("", "", logs={"": lines}, kernel=lines), {"": causes})]


@pytest.mark.parametrize(("line", "cause"), LINES, ids=[cause for _, cause in LINES])
def test_a_line_of_a_public_report_gets_its_cause(line: str, cause: str) -> None:
    assert ids(line)[0] == cause
    assert "cause-unknown" not in ids(line)


def test_causes_of_one_engine_do_not_apply_to_another_engines_log() -> None:
    found = diagnose_host(
        HostEvidence("", "", logs={"": [LLAMA + "CUDA error: an illegal memory access was encountered"]}),
        {"": causes_for_log([LLAMA + "llama_model_loader: loaded"])},
    )
    assert not any("cudagraph_mode" in one.means for one in found)


def test_remedies_of_llama_cpp_have_no_option_of_vllm() -> None:
    own = kinds()["llama.cpp"].variant_keys.model_fields
    keys = [key for key in kinds()["vllm"].variant_keys.model_fields if "_" in key and key not in own]
    words = (*keys, "[a-z]+_backend", "disable_custom_all_reduce", "enforce_eager")
    options = re.compile(rf"\b(?:{'|'.join(words)})\b|VLLM_|PYTORCH_|[Tt]orch")
    assert not {one.id: one.means for one in kinds()["llama.cpp"].causes if options.search(one.means)}


def test_the_kernels_consequences_are_not_shown() -> None:
    lost = "NVRM: dmaAllocMapping_GM107: can't alloc VA space for mapping."
    assertion = "NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY]"
    assert ids(KERN + lost, KERN + assertion) == ["gpu-address-space"]


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (
            ['  File "/x/attn_utils.py", line 112, in _reshape', "    assert isinstance(spec, Spec)", "AssertionError"],
            "_reshape (attn_utils.py:112): assert isinstance(spec, Spec)",
        ),
        (['  File "/x/y.py", line 7, in f\x1b', "    d[k]", "    ~^^^", "KeyError: 3"], "f (y.py:7): d[k]"),
        (["AssertionError", '  File "x/y.py", line 7, in f'], "f (y.py:7)"),
        (['  File "/x/y.py", line 7, in f', "x.y.StrangeError: oh"], "f (y.py:7)"),
    ],
    ids=["an assertion", "carets", "a frame behind", "no source"],
)
def test_an_exception_of_no_known_cause_shows_its_frame(lines: list[str], shown: str) -> None:
    lines = ['  File "/x/other.py", line 1, in g', "x.OtherError: oh", *lines]
    marked = [CORE + line for line in lines]
    for log in (lines, marked):
        found = diagnose_host(HostEvidence("", "", logs={"": log}), {"": causes_for_log(log)})[0]
        assert found.means.endswith(f"it failed in {shown}")


def test_podmans_missing_card_in_a_log_of_another_host_has_a_remedy_that_fits_every_engine() -> None:
    assert ids("Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=0") == ["container-device"]


@pytest.mark.parametrize(
    "line",
    [
        "vllm: error: unrecognized arguments: --api-key=sk-0123456789",
        "vllm: error: unrecognized arguments: --served-model-name x --hf-token sk-0123456789",
        f"{'x' * 150} --api-key sk-0123456789 vllm: error: unrecognized arguments: --foo",
        f"{'x' * 105} --api-key=sk-{'0123456789' * 5} vllm: error: unrecognized arguments: --foo",
        "ValueError: unrecognized\narguments: --api-key\n  sk-0123456789",
        "ValueError: unrecogn\nized arguments: --api-key\n  sk-0123456789",
        "ERROR a message of no cause --api-key=sk-0123456789",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! token=sk-0123456789",
    ],
)
def test_no_report_has_a_secret_of_a_line(line: str) -> None:
    lines = line.split("\n")
    found = diagnose_host(HostEvidence("", "", logs={"": lines}, kernel=lines), {"": causes_for_log(lines)})
    assert found
    assert not re.search("sk-|[0-9]{9}", " ".join(f"{one.means} {one.evidence}" for one in found))


def test_the_survey_and_reports_know_secrets_by_the_same_form() -> None:
    assert safe_text.SECRET == common.SECRET


def test_a_line_shows_one_cause() -> None:
    assert ids(CORE + "torch.OutOfMemoryError: CUDA out of memory. CUDA error: out of memory") == ["cuda-out-of-memory"]


@pytest.mark.parametrize(
    ("lines", "evidence"),
    [
        (["INFO all is well", "ERROR something that no table knows", "INFO the end"], "something that no table"),
        (
            ["Traceback (most recent call last):", '  File "x.py", line 3', "x.y.StrangeError: oh", "ERROR stopped"],
            "StrangeError",
        ),
        (
            [
                CORE + "Traceback (most recent call last):",
                CORE + "x.y.StrangeError: oh",
                "RuntimeError: Engine core initialization failed.",
            ],
            "StrangeError",
        ),
        ([LLAMA + "an odd thing of a release to come"], "an odd thing"),
    ],
    ids=["a marked line", "an exception", "an exception in a worker", "a letter of llama.cpp"],
)
def test_an_error_of_no_known_cause_is_reported_as_unknown(lines: list[str], evidence: str) -> None:
    found = diagnose_host(HostEvidence("", "", logs={"": lines}), {"": causes_for_log(lines)})
    (unknown,) = [one for one in found if one.id == "cause-unknown"]
    assert evidence in unknown.evidence
    assert "cause unknown" in unknown.means


@pytest.mark.parametrize(
    "line",
    [
        "INFO error_rate=0 errors: none",
        "srv  update_slots: all slots are idle",
        "+ vllm serve m --enable-lora --trust-remote-code",
        "NCCL_SOCKET_IFNAME=eth0 VLLM_HOST_IP=10.0.0.1",
        "",
    ],
)
def test_a_log_without_an_error_has_no_problem(line: str) -> None:
    assert ids(line) == []


def test_the_kernels_lines_are_asked_for_by_their_patterns() -> None:
    kernel = [line for line, cause in LINES if line.startswith(KERN) and "\n" not in line]
    assert [line for line in kernel if not re.search(KERNEL, line)] == []


def test_every_pattern_is_one_that_grep_takes_too() -> None:
    causes = {cause.pattern for kind in kinds().values() for cause in kind.causes}
    for pattern in (*causes, KERNEL):
        done = subprocess.run(["grep", "-aP", "-e", pattern], input=b"x\n", capture_output=True, check=False)
        assert done.returncode in (0, 1), (pattern, done.stderr)


TEXT = "INFO x\ntorch.OutOfMemoryError: CUDA out of memory.\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        gzip.compress(TEXT.encode()),
        bz2.compress(TEXT.encode()),
        lzma.compress(TEXT.encode()),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-8-sig"),
    ],
    ids=["text", "gzip", "bzip2", "xz", "utf-16", "utf-16-le", "utf-16-be", "utf-8 with a mark"],
)
def test_a_log_is_read_whatever_it_is_packed_or_encoded_with(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    assert host_evidence.read_log(tmp_path / "log") == (TEXT.splitlines(), 0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_end_of_a_large_log_is_read(pack: type[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_evidence, "MAX_LOG_BYTES", 1 << 20)
    (tmp_path / "log").write_bytes(pack(b"INFO all is well, as it has been\n" * (1 << 16) + TEXT.encode()))
    lines, skipped = host_evidence.read_log(tmp_path / "log")
    assert (lines[0], lines[-2:]) == ("INFO all is well, as it has been", TEXT.splitlines())
    assert skipped > 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF" + bytes(range(256)) * 40, "binary"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd"),
        (gzip.compress(TEXT.encode() * 999)[:-9], ""),
    ],
    ids=["a program", "zstd", "a cut archive"],
)
def test_other_values_than_text_are_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(InvalidRequest, match=reason):
        host_evidence.read_log(tmp_path / "log")


def expressions() -> dict[str, str]:
    """Regular expression -> the cause and the field that have it."""
    causes = [*kernel_messages.CAUSES, *(cause for kind in kinds().values() for cause in kind.causes)]
    fields = {
        text: f"{one.id}.{key}"
        for one in causes
        for key in ("pattern", "context", "names")
        if (text := getattr(one, key))
    }
    return fields | {kind.log_marker: f"{kind.name}.log_marker" for kind in kinds().values() if kind.log_marker}


def test_no_pattern_has_a_repetition_without_a_bound() -> None:
    assert [where for pattern, where in expressions().items() if is_unbounded(pattern)] == []


def test_no_pattern_searches_a_line_of_its_literals_for_long() -> None:
    slow = {}
    marks = (
        diagnosis_findings.ERROR,
        diagnosis_findings.FAILURE,
        diagnosis_findings.NO_FAILURE,
        diagnosis_findings.WARNING,
        diagnosis_findings.INFORMATION,
    )
    fields = expressions() | {one.pattern: "last_error" for one in marks}
    for pattern, where in fields.items():
        regex = re.compile(pattern, re.MULTILINE)
        for line in adversarial_lines(pattern, LONGEST):
            # the least of three, as other processes disturb one
            for _ in range(3):
                began = time.process_time()
                regex.search(line)
                if (took := time.process_time() - began) < 0.02:
                    break
            else:
                slow[where] = (round(took, 3), line[:60])
    assert not slow


def table(name: str) -> tuple[Cause, ...]:
    return kernel_messages.CAUSES if name == "kernel" else kinds()[name].causes


@pytest.mark.parametrize("engine", SAMPLES)
def test_a_sample_shows_its_own_cause_and_no_other(engine: str) -> None:
    wrong = {}
    for name, sample in SAMPLES[engine].items():
        lines = sample.split("\n")
        found = [
            cause.id for cause, numbers in find_cause_lines(table(engine), lines).items() if len(lines) - 1 in numbers
        ]
        if found != [name]:
            wrong[name] = found
    assert not wrong


def test_every_cause_has_a_sample() -> None:
    known = {cause.id for engine in SAMPLES for cause in table(engine)}
    assert known == {name for samples in SAMPLES.values() for name in samples}
