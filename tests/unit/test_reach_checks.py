"""Other listeners that lead to a rig's models: the facts of the survey here, and the findings of checks."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

import checks.test_answers
import checks.test_reach
from checks.survey.answers import SurveyAnswers
from checks.survey.client_routes import ClientRoutes
from checks.survey.frontend_services import Gates, GateUnit, ShareProcess
from checks.survey.host import client_routes, foreign_proxies, network_sockets, service_exposure
from checks.survey.service_exposure import ForeignLead, PathFacts, ReachSurvey, TcpListener, Tunnel
from rigwright.model.rig import Rig
from rigwright.serving.instance_units import listener_units
from tests.unit.check_runner import red_checks
from tests.unit.samples import sample_instance, sample_rig

LOOK = """
import json, sys
from checks.survey.host import foreign_proxies
told = json.load(sys.stdin)
print(json.dumps(foreign_proxies.leads(told["asked"], foreign_proxies.processes([]), [(told["at"], {told["pid"]})])))
"""
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="asks as nobody")
MODELS = b'HTTP/1.1 200 OK\r\nContent-Length: 35\r\n\r\n{"data": [{"id": "small", "x": 1}]}'
DENIED = b'HTTP/1.1 401 No\r\nContent-Length: 17\r\n\r\n{"error": "no 1"}'
RELAY = """
import socket, sys, threading
def carry(one, other):
    while piece := one.recv(65536):
        other.sendall(piece)
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((client, there), (there, client)):
        threading.Thread(target=carry, args=pair, daemon=True).start()
"""
# Asks by a connection of its own each time, and has closed it before it answers.
PROXY = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    client, _ = server.accept()
    asked = client.recv(65536)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as there:
        there.sendall(asked)
        said = there.recv(65536)
    client.sendall(said)
"""
ALONE = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
kept = []
while True:
    client, _ = server.accept()
    client.recv(65536)
    client.sendall(SAID)
    kept.append(client)
"""


@contextmanager
def process(program: str, *words: str) -> Iterator[tuple[int, int]]:
    """The process of a program, and the port that it listens on."""
    running = subprocess.Popen([sys.executable, "-c", program, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout
        yield running.pid, int(running.stdout.readline())
    finally:
        running.kill()
        running.wait()


@pytest.fixture(params=[MODELS, DENIED], ids=["keyless", "keyed"])
def instance_port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a stand-in for an instance."""
    with process(ALONE.replace("SAID", repr(request.param))) as (_, port):
        yield port


def listener_findings(ours: int, program: str, *words: str) -> list[dict[str, str]]:
    """The messages about another one's listener."""
    with process(program, *words) as (pid, port):
        asked = {
            **{"ports": [ours], "places": [f"127.0.0.1:{ours}"], "sockets": [], "units": [], "models": ["small"]},
            "own": ["127.0.0.1"],
        }
        question = json.dumps({"asked": asked, "at": f"127.0.0.1:{port}", "pid": pid})
        # in a process of its own: it forks, and begins threads there
        done = subprocess.run([sys.executable, "-c", LOOK], input=question, capture_output=True, text=True, timeout=30)
        said: list[dict[str, str]] = json.loads(done.stdout)
        return said


@ROOT
@pytest.mark.parametrize("program", [RELAY, PROXY])
def test_listeners_that_lead_to_us_are_found(instance_port: int, program: str) -> None:
    (one,) = listener_findings(instance_port, program, str(instance_port))
    assert one["how"]


@ROOT
@pytest.mark.parametrize("said", [DENIED, b"SSH-2.0-x\r\n", b"", MODELS.replace(b"small", b"large")])
def test_a_listener_with_its_own_answers_does_not_lead_to_us(instance_port: int, said: bytes) -> None:
    assert listener_findings(instance_port, ALONE.replace("SAID", repr(said))) == []


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ("0100007F:1F54", ("127.0.0.1", 8020)),
        ("00000000000000000000000001000000:1F54", ("::1", 8020)),
        ("0000000000000000FFFF00000100007F:1F54", ("127.0.0.1", 8020)),
    ],
)
def test_places_are_read_as_the_kernel_writes_them(told: str, place: tuple[str, int]) -> None:
    assert network_sockets.place(told) == place


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (("ssh", "-N", "-R", "9000:127.0.0.1:8020", "far"), True),
        (("ssh", "-N", "-R", "9000:localhost:8020", "far"), True),
        (("ngrok", "http", "8020"), True),
        (("socat", "TCP-LISTEN:1", "UNIX-CONNECT:/run/rigwright/instances/chat/api.sock"), True),
        (("ssh", "-N", "-L", "9000:other-box:8020", "far"), False),
        (("ssh", "far", "-p", "18020"), False),
        (("python3", "client.py", "http://127.0.0.1:8020"), False),
    ],
)
def test_programs_that_carry_us_away_are_known_by_their_words(words: tuple[str, ...], seen: bool) -> None:
    asked = {"ports": [8020], "sockets": ["/run/rigwright/instances/chat/api.sock"], "own": ["10.0.0.5"]}
    one = foreign_proxies.HostProcess(7, 1, f"/usr/bin/{words[0]}", words, "/system.slice/x.service", ours=False)
    assert bool(service_exposure.tunnels(asked, {7: one})) == seen
    assert service_exposure.tunnels(asked, {7: one._replace(ours=True)}) == []


SOCKET = "/run/rigwright/instances/chat/api.sock"
UNIT = "llama-server of rigwright-chat.service"


