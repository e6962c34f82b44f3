"""The table of Rigwright's own metrics in docs/reference/metrics.md."""

from __future__ import annotations

METRICS = (
    ("rigwright_deploy_started_seconds", "", "Start of a running deploy, in seconds since 1970; absent otherwise"),
    (
        "rigwright_check_finished_seconds",
        "",
        "End of the last `rigwright check` of all checks, in seconds since 1970",
    ),
    ("rigwright_generation", "", "The current generation at that time"),
    ("rigwright_checks", "verdict", "Checks by verdict"),
    ("rigwright_check_failed", "check, level, part", "1 for each failed check"),
    ("rigwright_check_changed", "check", "Changes that are not accepted"),
    ("rigwright_advisories", "state", "Published advisories that cover the box, by state"),
    ("rigwright_self_check_run_seconds", "", "Start of the last self-check, in seconds since 1970"),
    ("rigwright_self_check_judged_seconds", "", "The last self-check that was not skipped"),
    ("rigwright_self_check_failed", "check, level, part", "1 for each failure of the self-check"),
    ("rigwright_self_check_waived", "check, level, part", "1 for each failure that a waiver covers"),
    ("rigwright_pull_run_seconds", "", "The last pull, in seconds since 1970"),
    ("rigwright_pull_verified_seconds", "", "The last pull with a valid timestamp"),
    ("rigwright_pull_serial", "", "Serial of the pulled generation that the box serves; 0 for none"),
    ("rigwright_pull_outcome", "outcome, reason", "1 for the outcome of the last pull"),
    (
        "rigwright_rotation_left_seconds",
        "instance, reason",
        "When the box took the instance out of the gateway's rotation, in seconds since 1970; absent for an instance "
        "in it",
    ),
    ("rigwright_residency_awake", "instance", "1 while an instance on demand is loaded, 0 while asleep"),
    ("rigwright_residency_failed_starts", "instance", "Starts in a row that failed"),
    ("rigwright_residency_load_seconds", "instance", "Seconds that the last load took"),
    ("rigwright_gpus_declared", "", "Cards that the inventory declares"),
    ("rigwright_gpu_throttled", "gpu, UUID, reason", "1 while the reason reduces the card's clocks"),
    ("rigwright_gpu_xid_events", "gpu, UUID", "Xids since the exporter's start"),
    ("rigwright_gpu_power_limit_declared_watts", "gpu, UUID", "The power limit that the inventory declares"),
    ("rigwright_gateway_requests_total", "status, instance, model", "Finished requests"),
    ("rigwright_gateway_retries_total", "instance", "Requests that went to another instance"),
    ("rigwright_gateway_prompt_tokens_total", "instance", "Prompt tokens that engines report"),
    ("rigwright_gateway_completion_tokens_total", "instance", "Answer tokens that engines report"),
    ("rigwright_gateway_first_content_seconds_sum", "instance", "Sum of the times to the first content"),
    ("rigwright_gateway_first_content_seconds_count", "instance", "Number of those times"),
    (
        "rigwright_gateway_key_tokens_total",
        "key, model, kind",
        "Tokens of a key since the gateway's start: `input`, `output`, and `cached` of the input",
    ),
    (
        "rigwright_gateway_key_unknown_total",
        "key, model",
        "Answered requests for which the engine reported no tokens, or only a part",
    ),
    ("rigwright_gateway_under_way", "instance", "Requests under way"),
    ("rigwright_gateway_ready", "instance", "1 if the instance accepts requests"),
    (
        "rigwright_gateway_wakes_total",
        "model, outcome",
        "Requests for a sleeping model: `ready`; `failed`, `memory`, `busy`, `forbidden` as the residency service "
        "refuses, the last also for a key without `wake`; `timeout`; `left` by the client; `revoked`; `gone`, "
        "`silent`, `unreadable` service; `absent` instance",
    ),
    ("rigwright_gateway_wake_seconds_sum", "model", "Sum of the times that those requests waited"),
    ("rigwright_gateway_wake_seconds_count", "model", "Number of those times"),
    ("rigwright_gateway_waiting", "instance", "Requests that wait for the instance to start"),
)
"""Name, labels and meaning of each metric that Rigwright exports."""


def list_metrics() -> list[tuple[str, str, str]]:
    """Name, labels and meaning of each, as a table has them."""
    return [(f"`{name}`", labels, meaning) for name, labels, meaning in METRICS]
