"""Configuration files of Prometheus, Alertmanager and the exporters, with the secrets of receivers."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from rigwright.address_types import HttpUrlWithQuery
from rigwright.model import api_keys
from rigwright.model.monitoring_schema import MonitoringServer
from rigwright.model.secret_sources import SecretCommand, SecretSource
from rigwright.monitoring.alert_rules import BOX_GONE, DEPLOYING, HEARTBEAT, HELD, RECORDING_RULES, build_alerts

LOOPBACK = "127.0.0.1"
NOBODY = "nobody"
PROBE = "gateway"
# Bounds of one scrape of an engine: a model's name or a faulty engine may not fill the disk here.
# vLLM 0.21.0 told 1,200 samples, in 180 KB, of one model, and its `vllm:cache_config_info` has 33 labels with ours.
BOUNDS = {
    "sample_limit": 10_000,
    "label_limit": 64,
    "label_name_length_limit": 128,
    "label_value_length_limit": 512,
    "body_size_limit": "8MB",
}
# Metrics that rules trust as root's, a card driver's, the prober's or Prometheus' own. From an engine they are dropped:
# an engine that claims a deploy of its box would silence all alerts of it.
OTHERS = "(?:rigwright|node|probe|DCGM|ALERTS|scrape|prometheus|alertmanager|blackbox)_.*|rig:.*|ALERTS|up"
GATEWAYS = "rigwright_gateway_.+"


def _render_json(owned: str, content: Mapping[str, object]) -> str:
    return f"{owned}\n{json.dumps(content, indent=1)}\n"


def render_prometheus(server: MonitoringServer, folder: str, owned: str) -> str:
    """Prometheus' configuration.

    Args:
        server: Its declaration.
        folder: Where its rules lie, and in `targets/` what it asks.
        owned: First line of files of ours.
    """

    def own_job(name: str, port: int) -> dict[str, object]:
        return {"job_name": name, "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}]}

    def box_job(name: str, **more: object) -> dict[str, object]:
        # a scrape over TLS sends no secret, and the prober reports when a certificate ends
        tls = {"tls_config": {"insecure_skip_verify": True}}
        files = {"file_sd_configs": [{"files": [f"{folder}/targets/{name}.json"]}]}
        return {"job_name": name, **files, **BOUNDS, **tls, **more}

    at_prober = f"{LOOPBACK}:{server.blackbox_port}"
    probing = [
        {"source_labels": ["__address__"], "target_label": "__param_target"},
        {"target_label": "__address__", "replacement": at_prober},
    ]
    by_name = {"source_labels": ["__name__"]}
    # it says itself which instance a figure is of, and nothing else of what only the inventory knows: of which box
    of_gateway = [
        {**by_name, "regex": GATEWAYS, "action": "keep"},
        {"source_labels": ["exported_instance"], "regex": "(.+)", "target_label": "instance"},
        {"regex": "exported_instance", "action": "labeldrop"},
    ]
    interval = f"{server.interval_s}s"
    return _render_json(
        owned,
        {
            "global": {
                "scrape_interval": interval,
                "evaluation_interval": interval,
                "scrape_timeout": f"{min(10, server.interval_s)}s",
            },
            "rule_files": [f"{folder}/rules.yml"],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [f"{LOOPBACK}:{server.alertmanager_port}"]}]}]
            },
            "scrape_configs": [
                own_job("alertmanager", server.alertmanager_port),
                own_job("blackbox", server.blackbox_port),
                box_job("node"),
                box_job("gpu"),
                box_job("gateway", metric_relabel_configs=of_gateway),
                box_job("engine", metric_relabel_configs=[{**by_name, "regex": OTHERS, "action": "drop"}]),
                box_job("probe", metrics_path="/probe", params={"module": [PROBE]}, relabel_configs=probing),
            ],
        },
    )


def render_rules(server: MonitoringServer, owned: str) -> str:
    """The file of rules.

    Args:
        server: Its declaration.
        owned: First line of files of ours.
    """
    recorded = [{"record": one.name, "expr": one.expr} for one in RECORDING_RULES]
    told = [
        {
            "alert": one.name,
            "expr": one.expr,
            **({"for": f"{one.minutes}m"} if one.minutes else {}),
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.says},
        }
        for one in build_alerts(server.alert_thresholds)
    ]
    return _render_json(owned, {"groups": [{"name": "figures", "rules": recorded}, {"name": "alerts", "rules": told}]})


def render_alertmanager(server: MonitoringServer, secrets: Mapping[str, str], owned: str) -> str:
    """Alertmanager's configuration.

    Args:
        server: Its declaration.
        secrets: `RECEIVER.token` and `RECEIVER.url` -> where it is read from; only of those that have one.
        owned: First line of files of ours.
    """

    def receiver(name: str) -> dict[str, object]:
        token, address = (secrets.get(f"{name}.{what}") for what in ("token", "url"))
        http = {"authorization": {"credentials_file": token}} if token else {}
        at = {"url_file": address} if address else {"url": server.receivers[name].url}
        hook = {**at, "send_resolved": True, "http_config": http}
        return {"name": name, "webhook_configs": [hook]}

    told = [name for name in sorted(server.receivers) if name != server.heartbeat_receiver]
    every_minute = {"group_wait": "0s", "group_interval": "1m", "repeat_interval": "1m"}
    routes: list[dict[str, object]] = [
        {"matchers": [f'alertname="{HEARTBEAT}"'], "receiver": server.heartbeat_receiver or NOBODY, **every_minute},
        {"matchers": ['severity="none"'], "receiver": NOBODY},
        *({"matchers": [], "receiver": name, "continue": True} for name in told),
    ]
    held = [f'severity=~"{HELD}"']
    return _render_json(
        owned,
        {
            "route": {
                "receiver": NOBODY,
                "group_by": ["box", "alertname"],
                "group_wait": "10s",
                "group_interval": "1m",
                "repeat_interval": "4h",
                "routes": routes,
            },
            "inhibit_rules": [
                {"source_matchers": [f'alertname="{DEPLOYING}"'], "target_matchers": held, "equal": ["box"]},
                # of a box that does not answer, all else is known by that
                {
                    "source_matchers": [f'alertname="{BOX_GONE}"'],
                    "target_matchers": [*held, f'alertname!="{BOX_GONE}"'],
                    "equal": ["box"],
                },
            ],
            "receivers": [{"name": NOBODY}, *(receiver(name) for name in sorted(server.receivers))],
        },
    )


def render_blackbox(owned: str) -> str:
    """The settings of the prober of gateways.

    Args:
        owned: First line of files of ours.
    """
    http = {
        "valid_status_codes": [200],
        "follow_redirects": False,
        "tls_config": {"insecure_skip_verify": True},
        "preferred_ip_protocol": "ip4",
    }
    return _render_json(owned, {"modules": {PROBE: {"prober": "http", "timeout": "5s", "http": http}}})


# The Alertmanager that came to read an address from a file (its CHANGELOG.md, 0.26.0, "url_file" of webhooks).
SINCE = "0.26.0"
# Systems whose own is older, and which it is.
OLDER = {"debian-12": "0.25.0"}


def receiver_secret_files(server: MonitoringServer) -> dict[str, str | SecretCommand]:
    """`RECEIVER.token` and `RECEIVER.url` -> the operator's file or command that has it, in order."""
    found: dict[str, str | SecretCommand] = {}
    for name, one in sorted(server.receivers.items()):
        found |= {f"{name}.token": one.token_file} if one.token_file else {}
        found |= {f"{name}.url": one.url_file} if one.url_file else {}
    return found


def load_receiver_secret(name: str, source: SecretSource) -> str:
    """A receiver's token, or its address.

    Args:
        name: `RECEIVER.token` or `RECEIVER.url`.
        source: The file or command.

    Raises:
        ValueError: it cannot be read, or has no such thing; the text never repeats its content.
    """
    if name.endswith(".token"):
        return api_keys.load_api_key(source, "token")
    try:
        address: str = TypeAdapter(HttpUrlWithQuery).validate_python(api_keys.load_key_line(source))
    except ValidationError:
        raise ValueError("holds no address: one line, an http(s) URL (port up to 65535)") from None
    return address
