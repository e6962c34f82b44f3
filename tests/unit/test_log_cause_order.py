"""Which cause of a log comes first, and how much of a line and of a log is searched."""

import pytest

from checks.survey.host import health
from cli.host_evidence import causes_for_log
from rigwright.engines import kinds
from rigwright.engines.log_causes import LONGEST, Cause, find_cause, find_cause_lines
from rigwright.operate.diagnosis_findings import HostEvidence
from rigwright.operate.root_cause_analysis import diagnose_host
from tests.unit.test_log_causes import CORE, ids


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (
            [
                CORE + "torch.OutOfMemoryError: CUDA out of memory.",
                CORE + "Exception: WorkerProc initialization failed",
                "RuntimeError: Engine core initialization failed.",
            ],
            "cuda-out-of-memory",
        ),
        (
            [
                CORE + "x.y.StrangeError: oh",
                "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            "cause-unknown",
        ),
        (
            [
                *[CORE + "ValueError: World size (4) is larger than the number of available GPUs (2)"],
                *["(APIServer pid=1) frame"] * 150,
                "OSError: [Errno 98] Address already in use",
            ],
            "world-size",
        ),
        (
            [
                "(EngineCore pid=1) WARNING 11-20 10:02:11 [x.py:1] LoRA rank 64 is greater than max_lora_rank 16",
                CORE + "OSError: [Errno 28] No space left on device",
            ],
            "no-space",
        ),
        (
            [
                "(EngineCore pid=1) WARNING 11-20 10:02:11 [x.py:1] LoRA rank 64 is greater than max_lora_rank 16",
                CORE + "x.y.StrangeError: oh",
            ],
            "cause-unknown",
        ),
        (
            [
                CORE + "AttributeError: 'Channel' object has no attribute 'group'",
                "ray.exceptions.ActorUnavailableError: The actor is temporarily unavailable:",
            ],
            "engine-fault",
        ),
        (
            [CORE + "jinja2.exceptions.TemplateError: no user", CORE + "torch.OutOfMemoryError: CUDA out of memory."],
            "cuda-out-of-memory",
        ),
        (
            [
                CORE + "ValueError: x is not supported",
                CORE + "ValueError: LoRA rank 64 is greater than max_lora_rank 16",
            ],
            "lora-rank",
        ),
        (
            [
                "ggml_new: x",
                "llama_model_load: error loading model: unknown model architecture: 'x'",
                "common_fit_params: encountered an error while trying to fit params to free device memory: "
                "failed to load model",
            ],
            "unknown-model-architecture",
        ),
        (
            [
                CORE + "ValueError: To serve at least one request, (4.26 GiB KV cach",
                "e is needed, which is larger than the available KV cache memory (4.25 GiB).",
            ],
            "kv-cache-is-needed-which-is-larger-than-the-avai",
        ),
        (
            [
                "(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
                "  Value error, LoRA rank 64 is",
                "  greater than max_lora_rank 16. [type=value_error]",
            ],
            "lora-rank",
        ),
    ],
    ids=[
        "a wrapper",
        "a wrapper of an unknown error",
        "a later consequence",
        "a warning",
        "a warning and an unknown error",
        "a lost worker",
        "a request",
        "a form of message",
        "a consequence",
        "a copy with breaks",
        "a message of lines",
    ],
)
def test_a_root_comes_before_wrappers_warnings_requests_and_forms(lines: list[str], first: str) -> None:
    assert ids(*lines)[0] == first


@pytest.mark.parametrize(
    "line",
    [
        "terminate called after throwing an instance of 'x'",
        "  what():  an odd thing",
        "Fatal Python error: none_dealloc",
        "NVRM: nvAssertFailedNoLog: Assertion failed: x",
        "nvidia-container-cli: an odd thing",
        "docker: Error: an odd thing",
        'time="2026-11-20" level=error msg="an odd thing"',
        '{"error":{"message":"odd"}}',
        "2026-06-25 15:59:11.666 [Error] (Server) an odd thing",
        "E ggml_odd: thing",
        "init: the tokens have inconsistent odd things",
        "vllm-1 exited with code 3",
        "Exit Code:    2",
        "an odd thing crashed",
    ],
)
def test_any_shape_of_an_error_is_reported(line: str) -> None:
    assert ids(line)