def host_with_change(change: str = "", value: object = None) -> SurveyAnswers:
    """A host as it should be, with one thing changed."""
    service, socket_unit = listener_units(8020)
    user = "rigwright-chat"
    told = ReachSurvey(
        listeners=[
            TcpListener("127.0.0.1:8020", systemd=True, holders=[f"systemd-socket-proxyd of {service}"]),
            TcpListener("0.0.0.0:22", systemd=False, holders=["sshd of ssh.service"]),
        ],
        leads=[],
        lying={
            SOCKET: PathFacts("a socket", 0o770, user, user, listed=False),
            SOCKET.rpartition("/")[0]: PathFacts("a folder", 0o750, user, user, listed=False),
        },
        listening={SOCKET: {"own": [UNIT], "host": []}},
        mounted={SOCKET.rpartition("/")[0]: []},
        routed=[],
        addresses=["127.0.0.1", "10.0.0.5"],
        tunnels=[],
    )
    active = GateUnit("active", "linked", pid=1)
    gates = Gates({service: active, socket_unit: active}, {}, 0, {}, [], [], ShareProcess(0, False, []))
    answers = {"service_exposure": told, "frontend_services": gates, "client_routes": ClientRoutes({}, [])}
    if change:
        section, _, field = change.partition(".")
        answers[section] = replace(answers[section], **{field: value})  # type: ignore[type-var]
    return SurveyAnswers({name: {"told": asdict(one)} for name, one in answers.items()})  # type: ignore[call-overload]


def red(survey: SurveyAnswers, of: Rig | None = None) -> dict[str, str]:
    declared = of or sample_rig(sample_instance())
    given = {"rig": declared, "instance": declared.instances[0], "gateway": declared.gateway}
    modules = {checks.test_reach: (), checks.test_answers: ("S13",)}
    every = [red_checks(module, survey, unsupplied=names, **given) for module, names in modules.items()]
    # no process was asked anything here
    return {name: said for part in every for name, said in part.items() if name not in ("S05", "S06")}


def test_a_host_as_it_should_be_is_green() -> None:
    assert red(host_with_change()) == {}


USER = "rigwright-chat"
LYING = {SOCKET: PathFacts("a socket", 0o770, "rigwright-chat", "rigwright-chat", listed=False)}


def folder(
    mode: int = 0o750, owner: str = "rigwright-chat", group: str = "rigwright-chat", **more: bool
) -> dict[str, PathFacts]:
    return LYING | {SOCKET.rpartition("/")[0]: PathFacts("a folder", mode, owner, group, **({"listed": False} | more))}


@pytest.mark.parametrize(
    ("change", "value", "identifier", "said"),
    [
        (
            "service_exposure.leads",
            [ForeignLead("0.0.0.0:9000", "socat of x.service", "it answers")],
            "R01",
            "socat of x.service on 0.0.0.0:9000",
        ),
        (
            "service_exposure.tunnels",
            [Tunnel("ssh of y.scope", "ssh -R 1:localhost:8020 far")],
            "R04",
            "-R 1:localhost",
        ),
        ("service_exposure.lying", folder(0o755), "R05", "mode 0755"),
        ("service_exposure.lying", folder(group="users"), "R05", "group users"),
        ("service_exposure.lying", folder(owner="eve"), "R05", "eve's"),
        ("service_exposure.lying", folder(listed=True), "R05", "an access list"),
        (
            "service_exposure.lying",
            folder() | {SOCKET: PathFacts("a link", 0o777, "root", "root", listed=False)},
            "R05",
            "a link",
        ),
        ("service_exposure.mounted", {SOCKET.rpartition("/")[0]: ["/mnt"]}, "R05", "umount -- /mnt"),
        (
            "service_exposure.listening",
            {SOCKET: {"own": [UNIT], "host": ["python3 of e.service"]}},
            "R05",
            "python3 of e.service",
        ),
        ("service_exposure.listening", {SOCKET: {"own": [], "host": []}}, "R05", "no listener"),
        ("service_exposure.routed", ["eth0"], "R07", "net.ipv4.conf.eth0.route_localnet=0"),
        ("client_routes.unrouted", {"10.0.0.6": "a blackhole"}, "R09", "10.0.0.6 is a blackhole"),
        ("service_exposure.listeners", [], "S04", "nothing"),
        (
            "service_exposure.listeners",
            [TcpListener("127.0.0.1:8020", False, ["nc of e.scope"])],
            "S04",
            "nc of e.scope",
        ),
        ("service_exposure.listeners", [TcpListener("0.0.0.0:8020", True, [])], "S04", "0.0.0.0:8020"),
        (
            "service_exposure.listeners",
            [TcpListener("127.0.0.1:8020", True, []), TcpListener("10.0.0.5:8020", False, ["nc of e.scope"])],
            "S04",
            "stop that listener",
        ),
        ("frontend_services.gates", {}, "S04", "not there"),
    ],
)
def test_each_turns_red(change: str, value: object, identifier: str, said: str) -> None:
    found = red(host_with_change(change, value))
    assert [*found] == [identifier]
    assert said in found[identifier]


def test_an_address_that_is_lost_is_missed() -> None:
    from rigwright.model.inventory_schema import ShareEntry

    declared = sample_rig(sample_instance(), share=ShareEntry(address="10.0.0.9", allow=("10.0.0.0/24",)))
    assert "10.0.0.9 missing" in red(host_with_change(), declared)["R08"]


def test_a_queue_that_loses_packets_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def queue(kind: bytes) -> bytes:
        return struct.pack("=BxHiIIIHH", 0, 0, 1, 0, 0, 0, len(kind) + 5, 1) + kind + bytes(4)

    monkeypatch.setattr(client_routes, "dump_netlink", lambda *_: [queue(b"fq_codel"), queue(b"netem")])
    assert client_routes.shaped() == ["netem on lo"]
