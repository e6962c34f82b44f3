"""Alerts, each on series of its own: Prometheus' promtool says which of them fire, and with which words."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.engines import kinds
from rigwright.model.monitoring_schema import AlertThresholds, MonitoringServer
from rigwright.monitoring import config_files
from rigwright.monitoring.alert_rules import HEARTBEAT, build_alerts

PROMTOOL = shutil.which("promtool")
FUNCTIONS = {"histogram_quantile"}
SERVER = MonitoringServer(alert_thresholds=AlertThresholds(ttft_p99_s=2.0))
ON = 'box="b",instance="chat"'
TOLD = {"box": "b", "instance": "chat"}
# a minute each: the first is at 0
STEADY, GROWING = "{}x120", "0+60x120"


@dataclass(frozen=True)
class AlertCase:
    """Series, a value a minute, and their alerts."""

    alert: str
    series: dict[str, str]
    says: str
    quiet: dict[str, str]
    """The same without receivers."""
    labels: dict[str, str]
    at: str = "40m"


HOST = 'box="b",job="node",instance="b:9100"'
ON_CARD = 'box="b",gpu="1"'
CARD = {"box": "b", "gpu": "1"}
BUCKETS = {
    f'vllm:time_to_first_token_seconds_bucket{{{ON},le="{le}"}}': f"0+{step}x120"
    for le, step in (("1", 0), ("4", 60), ("+Inf", 60))
}
EARLY = dict.fromkeys(BUCKETS, "0+60x120")
NODE = 'up{job="node",box="b"}'
CASES = [
    AlertCase("BoxGone", {NODE: "0x120"}, "b does not answer.", {NODE: "1x120"}, {"box": "b", "job": "node"}),
    AlertCase(
        "GatewayDown",
        {'probe_success{box="b",door="d:1"}': "0x120"},
        "b: d:1 does not respond.",
        {'probe_success{box="b",door="d:1"}': "1x120"},
        {"box": "b", "door": "d:1"},
    ),
    AlertCase(
        "InstanceDown",
        {f'up{{job="engine",{ON}}}': "0x120"},
        "b: chat does not answer.",
        {f'up{{job="engine",{ON}}}': "1x120"},
        {**TOLD, "job": "engine"},
    ),
    AlertCase(
        "StartFailed",
        {'rigwright_residency_failed_starts{box="b",instance="chat"}': "2x120"},
        "b: chat does not start on demand; failed starts: 2.",
        {'rigwright_residency_failed_starts{box="b",instance="chat"}': "0x120"},
        {"box": "b", "instance": "chat"},
    ),
    AlertCase(
        "InstanceWedged",
        {f"vllm:num_requests_running{{{ON}}}": "2x120", f"vllm:iteration_tokens_total_count{{{ON}}}": "7x120"},
        "b: chat has running requests and makes no progress.",
        {f"vllm:num_requests_running{{{ON}}}": "2x120", f"vllm:iteration_tokens_total_count{{{ON}}}": GROWING},
        TOLD,
    ),
    AlertCase(
        "InstanceWedged",
        {f"llamacpp:requests_processing{{{ON}}}": "1x120", f"llamacpp:n_decode_total{{{ON}}}": "7x120"},
        "b: chat has running requests and makes no progress.",
        {f"llamacpp:requests_processing{{{ON}}}": "0x120", f"llamacpp:n_decode_total{{{ON}}}": "7x120"},
        TOLD,
    ),
    AlertCase(
        "Queue",
        {f"llamacpp:requests_deferred{{{ON}}}": "17x120"},
        "b: chat: 17 requests wait.",
        {f"llamacpp:requests_deferred{{{ON}}}": "16x120"},
        TOLD,
    ),
    AlertCase(
        "KvCacheFull",
        {f"vllm:kv_cache_usage_perc{{{ON}}}": "0.96x120"},
        "b: chat: 96 % of its KV cache is in use.",
        {f"vllm:kv_cache_usage_perc{{{ON}}}": "0.94x120"},
        TOLD,
    ),
    AlertCase(
        "Preemptions",
        {f"vllm:num_preemptions_total{{{ON}}}": "0+1x120"},
        "b: chat preempted requests (KV cache too small).",
        {f"vllm:num_preemptions_total{{{ON}}}": "5x120"},
        TOLD,
    ),
    AlertCase(
        "DiskFull",
        {
            'node_filesystem_avail_bytes{box="b",fstype="ext4",mountpoint="/"}': "9x120",
            'node_filesystem_size_bytes{box="b",fstype="ext4",mountpoint="/"}': "100x120",
        },
        "b: 9 % of / is free.",
        {
            'node_filesystem_avail_bytes{box="b",fstype="tmpfs",mountpoint="/"}': "9x120",
            'node_filesystem_size_bytes{box="b",fstype="tmpfs",mountpoint="/"}': "100x120",
        },
        {"box": "b", "fstype": "ext4", "mountpoint": "/"},
    ),
    AlertCase(
        "CertificateEnds",
        {'probe_ssl_earliest_cert_expiry{box="b",door="d:1"}': f"{13 * 86400 + 2400}x120"},
        "b: the certificate of d:1 ends in 13d 0h 0m 0s.",
        {'probe_ssl_earliest_cert_expiry{box="b",door="d:1"}': f"{15 * 86400}x120"},
        {"box": "b", "door": "d:1"},
    ),
    AlertCase(
        "CertificateEnds",
        {'probe_ssl_earliest_cert_expiry{box="b",door="d:1"}': "60x120"},
        "b: the certificate of d:1 has expired.",
        {'probe_ssl_earliest_cert_expiry{box="b",door="d:1"}': f"{15 * 86400}x120"},
        {"box": "b", "door": "d:1"},
    ),
    AlertCase(
        "CheckRed",
        {'rigwright_check_failed{box="b",check="S01",level="high",part="chat"}': "1x120"},
        "b: check S01 (high) fails. chat",
        {'rigwright_check_failed{box="b",check="S01",level="low",part="chat"}': "1x120"},
        {"box": "b", "check": "S01", "level": "high", "part": "chat"},
    ),
    AlertCase(
        "HostChanged",
        {f'rigwright_check_changed{{box="b",check="X0{number}"}}': f"{number}x120" for number in (1, 2)},
        "b has unaccepted changes of accounts, programs or settings around Rigwright: 3. `rigwright check` lists them.",
        {NODE: "1x120"},
        {"box": "b"},
    ),
    AlertCase(
        "Slower",
        {'rigwright_check_failed{box="b",check="J01",level="low",part="chat"}': "1x120"},
        "b: chat was slower than its baseline in the last measurement.",
        {'rigwright_check_failed{box="b",check="J02",level="low",part="chat"}': "1x120"},
        {"box": "b", "check": "J01", "level": "low", "part": "chat"},
    ),
    AlertCase(
        "AdvisoriesOpened",
        {'rigwright_advisories{box="b",state="open"}': "1x1450 3x600"},
        "b: more published advisories are open than a day ago: 3.",
        {'rigwright_advisories{box="b",state="open"}': "3x2100"},
        {"box": "b"},
        "26h",
    ),
    AlertCase(
        "VerdictStale",
        {NODE: "1x2000"},
        "b: `rigwright check` has not run for 26 hours.",
        {NODE: "1x2000", 'rigwright_check_finished_seconds{box="b"}': "3600x2000"},
        {"box": "b", "job": "node"},
        "27h",
    ),
    AlertCase(
        "VerdictStale",
        {NODE: "1x2000", 'rigwright_check_finished_seconds{box="b"}': "60x2000"},
        "b: `rigwright check` has not run for 26 hours.",
        {NODE: "1x2000", 'rigwright_check_finished_seconds{box="b"}': "60000x2000"},
        {"box": "b"},
        "27h",
    ),
    AlertCase(
        "SelfCheckRed",
        {'rigwright_self_check_failed{box="b",check="U02",level="critical",part=""}': "1x120"},
        "b: self-check U02 (critical) fails. ",
        {'rigwright_self_check_failed{box="b",check="N20",level="low",part=""}': "1x120"},
        {"box": "b", "check": "U02", "level": "critical"},
    ),
    AlertCase(
        "SelfCheckStale",
        {NODE: "1x120", 'rigwright_self_check_run_seconds{box="b"}': "60x120"},
        "b: the self-check has not run for 20 minutes.",
        {NODE: "1x120", 'rigwright_self_check_run_seconds{box="b"}': "2000x120"},
        {"box": "b"},
    ),
    AlertCase(
        "SelfCheckStale",
        {NODE: "1x120"},
        "b: the self-check has not run for 20 minutes.",
        {NODE: "1x120", 'rigwright_self_check_run_seconds{box="b"}': "2000x120"},
        {"box": "b", "job": "node"},
    ),
    AlertCase(
        "OutOfRotation",
        {'rigwright_rotation_left_seconds{box="b",instance="chat",reason="xid 79"}': "60x120"},
        "b keeps chat out of the gateway's rotation: xid 79.",
        {'rigwright_gateway_ready{box="b",instance="chat"}': "1x120"},
        {"box": "b", "instance": "chat", "reason": "xid 79"},
    ),
    AlertCase(
        "FirstTokenLate", BUCKETS, "b: chat: 1 % of requests wait 3.97s or longer for the first token.", EARLY, TOLD
    ),
    AlertCase(
        "CardsMissing",
        {f"DCGM_FI_DEV_GPU_TEMP{{{ON_CARD}}}": "40x120", 'rigwright_gpus_declared{box="b"}': "2x120"},
        "b: a card does not answer.",
        {f"DCGM_FI_DEV_GPU_TEMP{{{ON_CARD}}}": "40x120", 'rigwright_gpus_declared{box="b"}': "1x120"},
        {"box": "b"},
    ),
    AlertCase(
        "CardsMissing",
        {'rigwright_gpus_declared{box="b"}': "1x120"},
        "b: a card does not answer.",
        {"rigwright_generation": "1x120"},
        {"box": "b"},
    ),
    AlertCase(
        "CardsMissing",
        {'up{job="gpu",box="b"}': "0x120"},
        "b: a card does not answer.",
        {'up{job="gpu",box="b"}': "1x120"},
        {"box": "b", "job": "gpu"},
    ),
    AlertCase(
        "CardsMissing",
        # two words of one host are no reason to be quiet of another
        {'rigwright_gpus_declared{box="b"}': "2x120", f"DCGM_FI_DEV_GPU_TEMP{{{ON_CARD}}}": "40x120"}
        | {f'rigwright_gpus_declared{{box="c",a="{one}"}}': "1x120" for one in "de"}
        | {'DCGM_FI_DEV_GPU_TEMP{box="c",gpu="0"}': "40x120"},
        "b: a card does not answer.",
        {"rigwright_generation": "1x120"},
        {"box": "b"},
    ),
    AlertCase(
        "CardHot",
        {f"DCGM_FI_DEV_GPU_TEMP{{{ON_CARD}}}": "89x120"},
        "b: card 1 is at 89 degrees Celsius.",
        {f"DCGM_FI_DEV_GPU_TEMP{{{ON_CARD}}}": "88x120"},
        CARD,
    ),
    AlertCase(
        "CardThrottled",
        {f'rigwright_gpu_throttled{{{ON_CARD},reason="power brake"}}': "1x120"},
        "b: card 1 is throttled: power brake.",
        {f'rigwright_gpu_throttled{{{ON_CARD},reason="power brake"}}': "0x120"},
        CARD | {"reason": "power brake"},
    ),
    AlertCase(
        "PowerLimitLost",
        {
            f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{ON_CARD}}}": "350x120",
            f"rigwright_gpu_power_limit_declared_watts{{{ON_CARD}}}": "280x120",
        },
        "b: card 1: power limit is 350 W, not the declared one.",
        {
            f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{ON_CARD}}}": "280x120",
            f"rigwright_gpu_power_limit_declared_watts{{{ON_CARD}}}": "280x120",
        },
        CARD,
    ),
    AlertCase(
        "Xid",
        {f"DCGM_FI_DEV_XID_ERRORS{{{ON_CARD}}}": "79x120", f"rigwright_gpu_xid_events{{{ON_CARD}}}": "0x20 1x100"},
        "b: card 1: the driver reports Xid 79.",
        {f"DCGM_FI_DEV_XID_ERRORS{{{ON_CARD}}}": "79x120", f"rigwright_gpu_xid_events{{{ON_CARD}}}": "1x120"},
        CARD,
    ),
    AlertCase(
        "EccUncorrected",
        {f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{ON_CARD}}}": "2x120"},
        "b: card 1: 2 uncorrectable memory errors since the driver was loaded.",
        {f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{ON_CARD}}}": "0x120"},
        CARD,
    ),
    AlertCase(
        "Deploying",
        {f"rigwright_deploy_started_seconds{{{HOST}}}": "1200x120", f"node_boot_time_seconds{{{HOST}}}": "600x120"},
        "A deploy of b is running.",
        {f"rigwright_deploy_started_seconds{{{HOST}}}": "1200x120", f"node_boot_time_seconds{{{HOST}}}": "1800x120"},
        {"box": "b"},
    ),
]


def promtool_test(case: AlertCase, series: dict[str, str], *said: dict[str, object]) -> dict[str, object]:
    """A test of promtool's."""
    rows = [{"series": name, "values": values} for name, values in series.items()]
    wanted = {"eval_time": case.at, "alertname": case.alert, "exp_alerts": list(said)}
    return {"interval": "1m", "input_series": rows, "alert_rule_test": [wanted]}


