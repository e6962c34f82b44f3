"""Dashboards for a Grafana of the operator's, as JSON: `ENVIRONMENT/bin/python -m tests.dashboards`.

Made with grafana-foundation-sdk (1769699998!10.1.0, which wants Python 3.11), in an environment that has it: its output
is committed in templates/monitoring/dashboards, and Grafana reads it from a folder or by its API.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "templates" / "monitoring" / "dashboards"
HEIGHT, WIDTH = 8, 12  # of a panel, in Grafana's grid of 24 columns
SOURCE = "prometheus"
"""The variable that says which Prometheus is asked."""


@dataclass(frozen=True)
class DashboardPanel:
    """A panel: its figures over time, a line a series."""

    title: str
    expr: str
    legend: str
    unit: str = "short"
    """As Grafana calls it."""


BOXES = 'box=~"$box"'
ONE = 'box=~"$box", instance=~"$instance"'
REAL = 'fstype!~"tmpfs|ramfs|overlay|squashfs|autofs|fuse.*|nsfs"'
PAGES: dict[str, tuple[str, tuple[str, ...], tuple[DashboardPanel, ...]]] = {
    "fleet": (
        "Rigwright: all boxes",
        (),
        (
            DashboardPanel("Boxes that answer", 'up{job="node"}', "{{box}}"),
            DashboardPanel("Instances that answer", 'up{job="engine"}', "{{box}} {{instance}}"),
            DashboardPanel("Tokens generated a second", "sum by (box) (rig:generated_tokens:rate1m)", "{{box}}"),
            DashboardPanel("Requests under way", "sum by (box) (rig:running)", "{{box}}"),
            DashboardPanel("Requests that wait", "sum by (box) (rig:waiting)", "{{box}}"),
            DashboardPanel(
                "Alerts", 'count by (box, alertname) (ALERTS{alertstate="firing"})', "{{box}} {{alertname}}"
            ),
            DashboardPanel("Since the last check", "time() - rigwright_check_finished_seconds", "{{box}}", "s"),
            DashboardPanel("Gateways answer clients in", "probe_duration_seconds", "{{box}} {{door}}", "s"),
            DashboardPanel("Power of all cards", "sum by (box) (DCGM_FI_DEV_POWER_USAGE)", "{{box}}", "watt"),
        ),
    ),
    "box": (
        "Rigwright: a box",
        ("box",),
        (
            DashboardPanel(
                "Processors busy",
                f'1 - avg by (box) (rate(node_cpu_seconds_total{{{BOXES}, mode="idle"}}[1m]))',
                "{{box}}",
                "percentunit",
            ),
            DashboardPanel(
                "Memory taken",
                f"1 - node_memory_MemAvailable_bytes{{{BOXES}}} / node_memory_MemTotal_bytes",
                "{{box}}",
                "percentunit",
            ),
            DashboardPanel("Load over a minute", f"node_load1{{{BOXES}}}", "{{box}}"),
            DashboardPanel(
                "Disk free", f"node_filesystem_avail_bytes{{{BOXES}, {REAL}}}", "{{box}} {{mountpoint}}", "bytes"
            ),
            DashboardPanel(
                "Network in",
                f'rate(node_network_receive_bytes_total{{{BOXES}, device!="lo"}}[1m])',
                "{{box}} {{device}}",
                "Bps",
            ),
            DashboardPanel(
                "Network out",
                f'rate(node_network_transmit_bytes_total{{{BOXES}, device!="lo"}}[1m])',
                "{{box}} {{device}}",
                "Bps",
            ),
            DashboardPanel("Checks", f"rigwright_checks{{{BOXES}}}", "{{box}} {{verdict}}"),
            DashboardPanel("Generation", f"rigwright_generation{{{BOXES}}}", "{{box}}"),
            DashboardPanel("Cards: processors", f"DCGM_FI_DEV_GPU_UTIL{{{BOXES}}}", "{{box}} {{gpu}}", "percent"),
            DashboardPanel("Cards: memory", f"DCGM_FI_DEV_FB_USED{{{BOXES}}}", "{{box}} {{gpu}}", "decmbytes"),
            DashboardPanel("Cards: power", f"DCGM_FI_DEV_POWER_USAGE{{{BOXES}}}", "{{box}} {{gpu}}", "watt"),
            DashboardPanel("Cards: temperature", f"DCGM_FI_DEV_GPU_TEMP{{{BOXES}}}", "{{box}} {{gpu}}", "celsius"),
        ),
    ),
    "instance": (
        "Rigwright: an instance",
        ("box", "instance"),
        (
            DashboardPanel(
                "Tokens generated a second", f"rig:generated_tokens:rate1m{{{ONE}}}", "{{box}} {{instance}}"
            ),
            DashboardPanel("Prompt tokens a second", f"rig:prompt_tokens:rate1m{{{ONE}}}", "{{box}} {{instance}}"),
            DashboardPanel("Requests under way", f"rig:running{{{ONE}}}", "{{box}} {{instance}}"),
            DashboardPanel("Requests that wait", f"rig:waiting{{{ONE}}}", "{{box}} {{instance}}"),
            DashboardPanel("Steps in 5 minutes", f"rig:steps:increase5m{{{ONE}}}", "{{box}} {{instance}}"),
            DashboardPanel(
                "Answers by status",
                f"sum by (box, instance, status) (rate(rigwright_gateway_requests_total{{{ONE}}}[1m]))",
                "{{box}} {{instance}} {{status}}",
                "reqps",
            ),
            DashboardPanel(
                "First content after, on average",
                f"rate(rigwright_gateway_first_content_seconds_sum{{{ONE}}}[5m])"
                f" / rate(rigwright_gateway_first_content_seconds_count{{{ONE}}}[5m])",
                "{{box}} {{instance}}",
                "s",
            ),
            DashboardPanel(
                "First token after, of 99 in 100", f"rig:ttft_seconds:p99_10m{{{ONE}}}", "{{box}} {{instance}}", "s"
            ),
            DashboardPanel(
                "KV cache taken", f"vllm:kv_cache_usage_perc{{{ONE}}}", "{{box}} {{instance}}", "percentunit"
            ),
            DashboardPanel(
                "Requests put back", f"increase(vllm:num_preemptions_total{{{ONE}}}[5m])", "{{box}} {{instance}}"
            ),
        ),
    ),
}


def render_dashboard(name: str) -> dict[str, Any]:
    """A dashboard, as Grafana's API and its folders take it."""
    from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.dashboard import DataSourceRef, GridPos, VariableRefresh

    title, variables, graphs = PAGES[name]
    source = DataSourceRef(type_val="prometheus", uid=f"${{{SOURCE}}}")
    made = dashboard.Dashboard(title).uid(f"rigwright-{name}").tags(["rigwright"]).refresh("30s").time("now-6h", "now")
    made = made.readonly().with_variable(dashboard.DatasourceVariable(SOURCE).type("prometheus"))
    for variable in variables:
        query = (
            f"label_values(up, {variable})" if variable == "box" else f'label_values(up{{job="engine"}}, {variable})'
        )
        choice = dashboard.QueryVariable(variable).datasource(source).query(query)
        made = made.with_variable(choice.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).multi(True).include_all(True))
    for number, graph in enumerate(graphs):
        at = GridPos(h=HEIGHT, w=WIDTH, x=number % 2 * WIDTH, y=number // 2 * HEIGHT)
        asked = prometheus.Dataquery().expr(graph.expr).legend_format(graph.legend).ref_id("A").datasource(source)
        panel = timeseries.Panel().title(graph.title).unit(graph.unit).datasource(source).grid_pos(at).min(0)
        made = made.with_panel(panel.with_target(asked))
    found: dict[str, Any] = json.loads(JSONEncoder(sort_keys=True).encode(made.build()))
    return found


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name in PAGES:
        (FOLDER / f"{name}.json").write_text(json.dumps(render_dashboard(name), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
