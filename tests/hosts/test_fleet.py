"""Two hosts behind one address: the gateway of the first also uses an instance of the second, which has no clients."""

import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.gateway.certificate_authority import (
    FOLDER,
    Authority,
    certificate_now,
    ensure_authority,
    temporary_authority,
)
from rigwright.gateway.certificate_revocations import record_issued
from rigwright.gateway.certificates import CertificatePair
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name
from tests.hosts.gateway_box import LAN, LOG, QUESTION, run_rigwright
from tests.hosts.steady_load import run_load
from tests.hosts.support import PORT, deploy, red_checks, run_deploy, run_plan, wait_until

# two hosts, a deploy of both and the loss of one take minutes
pytestmark = pytest.mark.all_only
FLEET_PORT = 8555
MODEL = "tiny-rig"


@dataclass(frozen=True)
class TwoBoxes:
    """The hosts, and their operator's folder."""

    lab: ThrowawayLab
    one: LabHost
    two: LabHost
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "fleet.py"

    @property
    def url(self) -> str:
        """The address of clients."""
        return f"http://{self.one.inventory_keys['ssh_hostname']}:{LAN}/v1/chat/completions"

    @property
    def lender(self) -> str:
        return str(self.two.inventory_keys["ssh_hostname"])

    def declare(self, memory: str = "50%") -> None:
        """Write the inventory; another memory limit makes another unit on the second host."""
        chat: dict[str, Any] = {"variant": "llamacpp/demo-wheel", "port": PORT}
        gateway = {
            "listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}},
            "models": {MODEL: {"instances": ["chat", "two/chat"]}},
            "drain": 30,
        }
        shelf = {"mirrors": {"shelf": [self.lab.shelf_url]}}
        entries = {
            "one": {**self.one.inventory_keys, **shelf, "instances": {"chat": chat}, "gateway": gateway},
            "two": {
                **self.two.inventory_keys,
                **shelf,
                "instances": {"chat": {**chat, "memory_max": memory}},
                "fleet": {"address": self.lender, "port": FLEET_PORT},
            },
        }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")

    def answered_by(self) -> list[str]:
        """The instance of each request that the first host's gateway logged."""
        lines = [json.loads(line) for line in self.one.run(f"cat {LOG}").splitlines()]
        return [one["instance"] for one in lines if one["status"] == 200 and one["instance"]]

    def health(self) -> dict[str, str]:
        """The state of each instance, as clients read it."""
        said = requests.get(f"{self.url.partition('/v1')[0]}/health", timeout=10).json()
        return dict(said["models"][MODEL]["instances"])


@pytest.fixture(scope="module")
def boxes(lab: ThrowawayLab, release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBoxes]:
    one, two = lab.up([HostSpec(f"fl{number}{release[-2:]}", release) for number in (1, 2)])
    made = TwoBoxes(lab, one, two, tmp_path_factory.mktemp("fleet"))
    made.declare()
    planned = run_plan(made.inventory).planned_operations
    assert deploy(made.inventory).changed_operations == planned
    yield made
    for host in (one, two):
        host.destroy()


def ask(boxes: TwoBoxes, **more: object) -> requests.Response:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 4, **more}
    return requests.post(boxes.url, json=body, timeout=60)


def test_both_boxes_answer_and_are_as_declared(boxes: TwoBoxes) -> None:
    wait_until(lambda: boxes.health() == {"chat": "ok", "two/chat": "ok"}, "both are ready")
    for _ in range(12):
        assert ask(boxes).status_code == 200
    assert set(boxes.answered_by()) == {"chat", "two/chat"}
    assert run_deploy(boxes.inventory).changed_operations == []
    assert red_checks(boxes.inventory) == set()
    said = run_rigwright("status", str(boxes.inventory)).stdout
    assert "two/chat" in said, said
    planned = run_rigwright("plan", str(boxes.inventory)).stdout
    assert f"two/chat at {boxes.lender}:{FLEET_PORT}" in planned, planned
    # the second box has no keys of clients, and nothing of the authority but its certificate
    assert boxes.two.run("ls /etc/rigwright/credentials").split() == ["chat.api-key", "gateway-_fleet.pem"]
    for host in (boxes.one, boxes.two):
        assert host.run("find / -xdev -name 'ca.key' -print") == ""


