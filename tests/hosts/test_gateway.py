"""The gateway of a real host: clients, keys, certificates, and what becomes of streams while things change."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import requests
from openai import APIError, APIStatusError, AuthenticationError, NotFoundError

from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from tests.hosts.gateway_box import (
    DEMO,
    ENDLESS,
    INSTANCES,
    LAN,
    LOG,
    QUESTION,
    SLOW,
    TLS,
    GatewayBox,
    active_requests,
    ask_question,
    count_stream_pieces,
    make_key,
    run_rigwright,
)
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import check_verdicts, deploy, on_both, red_checks, run_deploy, wait_until, write_inventory

UNITS = "rigwright-chat rigwright-chat2 rigwright-slow rigwright_gateway rigwright_router"
STREAMS = 200
LONG = 3900
"""Tokens that a slot of the slow instance has room for: some 40 seconds of a stream."""


@pytest.fixture(scope="module")
def box(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayBox]:
    """A host with two equal instances and a slow one behind a gateway."""
    (host,) = lab.up([HostSpec(f"g{release[-2:]}", release, (first_run.layer,))])
    made = GatewayBox(lab, host, tmp_path_factory.mktemp("gateway"))
    made.prepare()
    inventory = made.write_gateway_inventory()
    planned = run_deploy(inventory, "--dry").planned_operations
    assert deploy(inventory).changed_operations == planned
    yield made
    host.destroy()


def started(box: GatewayBox) -> str:
    """Main processes of all units."""
    return box.host.run(f"systemctl show --property=MainPID --value {UNITS}")


def test_a_host_with_a_gateway_is_as_declared_and_stays_so(box: GatewayBox) -> None:
    inventory = box.write_gateway_inventory()
    verdicts = check_verdicts(inventory)
    assert {identifier for identifier, word in verdicts.items() if word == "FAIL"} == set()
    assert {f"D0{number}" for number in range(1, 10)} <= verdicts.keys()
    assert run_deploy(inventory).changed_operations == []
    assert f"box: gateway active, on 0.0.0.0:{LAN}, 0.0.0.0:{TLS}" in run_rigwright("status", str(inventory)).stdout
    box.host.reboot()
    wait_until(lambda: red_checks(inventory) == set(), "as declared after a boot")
    assert run_deploy(inventory).changed_operations == []


TWIN = """
import socket, sys
one = socket.socket(socket.AF_INET6)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
one.bind((sys.argv[1], int(sys.argv[2])))
one.listen()
if len(sys.argv) > 3:
    one.accept()
