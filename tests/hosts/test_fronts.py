"""Two gateways with one address over two boxes: losses, new certificates and a rollout under 64 streams."""

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from cryptography import x509

from lab.hosts import HostSpec, LabHost
from lab.network import run_program
from lab.throwaway_lab import ThrowawayLab
from rigwright.gateway.certificate_authority import FOLDER, certificate_now, ensure_authority
from rigwright.gateway.certificate_revocations import ensure_revocations
from rigwright.model.fleet_schema import front_certificate_name, lender_certificate_name
from tests.hosts.gateway_box import LAN, LOG, QUESTION, TLS, run_rigwright
from tests.hosts.support import PORT, deploy, red_checks, run_deploy, wait_until

# four hosts, their deploys and the loss of two take minutes
pytestmark = pytest.mark.all_only
BOTH, UNTOUCHED = "tiny-rig", "untouched"
"""Models: of both boxes with instances, and of the one that no test takes away."""
STREAMS, CLIENTS = 64, 80
"""Clients that always have a stream, and all of them."""
PAIR = ("--limit", "one,two", "--only", "D17,D18")
"""The checks of both gateways together."""


@dataclass(frozen=True)
class ClientRequest:
    """A request of a client, and its end."""

    model: str
    stream: bool
    began: float
    ended: float
    problem: str
    """Empty where all of the answer came."""


@dataclass
class FrontLoad:
    """Clients that ask without a pause."""

    requests: list[ClientRequest] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def failed(self) -> list[ClientRequest]:
        """Requests without a whole answer."""
        return [one for one in self.requests if one.problem]

    def count_since(self, moment: float) -> int:
        """Requests that began since, and have an answer."""
        return sum(one.began > moment and not one.problem for one in self.requests)

    def ask(self, url: str, verify: str, headers: dict[str, str], number: int) -> None:
        """Ask until told to end."""
        for turn in itertools.count(number):
            if self.ended.is_set():
                return
            model, stream = (BOTH, UNTOUCHED)[turn % 2], number < STREAMS
            body = {"model": model, "messages": QUESTION, "max_tokens": 16, "stream": stream, "ignore_eos": True}
            began = time.monotonic()
            try:
                with requests.post(url, json=body, headers=headers, verify=verify or None, timeout=(3, 90)) as answer:
                    whole = answer.status_code == 200
                    if whole:
                        text = answer.text.rstrip()
                        whole = text.endswith("data: [DONE]") if stream else bool(json.loads(text)["choices"])
                    problem = "" if whole else f"{answer.status_code} {answer.text[-200:]}"
            except (requests.RequestException, ValueError, KeyError) as error:
                problem = repr(error)[:300]
            self.requests.append(ClientRequest(model, stream, began, time.monotonic(), problem))


@dataclass(frozen=True)
class FourBoxes:
    """The hosts, and their operator's folder."""

    lab: ThrowawayLab
    hosts: dict[str, LabHost]
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "fleet.py"

    @property
    def address(self) -> str:
        """The address that both gateways share."""
        return f"{self.lab.gateway.rpartition('.')[0]}.200"

    def declare(self, memory: str = "50%", drain: int = 60) -> None:
        """Write the inventory; another limit makes another generation of the lenders, another drain of the fronts."""
        shelf = {"mirrors": {"shelf": [self.lab.shelf_url]}}
        lenders = ("three", "four")
        entries: dict[str, dict[str, object]] = {
            name: {
                **self.hosts[name].inventory_keys,
                **shelf,
                "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT, "memory_max": memory}},
                "fleet": {"address": self.hosts[name].address},
            }
            for name in lenders
        }
        for priority, name in enumerate(("two", "one"), 100):
            entries[name] = {
                **self.hosts[name].inventory_keys,
                **shelf,
                "instances": {},
                "gateway": {
                    "listeners": {
                        "lan": {"address": self.address, "port": LAN, "keys": False},
                        "office": {"address": self.address, "port": TLS, "tls": True},
                    },
                    "models": {
                        BOTH: {"instances": [f"{one}/chat" for one in lenders]},
                        UNTOUCHED: {"instances": ["four/chat"]},
                    },
                    "drain": drain,
                    "queue": CLIENTS,
                    "virtual_address": {
                        "address": f"{self.address}/24",
                        "source": self.hosts[name].address,
                        "interface": "host0",
                        "priority": priority,
                    },
                },
            }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")

    def holders(self, *names: str) -> list[str]:
        """The boxes that have the address."""
        shown = {name: self.hosts[name].run("ip -br -4 address") for name in names or ("one", "two")}
        return [name for name, text in shown.items() if f"{self.address}/" in text]

    def wait_for_holder(self, name: str) -> None:
        """Wait until this box has the address by itself."""
        wait_until(lambda: self.holders() == [name], f"{name} has the address", limit=30)

    def wait_until_fit(self, name: str) -> None:
        """Wait until a gateway may have the address."""
        file = "/run/rigwright_health/state"
        wait_until(lambda: self.hosts[name].run(f"cat {file}").strip() == "0", f"the gateway of {name} is fit")

    def cut(self, name: str) -> None:
        """Take a box from the network, as a power cut or a pulled cable does: nothing ends its connections."""
        run_program("ip", "-n", self.hosts[name].namespace, "link", "set", "host0", "down")

    def join(self, name: str) -> None:
        """Have it back."""
        run_program("ip", "-n", self.hosts[name].namespace, "link", "set", "host0", "up")
        self.hosts[name].wait()

    def health(self) -> dict[str, str]:
        """The state of each instance, as clients of the address read it."""
        said = requests.get(f"http://{self.address}:{LAN}/health", timeout=10).json()
        return dict(said["models"][BOTH]["instances"])

    def statuses(self, name: str) -> list[int]:
        """The status of each request of clients in a gateway's log; checks are no clients."""
        lines = [json.loads(line) for line in self.hosts[name].run(f"cat {LOG} || true").splitlines()]
        return [one["status"] for one in lines if one["client"] == self.lab.gateway]

    @contextmanager
    def load(self, key: str) -> Iterator[FrontLoad]:
        """Clients of the address while the block runs: half of them with TLS and a key."""
        made = FrontLoad()
        authority, headers = str(self.folder / FOLDER / "ca.crt"), {"Authorization": f"Bearer {key}"}
        path = "v1/chat/completions"
        plain, tls = f"http://{self.address}:{LAN}/{path}", f"https://{self.address}:{TLS}/{path}"
        threads = [
            threading.Thread(target=made.ask, args=(*way, number))
            for number in range(CLIENTS)
            for way in [(tls, authority, headers) if number % 8 < 4 else (plain, "", {})]
        ]
        for one in threads:
            one.start()
        try:
            wait_until(lambda: made.count_since(0) >= CLIENTS, "answers before it begins")
            yield made
            now = time.monotonic()
            wait_until(lambda: made.count_since(now) >= CLIENTS, "answers after it")
        finally:
            made.ended.set()
            for one in threads:
                one.join()