def test_a_box_that_keeps_its_instance_out_is_asked_where_there_is_no_other(boxes: TwoBoxes) -> None:
    def ask_several() -> tuple[set[int], set[str]]:
        before = len(boxes.answered_by())
        return {ask(boxes).status_code for _ in range(6)}, set(boxes.answered_by()[before:])

    folder = "/run/rigwright/rotation"
    boxes.two.run(f"touch {folder}/chat.last")
    assert ask_several() == ({200}, {"chat"})
    boxes.one.run(f"touch {folder}/chat")
    assert ask_several() == ({200}, {"two/chat"})
    # one that is of no use gets no request, even if there is no other
    boxes.two.run(f"mv {folder}/chat.last {folder}/chat")
    assert ask_several() == ({503}, set())
    for host in (boxes.one, boxes.two):
        host.run(f"rm {folder}/chat")
    wait_until(lambda: boxes.health() == {"chat": "ok", "two/chat": "ok"}, "both are ready")


def fleet_client(folder: Path, boxes: TwoBoxes, authority: Authority | None, name: str) -> ssl.SSLContext:
    """The TLS context of a client of the fleet's port; without certificates where it has no authority."""
    context = ssl.create_default_context(cadata=(boxes.folder / FOLDER / "ca.crt").read_text())
    context.check_hostname = False
    if authority:
        pair = authority.issue((name,), certificate_now(), is_client=True)
        file = folder / f"{name}.pem"
        file.write_text(pair.certificates + pair.key)
        context.load_cert_chain(file)
    return context


def fleet_answer(boxes: TwoBoxes, context: ssl.SSLContext, method: str, path: str) -> tuple[int, str]:
    """Status and text of an answer of the second box's port; 0 where it ends the connection without one."""
    connection = HTTPSConnection(boxes.lender, FLEET_PORT, context=context, timeout=30)
    body = json.dumps({"model": MODEL, "messages": QUESTION, "max_tokens": 2}) if method == "POST" else None
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


CHAT = "/chat/v1/chat/completions"


def test_only_declared_gateways_get_in_and_reach_only_what_is_lent(boxes: TwoBoxes, tmp_path: Path) -> None:
    ours = ensure_authority(boxes.folder / FOLDER, certificate_now())
    foreign = temporary_authority(datetime.now(timezone.utc).replace(microsecond=0))
    for what, authority, name in (
        ("no certificate", None, ""),
        ("another CA", foreign, front_certificate_name("one")),
        ("a box that is no gateway of this one", ours, front_certificate_name("three")),
        ("a certificate of a listener's name", ours, "one"),
    ):
        folder = tmp_path / what.replace(" ", "-")
        folder.mkdir()
        status, said = fleet_answer(boxes, fleet_client(folder, boxes, authority, name), "POST", CHAT)
        assert status == 0, (what, status, said)
    known = fleet_client(tmp_path, boxes, ours, front_certificate_name("one"))
    assert fleet_answer(boxes, known, "POST", CHAT)[0] == 200
    for method, path in (
        *(("GET", one) for one in ("/", "/health", "/metrics", "/state", "/chat", "/chat/metrics", "/chat/v1/models")),
        *(("GET", one) for one in ("/../../etc/passwd", "/chat/v1/../../../gateway-keys.json", CHAT)),
        *(("POST", one) for one in ("/other/v1/chat/completions", "/v1/chat/completions", "/chat/tokenize")),
        *(
            ("POST", one)
            for one in (f"{CHAT}?a=b", "/chat/v1/load_lora_adapter", "/leave/chat", "/gone/0123456789abcdef")
        ),
    ):
        status, said = fleet_answer(boxes, known, method, path)
        assert status == 0, (method, path, status, said)
    reasons = {
        line["refusal"] for line in map(json.loads, boxes.two.run(f"cat {LOG}").splitlines()) if "refusal" in line
    }
    assert reasons >= {
        "client certificate: NONE",
        "this gateway is not declared to use instances of this box",
        "no gateway uses this here",
    }


