"""An inventory's keys of monitoring, and the monitoring server's scrape targets."""

import json
from pathlib import Path
from typing import Any

import pytest

from rigwright.inventory import load_rig
from rigwright.model.monitoring_schema import metrics_readers
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services, render_targets, secret_path, secrets_by_path
from tests.unit.samples import OperatorFolder, chat_instances, sample_entry

AT, ASKS = "192.0.2.7", "192.0.2.9"
TOLD: dict[str, object] = {"address": AT, "scrapers": [f"{ASKS}/32"]}
LAN = {"address": "0.0.0.0", "port": 8000, "keys": False}
TLS = {"address": AT, "port": 8443, "tls": True}


def server_entry(**changes: object) -> dict[str, object]:
    """The monitoring server, with some of what is declared of that changed."""
    return {"ssh_hostname": ASKS, "monitoring": {"address": ASKS, "server": changes}}


def exporter_entry(**changes: object) -> dict[str, object]:
    """A box that serves one instance behind a gateway, and tells."""
    return (
        sample_entry(instances=chat_instances(), gateway={"listeners": {"lan": LAN, "office": TLS}}, monitoring=TOLD)
        | changes
    )


def rigs(made: OperatorFolder, /, **entries: Any) -> dict[str, Rig]:
    """Those of an inventory."""
    return {name: load_rig(data["rig"]) for name, data in made.load_group(entries)}


def entry_problems(made: OperatorFolder, /, **entries: Any) -> list[str]:
    """The problems of one, without the file's name."""
    with pytest.raises(SystemExit) as ended:
        made.load_group(entries)
    return [line.removeprefix(f"{made.inventory}: ") for line in str(ended.value.code).splitlines()]


def scrape_jobs(rig: Rig) -> dict[str, list[dict[str, Any]]]:
    """The requests of Prometheus, by job."""
    return {Path(path).stem: json.loads(text) for path, text in render_targets(rig.roots, rig.scrape_targets).items()}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"address": "0.0.0.0"}, "address: '0.0.0.0' is refused: must be an IP address of the host, a single one"),
        ({"node_port": 8020}, "node_port: 8020 is already the port of instance chat: choose another"),
        ({"node_port": 8443}, "node_port: 8443 is already the port of the gateway's listener office: choose another"),
        ({"scrapers": ["192.0.2.9/24"]}, "scrapers[0]: '192.0.2.9/24' is refused: must be a network, 192.0.2.0/24"),
        ({"scraper": []}, 'scraper: unknown key; did you mean "scrapers"?'),
        ({"server": {"port": 9100}}, "must be a distinct port for each service: 9100 occurs twice"),
        (
            {"server": {"heartbeat_receiver": "ops"}},
            "must be a server whose heartbeat_receiver is one of its receivers: it has none",
        ),
        ({"server": {"retention_days": 0}}, "server.retention_days: 0 is refused"),
        ({"server": {"receivers": {"ops": {"url": "ftp://x"}}}}, "server.receivers.ops.url: 'ftp://x' is refused"),
        ({"server": {"receivers": {"ops": {}}}}, "must be either url or url_file"),
        ({"server": {"receivers": {"ops": {"url": "http://x", "url_file": "y"}}}}, "must be either url or url_file"),
        (
            {"server": {"alert_thresholds": {"ttft_p99_s": float("nan")}}},
            "server.alert_thresholds.ttft_p99_s: nan is refused",
        ),
    ],
    ids=lambda one: "" if isinstance(one, str) else str(one),
)
def test_an_impossible_value_is_refused_in_one_line(box: OperatorFolder, changes: dict[str, Any], line: str) -> None:
    (said,) = entry_problems(box, box=exporter_entry(monitoring=TOLD | changes))
    assert said.startswith("box.monitoring")
    assert line in said


def test_a_token_that_cannot_be_read_is_refused_before_a_host_is_touched(box: OperatorFolder) -> None:
    receivers = {"ops": {"url": "http://192.0.2.1/x", "token_file": "ops.token"}}
    path = box.folder / "ops.token"
    (said,) = entry_problems(box, watch=server_entry(receivers=receivers))
    assert said == f"watch.monitoring.server.receivers.ops.token_file: {path} does not exist"
    path.write_text("0123456789abcdef\n")
    (rig,) = rigs(box, watch=server_entry(receivers=receivers)).values()
    assert secrets_by_path(rig.inventory, rig.roots, rig.monitoring) == {
        secret_path(rig.roots, "ops.token"): "0123456789abcdef"
    }


@pytest.mark.parametrize("text", ["", "https://", "ftp://alerts.example.org/T0", "https://alerts.example.org/T0\nx"])
def test_an_address_that_cannot_be_is_refused_without_being_said(box: OperatorFolder, text: str) -> None:
    path = box.folder / "ops.url"
    path.write_text(f"{text}\n")
    (said,) = entry_problems(box, watch=server_entry(receivers={"ops": {"url_file": "ops.url"}}))
    wrong = "holds no address: one line, an http(s) URL (port up to 65535)"
    assert said == f"watch.monitoring.server.receivers.ops.url_file: {path} {wrong}"


