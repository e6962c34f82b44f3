"""Three boxes: one collects, from llama.cpp and vLLM on the others; receivers get the alert of each fault."""

import base64
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lab.hosts import HostSpec, LabHost
from lab.network import run_program
from lab.throwaway_lab import ThrowawayLab
from tests.hosts import vllm_box
from tests.hosts.conftest import ConvergedLayers
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.monitoring_box import (
    LAN,
    TOKEN,
    AlertWebhook,
    monitoring_entry,
    query_prometheus,
    serve_webhook,
    wait_until_shown,
)
from tests.hosts.support import CHAT, red_check_lines, run_deploy, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
WATCH, LLAMA, VLLM = "watch", "llama", "vllm"
NAME = "llm.example.org"
DISK = "/data"
MINUTES = 60.0
# One that has been taken over tells what it likes; `%s` is what it tells.
TAKEN_OVER = """
import http.server, socketserver
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(open("/var/tmp/told", "rb").read())
    def address_string(self):
        return "unix"
socketserver.UnixStreamServer("/run/rigwright/instances/chat/taken.sock", Answers).serve_forever()
"""
HOSTILE = '"} 1\n# EOF\n\\ {{ $labels.box }} \N{RIGHT-TO-LEFT OVERRIDE}<script>'
ESCAPED = HOSTILE.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
LABELLED = f'llamacpp:requests_processing{{box="{WATCH}",instance="other",model_name="{ESCAPED}"}} 7\n'


@contextmanager
def disk(host: LabHost) -> Iterator[None]:
    """Give a host a disk of its own, of 64 MiB at DISK, over a boot; its folder has to be among its `disks`."""
    image, place = host.folder / "disk.img", host.folder / "disks" / DISK.strip("/")
    host.kill()
    run_program("truncate", "-s", "64M", str(image))
    run_program("mkfs.ext4", "-q", str(image))
    run_program("mount", "-o", "loop", str(image), str(place))
    try:
        host.start()
        host.wait()
        yield
    finally:
        host.kill()
        run_program("umount", str(place))


def ended() -> str:
    """A certificate that ended an hour ago, and its key: PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=2))
    signed = made.not_valid_after(now - timedelta(hours=1)).sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (signed.public_bytes(Encoding.PEM) + private).decode()


def put(host: LabHost, text: str, *paths: str) -> None:
    """Write a text over files of a host."""
    packed = base64.b64encode(text.encode()).decode()
    host.run(f"for path in {shlex.join(paths)}; do echo {packed} | base64 -d > $path; done")


def report_metrics(host: LabHost, text: str) -> None:
    """Have an engine that has been taken over tell something: more of it than fits into an argument."""
    (host.folder / "root/var/tmp/told").write_text(text)


def deploy_converged(inventory: Path) -> None:
    """Deploy, and assert that nothing is left to do."""
    run = run_deploy(inventory)
    assert run.status == 0, run.said[-4000:]
    assert run_deploy(inventory).changed_operations == []


def ask_status(host: LabHost, model: str, **more: object) -> int:
    """The gateway's status for a request for a model."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello?"}], "max_tokens": 8, **more}
    return requests.post(f"http://{host.address}:8000/v1/chat/completions", json=body, timeout=120).status_code


