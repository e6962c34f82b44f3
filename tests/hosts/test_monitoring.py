"""Monitoring of a box: targets answer, a receiver gets the alert of a fault, and no trace of the fault is left."""

import base64
import json
from pathlib import Path

import pytest
import requests

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.monitoring import config_files
from rigwright.monitoring.monitoring_units import unit_name
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.driver_box import C3090, NAMES
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.monitoring_box import (
    TOKEN,
    AlertWebhook,
    all_targets_answer,
    host_entry,
    monitoring_entry,
    query_prometheus,
    serve_webhook,
    wait_until_shown,
)
from tests.hosts.support import (
    check_results,
    deploy,
    main_pid,
    on_both,
    red_check_lines,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
    write_inventory,
)
from tests.unit.test_monitoring_rules import SERVER, cases_of_rules

# our packages, units and settings on the host, and the files that the packages' own scripts make
TRACES = (
    "ls -d /etc/prometheus /var/lib/prometheus /var/log/prometheus /etc/rigwright/monitoring /etc/default/prometheus* "
    "/var/lib/rigwright/monitoring /var/lib/rigwright/metrics /etc/systemd/system/*prometheus* /etc/rc?.d/*prometheus* "
    "/etc/systemd/system/multi-user.target.wants/*rometheus* /etc/systemd/system/rigwright_* 2>/dev/null; "
    "dpkg-query -W '*prometheus*' 2>/dev/null; getent passwd | grep -E 'prometheus|rigwright_'; "
    "getent group | grep -E 'prometheus|rigwright_'; ss -Hltn | awk '{ print $4 }' | sort"
)
MINUTES = 60.0
ALERTS = "http://127.0.0.1:9093/api/v2/alerts"
# Cards, vLLM's own, alerts that fire, and disks: a throwaway host's root is an overlay, which is no disk.
LACKING = "DCGM_|vllm:|rig:ttft|ALERTS|node_filesystem"


def listening(host: LabHost) -> set[str]:
    """The listeners of monitoring, and their addresses."""
    rows = [line.split() for line in host.run("ss -Hltnp").splitlines()]
    return {row[3] for row in rows if "prometheus" in row[-1]}


def run_promtool(host: LabHost) -> None:
    """Have the host's own promtool judge our rules by their cases: a developer's machine may have none."""
    host.run("mkdir /root/rules")
    for name, text in (
        ("rules.yml", config_files.render_rules(SERVER, "# ours")),
        ("tests.yml", json.dumps(cases_of_rules())),
    ):
        packed = base64.b64encode(text.encode()).decode()
        host.run(f"echo {packed} | base64 -d > /root/rules/{name}")
    host.run("cd /root/rules && promtool test rules tests.yml && rm -r /root/rules")


def answer(host: LabHost) -> str:
    """The model's answer through the gateway."""
    asked = {"model": "tiny-rig", "messages": [{"role": "user", "content": "Are you there?"}]}
    url = f"http://{host.address}:8000/v1/chat/completions"
    assert "data: [DONE]" in requests.post(url, json={**asked, "stream": True}, timeout=60).text
    said = requests.post(url, json=asked, timeout=60)
    return str(said.json()["choices"][0]["message"]["content"]).strip()


def listening_when_declared(host: LabHost) -> set[str]:
    """The sockets of a box that tells and asks."""
    return {f"{host.address}:9100", f"{host.address}:9090", "127.0.0.1:9093", "127.0.0.1:9115"}


