"""Counts of engines, as they print them: vLLM 0.21.0's and llama.cpp's own lines."""

import pytest

from rigwright.engines import kinds
from rigwright.engines.metrics import EngineMetrics, MetricNames, parse_metrics, parse_samples

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 40.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1e+03
vllm:generation_tokens_total{engine="0",model_name="m"} 500.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 200.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 50.0
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 170.0
"""
LLAMA = """\
llamacpp:prompt_tokens_total 26
llamacpp:prompt_tokens_cached_total 4
llamacpp:tokens_predicted_total 18
llamacpp:n_decode_total 18
llamacpp:spec_decode_num_drafts_total 0
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""


def test_vllms_names_are_known() -> None:
    found = parse_metrics(VLLM, kinds()["vllm"].metric_names)
    # of several engines in one process, the fuller one counts
    assert (found.running, found.waiting, found.kv_used, found.progress) == (3, 1, 0.25, 40)
    assert (found.prompt_tokens, found.tokens, found.preemptions) == (1000, 500, 2)
    assert found.accept_length() == pytest.approx(2.7)
    assert found.hit_rate() == 0.25
    assert found.is_busy
    assert kinds()["image"].metric_names == kinds()["vllm"].metric_names


def test_llama_cpps_names_are_known_and_its_kv_cache_is_not() -> None:
    found = parse_metrics(LLAMA, kinds()["llama.cpp"].metric_names)
    assert (found.running, found.waiting, found.kv_used) == (1, 0, None)
    assert (found.prompt_tokens, found.tokens, found.progress) == (30, 18, 62)
    assert found.accept_length() is None


def test_only_growth_since_then_counts() -> None:
    then = EngineMetrics(drafts=100, accepted=170, prefix_queries=200, prefix_hits=50, prompt_tokens=1000, tokens=500)
    now = EngineMetrics(drafts=110, accepted=170, prefix_queries=300, prefix_hits=140, prompt_tokens=1100, tokens=560)
    assert now.accept_length(then) == 1
    assert now.hit_rate(then) == pytest.approx(0.9)
    assert now.foreign_tokens(then, prompt_tokens=100, tokens=60) == 0
    assert now.foreign_tokens(then, prompt_tokens=90, tokens=40) == 30
    # an engine that began anew meanwhile counts from nothing
    assert EngineMetrics(drafts=10, accepted=10).accept_length(then) == 2
    assert EngineMetrics().foreign_tokens(then, 1, 1) is None


@pytest.mark.parametrize(
    "line",
    [
        "vllm:a",
        "vllm:a NaN",
        "vllm:a +Inf",
        "vllm:a 1 2 3",
        "vllm:a{ 1",
        "vllm:a 1e999",
        "\x1b[31m 1",
        "vllm:a 1.2.3",
        "",
    ],
)
def test_invalid_samples_are_left_out(line: str) -> None:
    assert parse_samples(f"{line}\nvllm:b 1\n").values == {"vllm:b": [1.0]}


def test_lines_without_end_are_not_all_read() -> None:
    assert len(parse_samples("".join(f"x{number} 1\n" for number in range(30_000))).values) == 20_000


def test_missing_counts_of_a_kind_are_none() -> None:
    assert parse_metrics(VLLM, MetricNames()) == EngineMetrics()