def test_a_port_that_is_open_and_a_certificate_of_another_ca_are_red(boxes: TwoBoxes, tmp_path: Path) -> None:
    conf = "/etc/rigwright/current/gateway/nginx.conf"
    boxes.two.run(
        f"cp {conf} /root/kept.conf; sed -i 's/ssl_verify_client on/ssl_verify_client optional/; "
        f'/rw_front {{/,/}}/ s/default ""/default {front_certificate_name("one")}/\' {conf}; '
        f"kill -HUP $(systemctl show -P MainPID rigwright_gateway); sleep 1; cat /root/kept.conf > {conf}"
    )
    assert "D15" in red_checks(boxes.inventory)
    boxes.two.run("systemctl reload rigwright_gateway")
    pair = temporary_authority(certificate_now()).issue((lender_certificate_name("two"),), certificate_now())
    boxes.two.run(f"cat > /etc/rigwright/credentials/gateway-_fleet.pem <<'END'\n{pair.text}END")
    assert "D16" in red_checks(boxes.inventory)
    deploy(boxes.inventory)
    assert red_checks(boxes.inventory) == set()


def test_a_revoked_certificate_opens_no_port_after_a_deploy(boxes: TwoBoxes, tmp_path: Path) -> None:
    folder = boxes.folder / FOLDER
    ours = ensure_authority(folder, certificate_now())
    stolen = fleet_client(tmp_path, boxes, ours, front_certificate_name("one"))
    record_issued(folder, CertificatePair((tmp_path / f"{front_certificate_name('one')}.pem").read_text(), ""))
    assert fleet_answer(boxes, stolen, "POST", CHAT)[0] == 200
    said = run_rigwright("key", "ca", str(boxes.inventory), "--revoke", "one").stdout
    # the stolen one, and that of the box itself
    assert said.startswith("Revoked 2 certificates of one."), said
    assert red_checks(boxes.inventory) == {"D16"}
    deploy(boxes.inventory)
    assert red_checks(boxes.inventory) == set()
    assert fleet_answer(boxes, stolen, "POST", CHAT)[0] == 0
    before = len(boxes.answered_by())
    wait_until(lambda: ask(boxes).ok and "two/chat" in boxes.answered_by()[before:], "the boxes accept each other")


def test_a_deploy_of_the_second_box_costs_no_request(boxes: TwoBoxes) -> None:
    with run_load(boxes.url, (MODEL,)) as load:
        boxes.declare(memory="45%")
        run = deploy(boxes.inventory, "--yes", "--limit", "two")
        assert "Serving | Activate generation" in run.changed_operations
        before = len(boxes.answered_by())
        wait_until(lambda: "two/chat" in boxes.answered_by()[before:], "the second box is asked again")
    assert load.wrong == []
    assert load.told == []


def test_the_loss_of_the_second_box_costs_no_request(boxes: TwoBoxes) -> None:
    wrong: list[str] = []
    ended = threading.Event()

    def ask_on() -> None:
        while not ended.is_set():
            try:
                answer = ask(boxes)
                if answer.status_code != 200:
                    wrong.append(f"{answer.status_code} {answer.text}")
            except requests.RequestException as error:
                wrong.append(repr(error))

    clients = [threading.Thread(target=ask_on) for _ in range(4)]
    for one in clients:
        one.start()
    try:
        before = len(boxes.answered_by())
        wait_until(lambda: {"chat", "two/chat"} <= set(boxes.answered_by()[before:]), "both answer")
        boxes.two.run("systemctl stop rigwright.target")
        wait_until(lambda: boxes.health()["two/chat"] == "down", "the second box is left out")
        boxes.two.run("systemctl start rigwright.target")
        before = len(boxes.answered_by())
        wait_until(lambda: "two/chat" in boxes.answered_by()[before:], "the second box is back")
        # as a power cut or a pulled cable does: nothing ends its connections
        boxes.two.run("systemd-run -q --on-active=1 ip link set dev host0 down")
        wait_until(lambda: boxes.health()["two/chat"] == "down", "the second box is left out")
        before = len(boxes.answered_by())
        wait_until(lambda: len(boxes.answered_by()) > before + 8, "the first box goes on")
    finally:
        ended.set()
        for one in clients:
            one.join()
    assert wrong == []
    assert run_rigwright("status", str(boxes.inventory), "--limit", "one").returncode == 0
