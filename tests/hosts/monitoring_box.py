"""A host that exports metrics and collects them, and the receiver of its alerts: a webhook of the test's own."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.dashboards import PAGES
from tests.hosts.support import wait_until

TOKEN = "0123456789abcdef-watched"


@dataclass
class AlertWebhook:
    """The calls of a webhook: path, Authorization, and Alertmanager's JSON of each."""

    port: int = 0
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def alert_states(self, path: str, alert: str, **labels: str) -> list[str]:
        """The states at a path of an alert with some labels, in order: firing, or resolved."""
        wanted = {"alertname": alert, **labels}
        return [
            one["status"]
            for at, _, body in list(self.calls)
            if at == path
            for one in body["alerts"]
            if wanted.items() <= one["labels"].items()
        ]


@contextmanager
def serve_webhook(address: str) -> Iterator[AlertWebhook]:
    """Listen for what Alertmanager tells while the block runs."""
    told = AlertWebhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.calls.append((self.path, self.headers.get("Authorization", ""), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer((address, 0), Handler)
    told.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()


INTERVAL = 5
"""Seconds between two scrapes: before the next one nothing else is shown."""
LAN = {"address": "0.0.0.0", "port": 8000, "keys": False}


def monitoring_entry(lab: ThrowawayLab, told: AlertWebhook) -> dict[str, Any]:
    """The declaration of a monitoring server: this machine may ask it, and gets its alerts."""
    at = f"http://{lab.gateway}:{told.port}"
    receivers = {"ops": {"url": f"{at}/ops", "token_file": "ops.token"}, "dead": {"url": f"{at}/dead"}}
    allow = [f"{lab.gateway}/32"]
    return {"allow": allow, "interval_s": INTERVAL, "size_gb": 1, "receivers": receivers, "heartbeat_receiver": "dead"}


def host_entry(lab: ThrowawayLab, host: LabHost, told: AlertWebhook, **server: object) -> dict[str, object]:
    """The declaration of the host's metrics and requests, and its gateway."""
    return {
        "gateway": {"listeners": {"lan": LAN}},
        "monitoring": {"address": host.address, "server": monitoring_entry(lab, told) | server},
    }


def query_prometheus(host: LabHost, expression: str) -> list[dict[str, Any]]:
    """Prometheus' answer, from where it is allowed to be asked."""
    url = f"http://{host.address}:9090/api/v1/query"
    found = requests.get(url, params={"query": expression}, timeout=10).json()
    assert found["status"] == "success", found
    rows: list[dict[str, Any]] = found["data"]["result"]
    return rows


def empty_panels(host: LabHost, lacking: str) -> list[str]:
    """Panels of dashboards that have nothing to show, but those whose figures are not to be had there: a pattern."""
    return [
        f"{name}: {graph.title}"
        for name, (_, _, graphs) in PAGES.items()
        for graph in graphs
        if not re.search(lacking, graph.expr)
        and all(
            row["value"][1] == "NaN"
            for row in query_prometheus(host, graph.expr.replace("$box", ".*").replace("$instance", ".*"))
        )
    ]


def wait_until_shown(host: LabHost, lacking: str, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Wait until every panel shows something but those of a pattern, while something is done again and again.

    Raises AssertionError with the names of those that do not.
    """
    found: list[str] = []

    def look() -> bool:
        meanwhile()
        found[:] = empty_panels(host, lacking)
        return not found

    try:
        wait_until(look, "every panel that this host has something for shows it", every=INTERVAL)
    except AssertionError as error:
        raise AssertionError(f"{error}: {found}") from None


def all_targets_answer(host: LabHost) -> Callable[[], bool]:
    """Whether Prometheus has all of its targets, and each of them answers."""

    def look() -> bool:
        try:
            rows = query_prometheus(host, "up")
        except requests.RequestException:
            return False
        jobs = {row["metric"]["job"] for row in rows}
        return jobs == {"alertmanager", "blackbox", "node", "gateway", "engine", "probe"} and all(
            row["value"][1] == "1" for row in rows
        )

    return look