def test_a_cause_shows_the_name_that_its_line_has() -> None:
    line = CORE + "ModuleNotFoundError: No module named 'soundfile\x1b[31m'"
    (found,) = diagnose_host(HostEvidence("", "", logs={"": [line]}), {"": causes_for_log([line])})
    assert found.id == "package-missing"
    lora = CORE + "ValueError: Loading lora /adapters/one failed: No adapter found for /adapters/one"
    (found,) = diagnose_host(HostEvidence("", "", logs={"": [lora]}), {"": causes_for_log([lora])})
    assert found.means.endswith("(here: /adapters/one)")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/usr/lib/dist-packages/vllm/v1/spec_decode/eagle.py", "drafting"),
        ("/x/vllm/distributed/kv_transfer/kv_connector/v1/base.py", "KV connector"),
        ("/x/vllm/model_executor/layers/fused_moe/layer.py", "experts"),
        ("/x/vllm/v1/engine/core.py", ""),
    ],
)
@pytest.mark.parametrize(
    "error", ["KeyError: 'x'", "x.StrangeError: oh", "RuntimeError: shape mismatch: value tensor of shape [0]"]
)
def test_a_fault_of_the_engines_code_shows_the_part_of_its_traceback(path: str, part: str, error: str) -> None:
    lines = [CORE + f'  File "{path}", line 9, in f', CORE + "    call()", CORE + error]
    found = diagnose_host(HostEvidence("", "", logs={"": lines}), {"": causes_for_log(lines)})[0]
    assert ("the failing code" in found.means) is bool(part)
    assert part in found.means


def test_evidence_contains_the_message_of_a_long_line() -> None:
    line = CORE + "x" * 300 + " CUDA error: device kernel image is invalid"
    (found,) = diagnose_host(HostEvidence("", "", logs={"": [line]}), {"": causes_for_log([line])})
    assert "device kernel image is invalid" in found.evidence
    assert len(found.evidence) <= 200


def test_lines_that_differ_in_numbers_alone_are_all_counted() -> None:
    lines = [
        f"INFO No available shared memory broadcast block found in {number} seconds." for number in (60, 120, 180, 240)
    ]
    ((_, numbers),) = find_cause_lines(kinds()["vllm"].causes, lines).items()
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("before", "drafting"),
    [
        ("config: speculative_config=None, x", False),
        ("non-default args: {'speculative_config': None}", False),
        ("non-default args: {'speculative_config': {'method': 'mtp'}}", True),
        ("", False),
    ],
)
def test_a_fault_while_drafting_is_one_of_drafting(before: str, drafting: bool) -> None:
    found = ids(before, CORE + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")
    assert (found[0] == "illegal-memory-access-drafting") is drafting


@pytest.mark.parametrize(("before", "found"), [(LONGEST - 6, True), (LONGEST - 5, False), (100_000, False)])
def test_a_line_is_searched_up_to_a_length(before: int, found: bool) -> None:
    cause = Cause(id="one", pattern="needle", means="a fault")
    line = "x" * before + "needle"
    assert (find_cause([cause], line) is cause) is found
    # text cut off one line moves no other line's number
    assert find_cause_lines([cause], [line, "needle"]) == {cause: [0, 1] if found else [1]}


@pytest.mark.parametrize(("before", "found"), [(health.SEARCHED - 6, True), (health.SEARCHED - 5, False)])
def test_a_line_of_a_units_journal_is_searched_up_to_a_length_on_the_host(monkeypatch, before, found):
    assert health.SEARCHED == LONGEST
    monkeypatch.setattr(health.common, "run", lambda *_, **__: "x" * before + "needle\nanother line\n")
    shown, complete = health.betraying({"InvocationID": "a" * 32}, ["needle", "a fault"])
    assert complete
    assert [len(one) for one in shown] == ([health.LENGTH] if found else [])


def test_the_reason_of_a_failed_start_is_kept_beside_the_lines_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    end = "".join(f"failed to load model, step {number}\n" for number in range(6))
    monkeypatch.setattr(health.common, "run", lambda *_, **__: f"invalid magic characters: 'brok'\n{end}")
    shown, _ = health.betraying({"InvocationID": "a" * 32}, ["invalid magic characters", "failed to load model"])
    assert shown[0] == "invalid magic characters: 'brok'"


def test_a_search_of_a_units_journal_ends_in_time_with_its_newest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(9))
    monkeypatch.setattr(health.time, "monotonic", lambda: next(clock) * health.SEARCH * 0.4)
    monkeypatch.setattr(health.common, "run", lambda *_, **__: "needle 1\nneedle 2\nneedle 3\n")
    assert health.betraying({"InvocationID": "a" * 32}, ["needle"]) == (["needle 2", "needle 3"], False)