def test_an_address_that_is_a_secret_is_a_credential_and_in_no_settings(box: OperatorFolder) -> None:
    secret = "https://alerts.example.org/T0/0123456789abcdef"
    (box.folder / "ops.url").write_text(f"{secret}\n")
    receivers = {"ops": {"url_file": "ops.url"}, "open": {"url": "http://192.0.2.1/x"}}
    (rig,) = rigs(box, watch=server_entry(receivers=receivers)).values()
    path = secret_path(rig.roots, "ops.url")
    assert secrets_by_path(rig.inventory, rig.roots, rig.monitoring) == {path: secret}
    (one,) = [one for one in monitoring_services(rig) if one.name == "alertmanager"]
    assert f"LoadCredential=ops.url:{path}" in one.unit.splitlines()
    (text,) = one.files.values()
    hooks = {made["name"]: made.get("webhook_configs") for made in json.loads(text.partition("\n")[2])["receivers"]}
    (ops,), (other,) = hooks["ops"], hooks["open"]
    assert ops["url_file"] == "/run/credentials/rigwright_alertmanager.service/ops.url"
    assert "url" not in ops
    assert other["url"] == "http://192.0.2.1/x"
    assert secret not in one.unit + text
    assert one.floor == "0.26.0"
    (rig,) = rigs(box, watch=server_entry(receivers={"open": receivers["open"]})).values()
    assert {one.name: one.floor for one in monitoring_services(rig)}["alertmanager"] == "0.25.0"


def test_a_box_that_does_not_let_in_the_one_that_asks_is_refused(box: OperatorFolder) -> None:
    (said,) = entry_problems(
        box, box=exporter_entry(monitoring={"address": AT, "scrapers": ["192.0.2.10/32"]}), watch=server_entry()
    )
    assert said == f"box.monitoring.scrapers: watch scrapes from {ASKS}, which is not allowed: add {ASKS}/32"


def test_one_box_of_an_inventory_asks_all(box: OperatorFolder) -> None:
    other = {"ssh_hostname": "192.0.2.10", "monitoring": {"address": "192.0.2.10", "server": {}}}
    lines = entry_problems(box, watch=server_entry(), other=other)
    assert lines[-1] == "other.monitoring.server: watch already asks all boxes of this inventory"


def test_scrape_targets_are_written_from_the_inventory(box: OperatorFolder) -> None:
    found = scrape_jobs(rigs(box, one=exporter_entry(), watch=server_entry())["watch"])
    assert [(row["targets"], row["labels"]["box"]) for row in found["node"]] == [
        ([f"{AT}:9100"], "one"),
        ([f"{ASKS}:9100"], "watch"),
    ]
    (engine,) = found["engine"]
    assert engine["targets"] == [f"{AT}:8000"]
    assert engine["labels"] == {
        **{"__metrics_path__": "/metrics/chat", "__scheme__": "http", "box": "one", "instance": "chat"},
        **{"kind": "llama.cpp", "model": "small", "variant": "llamacpp/cpu"},
    }
    assert [row["targets"] for row in found["probe"]] == [[f"http://{AT}:8000/health"], [f"https://{AT}:8443/health"]]
    alone = scrape_jobs(rigs(box, watch=server_entry())["watch"])
    assert alone["engine"] == alone["probe"] == []
    assert len(alone["node"]) == 1


@pytest.mark.parametrize(
    ("listener", "asked"), [(TLS, [([f"{AT}:8443"], "https")]), (LAN | {"address": "127.0.0.1"}, [])]
)
def test_a_gateway_is_scraped_by_the_scheme_of_a_listener_that_others_reach(box, listener, asked):
    one = exporter_entry(gateway={"listeners": {"office": listener}})
    found = scrape_jobs(rigs(box, one=one, watch=server_entry())["watch"])["gateway"]
    assert [(row["targets"], row["labels"]["__scheme__"]) for row in found] == asked


def test_clients_of_the_host_may_ask_its_gateway(box: OperatorFolder) -> None:
    gateway = {"listeners": {"lan": LAN}, "scrapers": ["192.0.2.10/32"]}
    found = rigs(box, one=exporter_entry(gateway=gateway), watch=server_entry())
    assert metrics_readers(found["one"].gateway, found["one"].monitoring) == ("192.0.2.10/32", f"{ASKS}/32", f"{AT}/32")


def test_host_data_that_names_others_than_the_inventory_is_refused(box: OperatorFolder) -> None:
    ((_, data),) = box.load_group({"watch": server_entry()})
    told: Any = data["rig"]
    told["watched"][0]["address"] = "0.0.0.0"
    with pytest.raises(Exception, match=r"watch\.watched"):
        load_rig(told)