@dataclass(frozen=True)
class MonitoredBoxes:
    """The boxes, and the receiver of alerts."""

    ground: vllm_box.VllmServers
    folder: Path
    hosts: dict[str, LabHost]
    told: AlertWebhook

    def inventory(self, *names: str) -> Path:
        """The inventory with some of the boxes."""
        asking = f"{self.hosts[WATCH].address}/32"
        entries: dict[str, dict[str, object]] = {}
        for name in names:
            host = self.hosts[name]
            entry = {**host.inventory_keys, "monitoring": {"address": host.address, "scrapers": [asking]}}
            if name == WATCH:
                asked = monitoring_entry(self.ground.lab, self.told)
                asked["receivers"]["ops"] = {"url_file": "ops.url", "token_file": "ops.token"}
                entry["monitoring"] = {"address": host.address, "server": asked}
            else:
                office = {"address": host.address, "port": 8443, "tls": True, "names": [NAME]}
                entry["gateway"] = {"listeners": {"lan": LAN, "office": office}}
                entry["instances"] = CHAT if name == LLAMA else vllm_box.INSTANCES
                entry["mirrors"] = {"shelf": [self.ground.lab.shelf_url], **self.ground.source.inventory_mirrors}
            entries[name] = entry
        path = vllm_box.write_vllm_inventory(self.folder, self.hosts[VLLM], self.ground)
        path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
        return path

    def query(self, expression: str) -> list[dict[str, dict[str, str]]]:
        """Prometheus' answer."""
        return query_prometheus(self.hosts[WATCH], expression)

    def hears(self, *boxes: str) -> None:
        """Wait until all of these boxes, and no others, are asked, and answer in all that they are asked for."""
        served = {(box, job) for box in boxes if box != WATCH for job in ("gateway", "engine", "probe")}
        wanted = served | {(box, "node") for box in boxes} | {("", "alertmanager"), ("", "blackbox")}
        found: dict[tuple[str, str], str] = {}

        def look() -> bool:
            url = f"http://{self.hosts[WATCH].address}:9090/api/v1/targets?state=active"
            with suppress(requests.RequestException):
                rows = requests.get(url, timeout=10).json()["data"]["activeTargets"]
                found.clear()
                found.update(
                    ((one["labels"].get("box", ""), one["labels"]["job"]), one["lastError"] or one["health"])
                    for one in rows
                )
            return found.keys() == wanted and set(found.values()) == {"up"}

        try:
            wait_until(look, f"all of {boxes} answer", 5 * MINUTES)
        except AssertionError as error:
            raise AssertionError(f"{error}: {found}") from None

    def shows(self, lacking: str) -> None:
        """Wait until every panel shows something but those of a pattern, while vLLM is asked again and again."""

        def meanwhile() -> None:
            if self.hosts[VLLM].is_reachable():
                assert ask_status(self.hosts[VLLM], "tiny", stream=True) == 200

        wait_until_shown(self.hosts[WATCH], lacking, meanwhile)

    def firing(self, alert: str, **labels: str) -> None:
        """Wait until a receiver gets it."""
        wait_until(
            lambda: self.told.alert_states("/ops", alert, **labels)[-1:] == ["firing"], f"told of {alert}", 10 * MINUTES
        )

    def resolved(self, alert: str, **labels: str) -> None:
        """Wait until a receiver learns that it is over."""
        wait_until(
            lambda: self.told.alert_states("/ops", alert, **labels)[-1:] == ["resolved"], f"{alert} over", 6 * MINUTES
        )


@pytest.fixture
def room(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, vllm: vllm_box.VllmServers, tmp_path: Path
) -> Iterator[MonitoredBoxes]:
    """Hosts of which nothing is declared yet but what one of them serves."""
    (tmp_path / "ops.token").write_text(f"{TOKEN}\n")
    specs = [
        HostSpec(WATCH, release),
        HostSpec(LLAMA, release, (first_run.layer,), disks=(DISK,)),
        HostSpec(VLLM, release, (*vllm.host_layers, first_run.layer)),
    ]
    hosts = {host.name: host for host in lab.up(specs)}
    try:
        with serve_webhook(lab.gateway) as told, disk(hosts[LLAMA]):
            (tmp_path / "ops.url").write_text(f"http://{lab.gateway}:{told.port}/ops\n")
            yield MonitoredBoxes(vllm, tmp_path, hosts, told)
    finally:
        for host in hosts.values():
            host.destroy()