def cases_of_rules() -> dict[str, object]:
    """All cases, as promtool reads them; for rules in the file beside it."""
    severity = {one.name: one.severity for one in build_alerts(SERVER.alert_thresholds)}
    tests = []
    for case in CASES:
        labels = case.labels | {"severity": severity[case.alert]}
        tests.append(
            promtool_test(case, case.series, {"exp_labels": labels, "exp_annotations": {"summary": case.says}})
        )
        tests.append(promtool_test(case, case.quiet))
    return {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": tests}


@pytest.mark.skipif(not PROMTOOL, reason="promtool is not here: test_monitoring of the hosts runs these there")
def test_each_alert_fires_with_its_words_and_is_quiet_where_nothing_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(config_files.render_rules(SERVER, "# ours"))
    (tmp_path / "tests.yml").write_text(json.dumps(cases_of_rules()))
    words = [str(PROMTOOL), "test", "rules", "tests.yml"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_engine_and_no_gateway_has_a_say_in_what_is_known_of_others() -> None:
    known = set(
        re.findall(r"\b[a-zA-Z_:][a-zA-Z0-9_:]*", " ".join(one.expr for one in build_alerts(SERVER.alert_thresholds)))
    )
    metrics = {name for name in known if "_" in name or ":" in name or name == "up"}
    engines = {name for name in metrics if name.startswith(("vllm:", "llamacpp:"))}
    others = {name for name in metrics - engines if name not in FUNCTIONS}
    assert {"rigwright_deploy_started_seconds", "node_boot_time_seconds", "probe_success", "rig:waiting"} <= others
    assert [
        name
        for name in others
        if not re.fullmatch(config_files.OTHERS, name) or re.fullmatch(config_files.GATEWAYS, name)
    ] == []
    counted = {name for kind in kinds().values() for name in kind.metric_names.all}
    assert [name for name in counted | engines if re.fullmatch(config_files.OTHERS, name)] == []
    told = json.loads(config_files.render_prometheus(SERVER, "/f", "# ours").partition("\n")[2])["scrape_configs"]
    assert not [one["job_name"] for one in told if one.get("honor_labels")]


def test_every_alert_has_a_case_and_is_reported_by_default_where_its_limit_is_known() -> None:
    named = {one.name for one in build_alerts(SERVER.alert_thresholds)}
    assert {case.alert for case in CASES} == named - {HEARTBEAT}
    assert named - {one.name for one in build_alerts(AlertThresholds())} == {"FirstTokenLate"}