@pytest.fixture(scope="module")
def boxes(lab: ThrowawayLab, release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FourBoxes]:
    names = ("one", "two", "three", "four")
    started = lab.up([HostSpec(f"fr{number}{release[-2:]}", release) for number in range(1, 5)])
    made = FourBoxes(lab, dict(zip(names, started, strict=True)), tmp_path_factory.mktemp("fronts"))
    made.declare()
    deploy(made.inventory)
    yield made
    for host in started:
        host.destroy()


@pytest.fixture(scope="module")
def key(boxes: FourBoxes) -> str:
    """A client's key, which both gateways get by one command."""
    done = run_rigwright("key", "make", str(boxes.inventory), "alice")
    assert done.returncode == 0, done.stderr
    assert "one: the keys are updated" in done.stderr
    assert "two: the keys are updated" in done.stderr
    return done.stdout.strip()


def test_one_gateway_has_the_address_and_both_are_as_declared(boxes: FourBoxes, key: str) -> None:
    wait_until(lambda: boxes.holders() == ["one"], "the one with the higher priority has the address")
    wait_until(lambda: set(boxes.health().values()) == {"ok"}, "both instances are ready")
    assert run_deploy(boxes.inventory).changed_operations == []
    assert red_checks(boxes.inventory) == set()
    planned = run_rigwright("plan", str(boxes.inventory)).stdout
    assert f"{boxes.address} is shared with two" in planned, planned
    states = run_rigwright("status", str(boxes.inventory)).stdout
    assert f"has {boxes.address}, shared with two" in states, states
    assert f"has not {boxes.address}, shared with one" in states, states
    for name in ("one", "two"):
        assert "rigwright_keepalived" in boxes.hosts[name].run("systemctl list-units --state=active 'rigwright*'")
        assert boxes.hosts[name].run("systemctl is-enabled keepalived || true").strip() == "masked"


def test_other_keys_and_an_address_of_both_are_red(boxes: FourBoxes, key: str) -> None:
    inventory, sources = boxes.inventory, {name: boxes.hosts[name].address for name in ("one", "two")}
    # only one of both takes the next key
    boxes.hosts["two"].run("systemctl stop ssh.socket ssh; systemd-run -q --on-active=15 systemctl start ssh")
    assert run_rigwright("key", "make", str(inventory), "bob").returncode == 3
    wait_until(boxes.hosts["two"].is_reachable, "the other gateway is back")
    assert "D17" in red_checks(inventory, *PAIR)
    assert run_rigwright("key", "sync", str(inventory), "--limit", "one").returncode == 0
    assert "D17" not in red_checks(inventory, *PAIR)
    # packets of each to the other one go to a hardware address that no card has
    for name, other in (("one", "two"), ("two", "one")):
        boxes.hosts[name].run(f"ip neigh replace {sources[other]} lladdr 02:00:00:00:00:01 dev host0 nud permanent")
    wait_until(lambda: boxes.holders() == ["one", "two"], "both have the address")
    assert "D18" in red_checks(inventory, *PAIR)
    for name, other in (("one", "two"), ("two", "one")):
        boxes.hosts[name].run(f"ip neigh del {sources[other]} dev host0")
    wait_until(lambda: boxes.holders() == ["one"], "one has the address again")
    assert red_checks(inventory, *PAIR) == set()