def test_one_box_asks_two_others_and_tells_of_each_fault(room: MonitoredBoxes) -> None:
    watch, llama, vllm = room.hosts.values()
    deploy_converged(room.inventory(WATCH, LLAMA))
    room.hears(WATCH, LLAMA)
    every = room.inventory(WATCH, LLAMA, VLLM)
    deploy_converged(every)
    room.ground.save_environment(vllm)
    room.hears(WATCH, LLAMA, VLLM)
    assert red_check_lines(every) == {}

    # an undeclared client is refused everywhere, on this machine and on a monitored box
    refused = f"curl -s -m 3 http://{llama.address}:9100/metrics || echo refused"
    assert vllm.run(refused) == "refused\n"
    assert "node_load1 " in watch.run(refused)
    with pytest.raises(requests.RequestException):
        requests.get(f"http://{vllm.address}:9100/metrics", timeout=3)
    assert requests.get(f"http://{vllm.address}:8000/metrics/chat", timeout=10).status_code == 403

    # a drift, seen read-only, for a check
    vllm.run("systemctl -q disable rigwright_node")
    assert run_rigwright("check", str(every), "--limit", VLLM).returncode == 1
    room.firing("CheckRed", box=VLLM, check="Q01", part="node")
    vllm.run("systemctl -q enable rigwright_node")
    assert run_rigwright("check", str(every), "--limit", VLLM).returncode == 0

    # an engine that stands still, a disk that is full, a certificate that has ended; and a box that is off
    llama.run("systemctl kill --signal=STOP rigwright-chat.service")
    llama.run(f"dd if=/dev/zero of={DISK}/full bs=1M status=none || true")
    tls = "/run/rigwright_gateway/tls/office"
    put(llama, ended(), f"{tls}.crt", f"{tls}.key")
    llama.run("kill -HUP $(systemctl show -P MainPID rigwright_gateway)")
    assert ask_status(vllm, HOSTILE) == 400
    room.shows("DCGM_|ALERTS")
    room.resolved("CheckRed", box=VLLM, check="Q01")
    others = [room.told.alert_states("/ops", alert, box=VLLM) for alert in ("InstanceDown", "GatewayDown")]
    vllm.kill()
    for alert, labels in (
        ("InstanceDown", {"box": LLAMA, "instance": "chat"}),
        ("BoxGone", {"box": VLLM}),
        ("DiskFull", {"box": LLAMA, "mountpoint": DISK}),
        ("CertificateEnds", {"box": LLAMA, "door": f"{llama.address}:8443"}),
    ):
        room.firing(alert, **labels)
    assert [room.told.alert_states("/ops", alert, box=VLLM) for alert in ("InstanceDown", "GatewayDown")] == others
    room.shows("^(?!.*ALERTS)")
    llama.run("systemctl kill --signal=CONT rigwright-chat.service")
    llama.run(f"rm {DISK}/full; systemctl reload rigwright_gateway")
    vllm.start()
    vllm.wait()
    for alert, box in (("InstanceDown", LLAMA), ("DiskFull", LLAMA), ("CertificateEnds", LLAMA), ("BoxGone", VLLM)):
        room.resolved(alert, box=box)
    assert {by for at, by, _ in room.told.calls if at == "/ops"} == {f"Bearer {TOKEN}"}
    secret = "/etc/rigwright/credentials/monitoring-ops.url"
    assert watch.run(f"grep -rlsaF -f {secret} /etc/rigwright/monitoring /etc/systemd /var/log || true") == ""
    room.hears(WATCH, LLAMA, VLLM)

    # an engine that has been taken over tells what it likes
    put(llama, TAKEN_OVER, "/run/taken.py")
    report_metrics(llama, LABELLED)
    llama.run(
        "systemd-run -q --unit=taken python3 /run/taken.py; cd /run/rigwright/instances/chat; "
        "until [ -S taken.sock ]; do sleep 0.1; done; chmod 666 taken.sock; "
        "ln -sfn $PWD/taken.sock /run/rigwright/gateway/chat"
    )
    mine = f'llamacpp:requests_processing{{box="{LLAMA}",instance="chat",exported_box="{WATCH}"}}'
    (row,) = wait_until(lambda: room.query(mine), "what it tells is heard")
    assert row["metric"]["model_name"] == HOSTILE
    assert {one["metric"]["box"] for one in room.query("rig:running")} == {LLAMA, VLLM}
    for said in (
        LABELLED.rstrip('"} 7\n'),
        "".join(f'x{{n="{n}"}} 1\n' for n in range(10_001)),
        f'x{{n="{"n" * 600}"}} 1\n',
    ):
        report_metrics(llama, said)
        wait_until(lambda: len(room.query("up == 0")) == 1, "what it tells is not heard")
        (silent,) = room.query("up == 0")
        assert (silent["metric"]["job"], silent["metric"]["box"]) == ("engine", LLAMA)
        report_metrics(llama, LABELLED)
        wait_until(lambda: room.query("up == 0") == [], "it is heard again")
    llama.run("systemctl stop taken; systemctl restart rigwright-chat")

    watch.reboot()
    room.hears(WATCH, LLAMA, VLLM)
    assert run_deploy(every).changed_operations == []
    assert red_check_lines(every) == {}

    deploy_converged(room.inventory(WATCH, LLAMA))
    room.hears(WATCH, LLAMA)
    assert run_rigwright("remove", str(room.inventory(WATCH, LLAMA, VLLM)), "--yes").returncode == 0
    for host in room.hosts.values():
        assert host.run("ls /etc/systemd/system | grep -c rigwright || true").strip() == "0"
        assert host.run("dpkg-query -W -f '${db:Status-Abbrev}\\n' '*prometheus*' | grep -c ^ii || true").strip() == "0"
