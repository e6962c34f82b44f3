"""Recording rules and alerts of Prometheus, as data.

Names of vLLM's metrics are those of vllm/v1/metrics/loggers.py 0.21.0, llama.cpp's those of
tools/server/server-context.cpp at 0c1e570, and of the host those of node exporter 1.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rigwright.model.monitoring_schema import AlertThresholds
from rigwright.monitoring.self_check import STALE_MINUTES
from rigwright.monitoring.textfile import (
    ADVISORIES,
    CHECK_CHANGED,
    CHECK_FAILED,
    CHECK_FINISHED,
    DEPLOY_STARTED,
    RESIDENCY_AWAKE,
    RESIDENCY_FAILED,
    ROTATION_LEFT,
    SELF_CHECK_FAILED,
    SELF_CHECK_RUN,
)

Severity = Literal["critical", "warning", "none"]
HEARTBEAT = "Alive"
DEPLOYING = "Deploying"
BOX_GONE = "BoxGone"
HELD = "critical|warning"
"""Severities that are silent while a deploy of the box runs."""
# Hours after which a deploy that recorded its start and no end counts as interrupted.
LONGEST = 6
# The check that compares the last measurement with the accepted one (checks/test_baseline.py).
BASELINE = "J01"
HOUR, DAY = 3600, 86400


@dataclass(frozen=True)
class RecordingRule:
    """A metric with one name for all engine kinds."""

    name: str
    expr: str


@dataclass(frozen=True)
class AlertRule:
    """An alert."""

    name: str
    expr: str
    severity: Severity
    says: str
    """Text of the alert, with labels in Prometheus' template language."""
    minutes: int = 0
    """Minutes for which the expression must be true."""


INSTANCE = "{{ $labels.box }}: {{ $labels.instance }}"
BOX = "{{ $labels.box }}"
CARD = "{{ $labels.box }}: card {{ $labels.gpu }}"
RECORDING_RULES = (
    RecordingRule("rig:running", "vllm:num_requests_running or llamacpp:requests_processing"),
    RecordingRule("rig:waiting", "vllm:num_requests_waiting or llamacpp:requests_deferred"),
    RecordingRule(
        "rig:generated_tokens:rate1m",
        "rate(vllm:generation_tokens_total[1m]) or rate(llamacpp:tokens_predicted_total[1m])",
    ),
    RecordingRule(
        "rig:prompt_tokens:rate1m", "rate(vllm:prompt_tokens_total[1m]) or rate(llamacpp:prompt_tokens_total[1m])"
    ),
    # steps of the engine: an engine without steps while requests run is wedged, whatever its health endpoint says
    RecordingRule(
        "rig:steps:increase5m",
        "increase(vllm:iteration_tokens_total_count[5m]) or increase(llamacpp:n_decode_total[5m])",
    ),
    RecordingRule(
        "rig:ttft_seconds:p99_10m",
        "histogram_quantile(0.99, sum by (box, instance, variant, model, le)"
        " (rate(vllm:time_to_first_token_seconds_bucket[10m])))",
    ),
)