"""


def test_no_local_user_gets_the_other_family_of_its_ports_nor_keeps_deploys_away(box: GatewayBox) -> None:
    host, inventory = box.host, box.write_gateway_inventory()
    host.run(f"cat > /var/tmp/twin.py <<'END'\n{TWIN}\nEND")
    nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    for port in (LAN, TLS):
        for address in ("::", "::1"):
            tried = host.run(f"{nobody} python3 /var/tmp/twin.py {address} {port} 2>&1 || true")
            assert "Address already in use" in tried, (port, address, tried)
        # refused at once, so that a client goes on to another address of the same name
        assert host.run(f"curl --silent 'http://[::1]:{port}' || echo $?").strip() == "7"
    units = "'rigwright_reserved-*'"
    # beside a listener of the same family each other address is kept by itself, in the sandbox of the unit
    host.run(
        f"systemctl cat {units} | sed '/ExecStartPost/d; s/reserve.py .*/reserve.py [::]:9000-[::1]/'"
        " > /run/systemd/system/each.service; systemctl daemon-reload; systemctl start each"
    )
    tried = f"{nobody} python3 /var/tmp/twin.py :: 9000 2>&1 || true"
    wait_until(lambda: "Address already in use" in host.run(tried), "each address is kept")
    assert host.run(f"{nobody} python3 /var/tmp/twin.py ::1 9000 2>&1 || true") == ""
    host.run("systemctl stop each; rm /run/systemd/system/each.service; systemctl daemon-reload")
    host.run(
        f"systemctl stop {units}; systemd-run -q --uid=nobody --unit=twin python3 /var/tmp/twin.py :: {LAN} stay; "
        f"until ss -Hltn 'sport = :{LAN}' | grep -F '[::]'; do sleep 0.1; done"
    )
    assert {"D01", "D02"} <= red_checks(inventory)
    run = deploy(inventory)
    assert f"[::]:{LAN} is in use by python3 (twin.service), pid" in run.said
    host.run("systemctl stop twin")
    tried = f"{nobody} python3 /var/tmp/twin.py :: {LAN} 2>&1 || true"
    wait_until(lambda: "Address already in use" in host.run(tried), "kept again")
    assert red_checks(inventory) == set()


def test_usage_reports_the_tokens_of_a_key_as_the_engine_counts_them(box: GatewayBox) -> None:
    inventory = str(box.write_gateway_inventory())
    client = box.tls_client(make_key(box, "counted"))
    ask = partial(client.chat.completions.create, model="tiny-rig", messages=QUESTION)
    reply, (*_, last) = ask(), ask(stream=True, stream_options={"include_usage": True})
    assert reply.usage and last.usage
    expected = {"key": "counted", "requests": 2} | {
        "input": reply.usage.prompt_tokens + last.usage.prompt_tokens,
        "output": reply.usage.completion_tokens + last.usage.completion_tokens,
        "unknown": 0,
    }

    def count_tokens() -> bool:
        rows = json.loads(run_rigwright("usage", inventory, "--json").stdout)
        return any(expected.items() <= row.items() for row in rows)

    wait_until(count_tokens, f"reported: {expected}", limit=30)


@pytest.mark.all_only
def test_clients_speak_to_one_plain_address_without_a_key(box: GatewayBox) -> None:
    # the header of clients that were configured without a key: an empty key, or a blank one
    for key in ("ignored", "sk-"):
        client = box.plain_client(key)
        for model in ("tiny-rig", "gpt-4o"):
            assert ask_question(client, model) == ANSWER
            stream = client.chat.completions.create(model=model, messages=QUESTION, stream=True)
            pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
            assert len(pieces) > 1
            assert "".join(pieces).strip() == ANSWER
        assert {one.id for one in client.models.list()} >= {SLOW, "tiny-rig", "gpt-4o"}
        with pytest.raises(NotFoundError, match="tiny-rig"):
            ask_question(client, "gpt-5")
    # curl without a header of its own says that it sends a form
    url = f"http://{box.address}:{LAN}/v1/chat/completions"
    said = subprocess.run(
        ["curl", "-s", "-d", json.dumps({"model": "tiny-rig", "messages": QUESTION}), url],
        capture_output=True,
        text=True,
    ).stdout
    assert json.loads(said)["choices"][0]["message"]["content"].strip() == ANSWER
    page = {"Origin": "chrome-extension://abc", "Access-Control-Request-Method": "POST"}
    allowed = requests.options(url, headers=page, timeout=10)
    assert allowed.headers["Access-Control-Allow-Origin"] == page["Origin"]
    other = requests.options(url, headers=page | {"Origin": "https://evil.example"}, timeout=10)
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.all_only
@on_both
def test_no_worker_waits_for_a_client_of_another_one(box: GatewayBox) -> None:
    # of two that wake for one connection, the second would stand still in accept() with all its streams
    process = "/proc/$(systemctl show --property=MainPID --value rigwright_gateway)/fdinfo"
    handed = box.host.run(f"grep -h ^flags: {process}/3 {process}/4").split()[1::2]
    assert [int(flags, 8) & os.O_NONBLOCK for flags in handed] == [os.O_NONBLOCK] * 2


def test_a_controller_with_an_older_keys_file_gives_no_revoked_key_back(box: GatewayBox, tmp_path: Path) -> None:
    inventory, before = box.write_gateway_inventory(), started(box)
    alice = make_key(box, "alice")
    shutil.copytree(box.folder, tmp_path / "older")
    older = tmp_path / "older/rig.py"
    assert ask_question(box.tls_client(alice)) == ANSWER
    assert run_rigwright("key", "revoke", str(inventory), "alice").returncode == 0
    # the file is refused before it is changed; a host keeps its keys; a host is refused
    for status, words, name in ((2, ["key", "make"], ["carol"]), (1, ["key", "sync"], []), (1, ["plan"], [])):
        done = run_rigwright(*words, str(older), *name)
        output = " ".join((done.stdout + done.stderr).split())
        assert (done.returncode, "1 key would return: alice" in output) == (status, True), output
    for run in (run_deploy(older, "--dry"), run_deploy(older)):
        assert run.status == 1
        assert "refused: " in run.said
        assert "1 key would return: alice" in run.said
    with pytest.raises(AuthenticationError):
        ask_question(box.tls_client(alice))
    # a deliberate replacement lasts: the one that has it goes on from there
    assert run_rigwright("key", "sync", str(older), "--replace-newer").returncode == 0
    assert ask_question(box.tls_client(alice)) == ANSWER
    assert run_rigwright("key", "sync", str(inventory)).returncode == 1
    shutil.copy(older.with_name("gateway-keys.toml"), inventory.parent)
    assert run_rigwright("key", "revoke", str(inventory), "alice").returncode == 0
    with pytest.raises(AuthenticationError):
        ask_question(box.tls_client(alice))
    assert run_deploy(inventory).changed_operations == []
    assert started(box) == before


def test_a_key_is_made_rotated_and_revoked_without_a_deploy_and_its_streams_end(box: GatewayBox) -> None:
    inventory, before = box.write_gateway_inventory(), started(box)

    def key(*words: str) -> str:
        done = run_rigwright("key", words[0], str(inventory), *words[1:])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def refused(one: str) -> None:
        with pytest.raises(AuthenticationError):
            ask_question(box.tls_client(one))

    refused("rw-unknown")
    first = key("make", "alice", "--streams", "4")
    assert ask_question(box.tls_client(first)) == ANSWER
    assert first not in (box.folder / "gateway-keys.toml").read_text()
    assert box.host.run(f"grep -rlsaF -e {first} /etc /run/rigwright /var/log || true") == ""
    second = key("rotate", "alice")
    assert ask_question(box.tls_client(second)) == ANSWER
    refused(first)
    stream = box.tls_client(second).chat.completions.create(
        model=SLOW, messages=QUESTION, stream=True, max_tokens=16000, extra_body=ENDLESS
    )
    pieces = iter(stream)
    next(pieces)
    assert key("revoke", "alice") == ""
    with pytest.raises(APIError, match="revoked"):
        for number, _ in enumerate(pieces):
            assert number < 15000
    refused(second)
    wait_until(lambda: active_requests(box)["slow"] == 0, "the engine told that nobody listens")
    assert started(box) == before
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_a_days_log_is_put_away_while_streams_go_on(box: GatewayBox) -> None:
    status = "/var/lib/logrotate/status"

    def tomorrow() -> None:
        # logrotate takes a file that it has not seen before for today's
        box.host.run("systemctl start logrotate.service")
        box.host.run(f"sed -i '/rigwright_gateway/s/ [0-9].*/ 2020-1-1-0:0:0/' {status}")
        box.host.run("systemctl start logrotate.service")

    def lines(command: str) -> list[str]:
        return [json.loads(line)["model"] for line in box.host.run(command).splitlines()]

    client = box.plain_client()
    assert ask_question(client, "gpt-4o") == ANSWER
    wait_until(lambda: "gpt-4o" in lines(f"cat {LOG}"), "logged")
    before = lines(f"cat {LOG}")
    # longer than anything takes here: it is this test that ends it
    with client.chat.completions.create(
        model=SLOW, messages=QUESTION, stream=True, max_tokens=LONG, extra_body=ENDLESS
    ) as stream:
        pieces = iter(stream)
        assert next(pieces)
        assert active_requests(box)["slow"] == 1
        tomorrow()
        assert active_requests(box)["slow"] == 1
        assert lines(f"cat {LOG}.1") == before
        assert ask_question(client) == ANSWER
        wait_until(lambda: lines(f"cat {LOG}") == ["tiny-rig"], "logged in the next one")
        assert next(pieces)
    wait_until(lambda: lines(f"cat {LOG}") == ["tiny-rig", SLOW], "the stream, too")
    tomorrow()
    assert lines(f"zcat {LOG}.2.gz") == before
    assert box.host.run(f"stat -c '%U %a' {LOG}").split() == ["rigwright_gateway", "640"]
    assert run_deploy(box.write_gateway_inventory()).changed_operations == []


@pytest.mark.all_only
def test_no_stream_is_lost_while_things_change(box: GatewayBox) -> None:
    """A reload, a key, a certificate, and a deploy that changes another instance."""
    inventory, before = box.write_gateway_inventory(queue=STREAMS), started(box).split()
    deploy(inventory)
    assert started(box).split() == [*before[:4], started(box).split()[4]]
    with ThreadPoolExecutor(STREAMS) as pool:
        client = box.plain_client()
        asked = [pool.submit(count_stream_pieces, client, SLOW, 40) for _ in range(STREAMS)]
        wait_until(lambda: active_requests(box)["slow"] > 100, "many under way")
        assert run_rigwright("key", "make", str(inventory), "bob").returncode == 0
        box.host.run("rm /etc/rigwright/credentials/gateway-office.pem")
        other = {**INSTANCES, "chat2": {**DEMO, "port": 8021, "tasks_max": 2048}}
        changed = box.write_gateway_inventory(other, queue=STREAMS, aliases={"gpt-4o": "tiny-rig", "o3": SLOW})
        deploy(changed)
        assert active_requests(box)["slow"] > 0
        assert all(one.result() > 1 for one in asked)
    assert ask_question(box.plain_client(), "o3")
    assert red_checks(changed) == set()
    assert run_deploy(changed).changed_operations == []
    back = run_rigwright("rollback", str(changed))
    assert back.returncode == 0, back.stderr
    with pytest.raises(NotFoundError):
        ask_question(box.plain_client(), "o3")
    assert red_checks(box.write_gateway_inventory(queue=STREAMS)) == set()


def working(box: GatewayBox) -> float:
    """Requests that the slow engine works on, as it says itself."""
    said = requests.get(f"http://{box.address}:{LAN}/metrics/slow", timeout=10).text
    return float(re.findall(r"^llamacpp:requests_processing ([0-9.]+)$", said, re.MULTILINE)[0])


@pytest.mark.all_only
def test_a_client_that_goes_is_gone_for_its_engine_within_a_second(box: GatewayBox) -> None:
    stream = box.plain_client().chat.completions.create(
        model=SLOW, messages=QUESTION, stream=True, max_tokens=16000, extra_body=ENDLESS
    )
    next(iter(stream))
    assert working(box) == 1
    stream.close()
    gone = time.monotonic()
    wait_until(lambda: working(box) == 0, "the engine idle")
    assert time.monotonic() - gone < 1


@pytest.mark.all_only
def test_an_instance_that_is_wedged_is_left_out_until_it_answers(box: GatewayBox) -> None:
    deploy(box.write_gateway_inventory())
    health = f"http://{box.address}:{LAN}/health"

    def state() -> str:
        return str(requests.get(health, timeout=10).json()["models"]["tiny-rig"]["instances"]["chat"])

    box.host.run("systemctl kill --signal=STOP rigwright-chat")
    well = state()
    wait_until(lambda: state() != well, "found out", 300)
    assert [ask_question(box.plain_client()) for _ in range(10)] == [ANSWER] * 10
    box.host.run("systemctl kill --signal=CONT rigwright-chat")
    wait_until(lambda: state() == well, "back")
    assert red_checks(box.write_gateway_inventory()) == set()


@pytest.mark.all_only
def test_an_instance_that_dies_costs_its_own_streams_alone(box: GatewayBox) -> None:
    inventory = box.write_gateway_inventory()
    deploy(inventory)
    client = box.plain_client()
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(count_stream_pieces, client, SLOW, 60) for _ in range(4)]
        wait_until(lambda: active_requests(box)["slow"] == 4, "under way")
        box.host.run("systemctl kill --signal=KILL rigwright-chat")
        # a new request goes to the other one, at once
        assert [ask_question(client) for _ in range(10)] == [ANSWER] * 10
        assert all(one.result() > 1 for one in asked)
    wait_until(lambda: red_checks(inventory) == set(), "both back")
    box.host.run("systemctl stop rigwright-chat rigwright-chat2")
    with pytest.raises(APIStatusError) as nobody:
        ask_question(client)
    assert nobody.value.status_code == 503
    assert int(nobody.value.response.headers["Retry-After"]) > 0
    health = requests.get(f"http://{box.address}:{LAN}/health", timeout=10)
    assert health.json()["status"] == "degraded"
    assert [health.json()["models"][name]["status"] for name in (SLOW, "tiny-rig")] == ["ok", "down"]
    box.host.run("systemctl start rigwright-chat rigwright-chat2")
    wait_until(lambda: requests.get(f"http://{box.address}:{LAN}/health", timeout=10).json()["status"] == "ok", "well")
    assert ask_question(client) == ANSWER


@pytest.mark.all_only
def test_a_gateway_that_is_not_declared_any_more_is_gone_and_comes_back(box: GatewayBox) -> None:
    declared = box.write_gateway_inventory()
    deploy(declared)
    without = write_inventory(box.folder, box.lab, box.host, instances=INSTANCES, keep_generations=1)
    planned = run_deploy(without, "--dry").planned_operations
    assert deploy(without).changed_operations == planned
    assert red_checks(without) == set()
    assert run_deploy(without).changed_operations == []
    assert "8000" not in box.host.run("ss -Hltn")
    assert box.host.run("systemctl list-units --all --plain --no-legend 'rigwright_gateway*' 'rigwright_router*'") == ""
    assert box.host.run("getent passwd rigwright_gateway rigwright_router || true") == ""
    # with keys of engines in it, and such a user's number may be given out again
    assert box.host.run("ls -d /run/rigwright_gateway /run/rigwright_router 2> /dev/null || true") == ""
    # one with the name of a missing user would end all of logrotate's work
    assert "rigwright" not in box.host.run("ls /etc/logrotate.d")
    deploy(box.write_gateway_inventory())
    assert ask_question(box.plain_client()) == ANSWER
    assert red_checks(box.write_gateway_inventory()) == set()
    assert run_rigwright("remove", str(box.write_gateway_inventory()), "--yes").returncode == 0
    left = "ls -d /run/rigwright_* /var/log/rigwright_* /etc/rigwright/* /etc/logrotate.d/rigwright* 2> /dev/null"
    assert box.host.run(f"{left} || true") == ""