def test_an_unfit_gateway_gives_the_address_up(boxes: FourBoxes) -> None:
    (holder,) = boxes.holders()
    other = "two" if holder == "one" else "one"
    for units in ("rigwright_router.socket rigwright_router", "rigwright_gateway"):
        boxes.hosts[holder].run(f"systemctl stop {units}")
        boxes.wait_for_holder(other)
        boxes.hosts[holder].run("systemctl start rigwright.target")
        boxes.wait_until_fit(holder)
        assert boxes.holders() == [other]
        holder, other = other, holder
    # without the program that asks, a gateway has no address either
    boxes.hosts[holder].run("systemctl stop rigwright_health")
    boxes.wait_for_holder(other)
    boxes.hosts[holder].run("systemctl start rigwright_health")


def write_expiring_certificates(boxes: FourBoxes) -> None:
    """Have all boxes serve with certificates that the next deploy renews."""
    authority = ensure_authority(boxes.folder / FOLDER, certificate_now())
    revoked = ensure_revocations(boxes.folder / FOLDER, authority, certificate_now())
    moment = certificate_now() - timedelta(days=75)
    for box, listener, name, client in (
        *((box, "_front", front_certificate_name(box), True) for box in ("one", "two")),
        *((box, "office", boxes.address, False) for box in ("one", "two")),
        *((box, "_fleet", lender_certificate_name(box), False) for box in ("three", "four")),
    ):
        pair = authority.issue((name,), moment, is_client=client)
        above = authority.pem + revoked if listener != "office" else ""
        text = replace(pair, certificates=pair.certificates + above).text
        path = f"/etc/rigwright/credentials/gateway-{listener}.pem"
        boxes.hosts[box].run(f"cat > {path} <<'END'\n{text}END")
    for host in boxes.hosts.values():
        host.run("systemctl reload rigwright_gateway")


def test_renewed_certificates_cost_no_request(boxes: FourBoxes, key: str) -> None:
    write_expiring_certificates(boxes)
    with boxes.load(key) as load:
        run = deploy(boxes.inventory)
        assert "Serving | Certificates" in run.changed_operations
        assert "Serving | The gateway has them" in run.changed_operations
    assert load.failed == []
    for box, listener in (("one", "_front"), ("two", "office"), ("three", "_fleet")):
        found = boxes.hosts[box].run(f"cat /etc/rigwright/credentials/gateway-{listener}.pem")
        certificate = x509.load_pem_x509_certificates(found.encode())[0]
        assert certificate.not_valid_before_utc > certificate_now() - timedelta(days=2)


def test_a_rollout_costs_no_request(boxes: FourBoxes, key: str) -> None:
    boxes.declare(memory="40%", drain=50)
    with boxes.load(key) as load:
        done = run_rigwright("rollout", str(boxes.inventory), "--allow-outage", UNTOUCHED)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [one for one in load.failed if one.model == BOTH] == []
    # the model of one box is interrupted, with consent, and says so before an answer has begun
    assert [one for one in load.failed if not one.problem.startswith("503 ")] == []


def test_a_lost_gateway_costs_no_request_of_the_other_one(boxes: FourBoxes, key: str) -> None:
    (holder,) = boxes.holders()
    other = "two" if holder == "one" else "one"
    before = len(boxes.statuses(other))
    with boxes.load(key) as load:
        lost = time.monotonic()
        boxes.cut(holder)
        wait_until(lambda: boxes.holders(other) == [other], "the other gateway has the address", every=0.05)
        moved = time.monotonic()
        wait_until(lambda: load.count_since(moved) > 2 * CLIENTS, "the other gateway answers")
        assert moved - lost < 10
        boxes.join(holder)
        back = time.monotonic()
        wait_until(lambda: load.count_since(back) > CLIENTS, "answers after it is back")
        # it leaves the address where it is: a move ends streams
        assert boxes.holders() == [other]
    assert [one for one in load.failed if one.began > moved] == []
    assert set(boxes.statuses(other)[before:]) == {200}
    assert red_checks(boxes.inventory, *PAIR) == set()
    used = json.loads(run_rigwright("usage", str(boxes.inventory), "--json").stdout)
    assert {row["key"] for row in used} == {"-", "alice"}


def test_a_lost_box_costs_no_request_but_its_own_streams(boxes: FourBoxes, key: str) -> None:
    with boxes.load(key) as load:
        lost = time.monotonic()
        boxes.cut("three")
        wait_until(lambda: boxes.health()["three/chat"] == "down", "its instance is left out")
        out = time.monotonic()
        wait_until(lambda: load.count_since(out) > 2 * CLIENTS, "the other box answers")
    assert [one for one in load.failed if one.model == UNTOUCHED or not one.stream] == []
    assert [one for one in load.failed if one.ended < lost or one.began > out] == []