def build_alerts(thresholds: AlertThresholds) -> tuple[AlertRule, ...]:
    """All of them.

    Args:
        thresholds: Alert thresholds.
    """
    real = 'fstype!~"tmpfs|ramfs|overlay|squashfs|autofs|fuse.*|nsfs"'
    found = [
        AlertRule(HEARTBEAT, "vector(1)", "none", "Heartbeat: alerts are delivered."),
        AlertRule(
            DEPLOYING,
            # of each box one value: of a host that tells two, the rule would fail for all
            f"max by (box) ({DEPLOY_STARTED}) > time() - {LONGEST * HOUR}"
            f" and max by (box) ({DEPLOY_STARTED}) > max by (box) (node_boot_time_seconds)",
            "none",
            f"A deploy of {BOX} is running.",
        ),
        AlertRule(BOX_GONE, 'up{job="node"} == 0', "critical", f"{BOX} does not answer.", 2),
        AlertRule(
            "GatewayDown", "probe_success == 0", "critical", f"{BOX}: {{{{ $labels.door }}}} does not respond.", 2
        ),
        AlertRule(
            "InstanceDown",
            # one on demand that is asleep answers nothing
            f'up{{job="engine"}} == 0 unless on (box, instance) {RESIDENCY_AWAKE} == 0',
            "critical",
            f"{INSTANCE} does not answer.",
            2,
        ),
        AlertRule(
            "StartFailed",
            f"{RESIDENCY_FAILED} > 0",
            "critical",
            f"{INSTANCE} does not start on demand; failed starts: {{{{ $value }}}}.",
        ),
        AlertRule(
            "InstanceWedged",
            "rig:running > 0 and rig:steps:increase5m == 0",
            "critical",
            f"{INSTANCE} has running requests and makes no progress.",
            5,
        ),
        AlertRule(
            "Queue",
            f"rig:waiting > {thresholds.queue}",
            "warning",
            f"{INSTANCE}: {{{{ $value }}}} requests wait.",
            5,
        ),
        AlertRule(
            "KvCacheFull",
            f"vllm:kv_cache_usage_perc * 100 > {thresholds.kv_percent}",
            "warning",
            f"{INSTANCE}: {{{{ $value | humanize }}}} % of its KV cache is in use.",
            5,
        ),
        AlertRule(
            "Preemptions",
            "increase(vllm:num_preemptions_total[10m]) > 0",
            "warning",
            f"{INSTANCE} preempted requests (KV cache too small).",
            10,
        ),
        AlertRule(
            "DiskFull",
            f"node_filesystem_avail_bytes{{{real}}} / node_filesystem_size_bytes * 100 < {thresholds.disk_percent}",
            "warning",
            f"{BOX}: {{{{ $value | humanize }}}} % of {{{{ $labels.mountpoint }}}} is free.",
            5,
        ),
        AlertRule(
            "CertificateEnds",
            f"probe_ssl_earliest_cert_expiry - time() < {thresholds.certificate_days * DAY}",
            "warning",
            f"{BOX}: the certificate of {{{{ $labels.door }}}} {{{{ if lt $value 0.0 }}}}has expired"
            "{{ else }}ends in {{ $value | humanizeDuration }}{{ end }}.",
            5,
        ),
        AlertRule(
            "CheckRed",
            CHECK_FAILED + '{level=~"critical|high"} > 0',
            "critical",
            f"{BOX}: check {{{{ $labels.check }}}} ({{{{ $labels.level }}}}) fails. {{{{ $labels.part }}}}",
        ),
        AlertRule(
            "HostChanged",
            f"sum by (box) ({CHECK_CHANGED}) > 0",
            "warning",
            f"{BOX} has unaccepted changes of accounts, programs or settings around Rigwright: {{{{ $value }}}}. "
            "`rigwright check` lists them.",
        ),
        AlertRule(
            "Slower",
            CHECK_FAILED + f'{{check="{BASELINE}"}} > 0',
            "warning",
            f"{BOX}: {{{{ $labels.part }}}} was slower than its baseline in the last measurement.",
        ),
        AlertRule(
            # only for new advisories: the operator has decided on the others
            "AdvisoriesOpened",
            f'max by (box) ({ADVISORIES}{{state="open"}}) > max by (box) ({ADVISORIES}{{state="open"}} offset 1d)',
            "warning",
            f"{BOX}: more published advisories are open than a day ago: {{{{ $value }}}}.",
        ),
        AlertRule(
            "VerdictStale",
            f"time() - {CHECK_FINISHED} > {thresholds.check_hours * HOUR}"
            f' or (up{{job="node"}} == 1 unless on (box) {CHECK_FINISHED})',
            "warning",
            f"{BOX}: `rigwright check` has not run for {thresholds.check_hours} hours.",
            30,
        ),
        AlertRule(
            "SelfCheckRed",
            SELF_CHECK_FAILED + '{level=~"critical|high"} > 0',
            "critical",
            f"{BOX}: self-check {{{{ $labels.check }}}} ({{{{ $labels.level }}}}) fails. {{{{ $labels.part }}}}",
        ),
        AlertRule(
            "SelfCheckStale",
            f"time() - {SELF_CHECK_RUN} > {(STALE_MINUTES - 10) * 60}"
            f' or (up{{job="node"}} == 1 unless on (box) {SELF_CHECK_RUN})',
            "warning",
            f"{BOX}: the self-check has not run for {STALE_MINUTES} minutes.",
            # includes the minutes between the start of node exporter and the first metrics
            10,
        ),
    ]
    found.append(
        AlertRule(
            "OutOfRotation",
            f"{ROTATION_LEFT} > 0",
            "critical",
            f"{BOX} keeps {{{{ $labels.instance }}}} out of the gateway's rotation: {{{{ $labels.reason }}}}.",
        )
    )
    found += [
        AlertRule(
            "CardsMissing",
            "count by (box) (DCGM_FI_DEV_GPU_TEMP) < max by (box) (rigwright_gpus_declared)"
            " or (max by (box) (rigwright_gpus_declared) unless on (box) DCGM_FI_DEV_GPU_TEMP)"
            ' or up{job="gpu"} == 0',
            "critical",
            f"{BOX}: a card does not answer.",
            2,
        ),
        AlertRule(
            "CardHot",
            f"DCGM_FI_DEV_GPU_TEMP > {thresholds.temperature_c}",
            "warning",
            f"{CARD} is at {{{{ $value }}}} degrees Celsius.",
            5,
        ),
        AlertRule(
            "CardThrottled",
            "rigwright_gpu_throttled == 1",
            "warning",
            f"{CARD} is throttled: {{{{ $labels.reason }}}}.",
            5,
        ),
        AlertRule(
            "PowerLimitLost",
            "DCGM_FI_DEV_POWER_MGMT_LIMIT != rigwright_gpu_power_limit_declared_watts",
            "warning",
            f"{CARD}: power limit is {{{{ $value }}}} W, not the declared one.",
            5,
        ),
        AlertRule(
            "Xid",
            "DCGM_FI_DEV_XID_ERRORS and increase(rigwright_gpu_xid_events[30m]) > 0",
            "critical",
            f"{CARD}: the driver reports Xid {{{{ $value }}}}.",
        ),
        AlertRule(
            "EccUncorrected",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL > 0",
            "critical",
            f"{CARD}: {{{{ $value }}}} uncorrectable memory errors since the driver was loaded.",
        ),
    ]
    if thresholds.ttft_p99_s is not None:
        found.append(
            AlertRule(
                "FirstTokenLate",
                f"rig:ttft_seconds:p99_10m > {thresholds.ttft_p99_s}",
                "warning",
                f"{INSTANCE}: 1 % of requests wait {{{{ $value | humanizeDuration }}}} or longer for the first token.",
                5,
            )
        )
    return tuple(found)