def test_a_box_is_watched_as_declared_and_nothing_of_it_stays(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    before = converged.run(TRACES, check=False)
    (tmp_path / "ops.token").write_text(f"{TOKEN}\n")
    with serve_webhook(lab.gateway) as told:
        inventory = write_inventory(tmp_path, lab, converged, **host_entry(lab, converged, told))
        planned = run_plan(inventory).planned_operations
        assert deploy(inventory).changed_operations == planned
        assert run_deploy(inventory).changed_operations == run_plan(inventory).planned_operations == []
        assert listening(converged) == listening_when_declared(converged)
        wait_until(all_targets_answer(converged), "every target answers")
        (engine,) = query_prometheus(converged, 'up{job="engine"}')
        assert {key: engine["metric"][key] for key in ("box", "instance", "variant", "model", "kind")} == {
            **{"box": "box", "instance": "chat", "variant": "llamacpp/demo", "model": "tiny-rig"},
            "kind": "llama.cpp",
        }
        wait_until(
            lambda: query_prometheus(converged, 'rig:running{instance="chat"}'),
            "what is worked out of the engine's figures",
        )

        # an undeclared client is refused
        with pytest.raises(requests.RequestException):
            requests.get(f"http://{converged.address}:9100/metrics", timeout=3)
        assert requests.get(f"http://{converged.address}:8000/metrics", timeout=10).status_code == 403
        with pytest.raises(requests.RequestException):
            requests.get(f"http://{converged.address}:9093/", timeout=3)

        run_promtool(converged)

        wait_until(lambda: told.alert_states("/dead", "Alive"), "told that it works")
        assert red_check_lines(inventory) == {}
        assert answer(converged) == ANSWER
        # an alert reaches the operator with the declared token, and the token is in no unit, log or argument
        active = [{"labels": {"alertname": "Made", "severity": "warning", "box": "other"}}]
        converged.run(f"curl -sf -H 'Content-Type: application/json' -d '{json.dumps(active)}' {ALERTS}")
        wait_until(lambda: told.alert_states("/ops", "Made") == ["firing"], "an alert is delivered")
        keeps_the_token(converged, told)
    assert run_rigwright("remove", str(inventory), "--yes").returncode == 0
    gone = converged.run(TRACES, check=False)
    # its objects from before monitoring were ours, too, but for these
    assert gone.splitlines() == [
        line for line in before.splitlines() if "rigwright_" not in line and not line.endswith((":8020", ":8000"))
    ]


def keeps_the_token(host: LabHost, told: AlertWebhook) -> None:
    """Assert that calls have the token of their receiver, and that the host has it in its own file alone."""
    assert {by for at, by, _ in told.calls if at == "/ops"} == {f"Bearer {TOKEN}"}
    assert {by for at, by, _ in told.calls if at == "/dead"} == {""}
    assert not told.alert_states("/ops", "Alive")
    files = "/etc/rigwright/monitoring /etc/systemd/system /run/rigwright /var/log /proc/[0-9]*/cmdline"
    # from its file: else what looks for it has it among its own arguments
    held = "/etc/rigwright/credentials/monitoring-ops.token"
    assert host.run(f"cat {held}").strip() == TOKEN
    assert host.run(f"grep -rlsaF -f {held} {files} || true") == ""


@pytest.mark.all_only
def test_silent_targets_are_known_and_undeclared_ones_go(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    (tmp_path / "ops.token").write_text(f"{TOKEN}\n")
    with serve_webhook(lab.gateway) as told:
        inventory = write_inventory(tmp_path, lab, converged, **host_entry(lab, converged, told))
        deploy(inventory)
        assert red_check_lines(inventory) == {}
        wait_until(lambda: query_prometheus(converged, "rigwright_check_finished_seconds"), "verdicts are known")
        assert query_prometheus(converged, 'rigwright_checks{verdict="ok"} > 100')

        assert answer(converged) == ANSWER
        wait_until_shown(converged, LACKING, lambda: answer(converged))

        # that an alert fires and resolves is test_monitoring_boxes.py's
        converged.run("systemctl kill --signal=STOP rigwright-chat.service")
        silent = "the engine has answered no scrape for two minutes, the window of Q06"
        wait_until(lambda: query_prometheus(converged, 'max_over_time(up{job="engine"}[2m]) == 0'), silent, 4 * MINUTES)
        (heard,) = check_results(inventory, "--only", "Q06")
        assert (heard["verdict"], heard["found"]) == ("fail", "engine of box")
        converged.run("systemctl kill --signal=CONT rigwright-chat.service")

        converged.reboot()
        wait_until(all_targets_answer(converged), "every target answers after a boot")
        wait_until(lambda: red_checks(inventory) == set(), "as declared after a boot")
        assert run_deploy(inventory).changed_operations == []
        assert listening(converged) == listening_when_declared(converged)

        quiet = write_inventory(tmp_path / "quiet", lab, converged)
        deploy(quiet)
        assert run_deploy(quiet).changed_operations == []
        assert red_checks(quiet) == set()
        assert listening(converged) == set()
        assert (
            converged.run("ls /var/lib/rigwright/monitoring /etc/rigwright/monitoring 2>&1 || true").count("No such")
            == 2
        )
        deploy(inventory)


@pytest.mark.all_only
@on_both
def test_a_machine_that_serves_nothing_asks(lab: ThrowawayLab, boot: BootHost, release: str, tmp_path: Path) -> None:
    host = boot()
    before = host.run(TRACES, check=False)
    (tmp_path / "ops.token").write_text(f"{TOKEN}\n")
    with serve_webhook(lab.gateway) as told:
        server = monitoring_entry(lab, told)
        open_address = {"address": host.address, "server": server}
        inventory = write_inventory(tmp_path, lab, host, instances={}, monitoring=open_address)
        (tmp_path / "dead.url").write_text(f"{server['receivers']['dead']['url']}\n")
        receivers = server["receivers"] | {"dead": {"url_file": "dead.url"}}
        secret = {"address": host.address, "server": server | {"receivers": receivers}}
        if release == "debian-12":
            run = run_deploy(write_inventory(tmp_path, lab, host, instances={}, monitoring=secret))
            assert run.status != 0
            assert "dead.url_file needs Alertmanager 0.26.0, and debian-12 has 0.25.0" in run.said
            assert host.run(TRACES, check=False) == before
            inventory = write_inventory(tmp_path, lab, host, instances={}, monitoring=open_address)
        else:
            inventory = write_inventory(tmp_path, lab, host, instances={}, monitoring=secret)
        run = deploy(inventory)
        assert run_deploy(inventory).changed_operations == []
        run_promtool(host)
        wait_until(lambda: told.alert_states("/dead", "Alive"), "told that it works")
        assert red_check_lines(inventory) == {}
        host.reboot()
        heard = len(told.calls)
        wait_until(lambda: len(told.calls) > heard, "told so after a boot")
        assert run_deploy(inventory).changed_operations == []
    assert run_rigwright("remove", str(inventory), "--yes").returncode == 0
    assert host.run(TRACES, check=False) == before


@pytest.mark.all_only
def test_a_box_with_cards_tells_of_them(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    """Without a driver: metrics of real cards need real ones."""
    host = boot(first_run.layer, cards=(C3090, C3090))
    monitoring = {"address": host.address, "scrapers": [f"{lab.gateway}/32"]}
    inventory = write_inventory(tmp_path, lab, host, cards=[NAMES[C3090]] * 2, monitoring=monitoring)
    planned = run_plan(inventory).planned_operations
    assert deploy(inventory).changed_operations == planned
    assert run_deploy(inventory).changed_operations == []
    said = requests.get(f"http://{host.address}:9400/metrics", timeout=10).text
    assert "rigwright_gpus_declared 2.0" in said.splitlines()
    assert int(host.run(f"ps -o rss= -p {main_pid(host, unit_name('gpu'))}")) < 21 * 1024
    ours = check_results(inventory, "--only", "Q01,Q02,Q03,Q04,Q07")
    assert {f"{one['id']} {one['part']} {one['found']}" for one in ours if one["verdict"] == "fail"} == set()
    assert {one["part"] for one in ours} == {"", "node", "gpu"}
