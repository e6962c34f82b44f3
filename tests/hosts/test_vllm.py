"""The real vLLM in hosts without cards: it serves as an instance; over two processes in the tests of faults."""

import shlex
import signal
from pathlib import Path

import pytest
import requests
from openai import OpenAI

from lab.hosts import LabHost
from lab.ssh_tunnel import forward_port
from rigwright.toml import tomllib
from tests.hosts import vllm_box
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.support import (
    CHAT,
    PORT,
    api_key,
    check_verdicts,
    deploy,
    is_serving,
    main_pid,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
)
from tests.hosts.test_faults import KILLING
from tests.hosts.test_first_deploy import NOT_RUN, left_out
from tests.hosts.test_generations import current, rigwright
from tests.hosts.vllm_box import VllmServers
from tests.stand_ins.vllm_model import ANSWER

SAID = "".join(ANSWER)
newest = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
"""Differences with systemd and the release are in the test that runs on each of them."""
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Hello?"}]}


def test_a_box_that_served_llama_cpp_serves_vllm(
    boot: BootHost, first_run: ConvergedLayers, vllm: VllmServers, tmp_path: Path
) -> None:
    host = boot(*vllm.host_layers, first_run.layer)
    inventory = vllm_box.write_vllm_inventory(tmp_path, host, vllm)
    planned = run_plan(inventory).planned_operations
    run = vllm_box.deploy_and_save(inventory, host, vllm)
    assert set(run.changed_operations) <= set(planned)
    verdicts = check_verdicts(inventory)
    assert [identifier for identifier, verdict in verdicts.items() if verdict == "FAIL"] == []
    # none is skipped for the kind of engine that it is, and of environments those for cards
    assert left_out(verdicts) | {"S14", "S15"} == {"V02", "V03", "V04", *tomllib.loads(NOT_RUN.read_text())["checks"]}
    assert (verdicts["S14"], verdicts["S15"]) == ("ok", "ok")
    with forward_port(host, PORT) as local:
        served = f"http://127.0.0.1:{local}"
        with OpenAI(base_url=f"{served}/v1", api_key=api_key(host)) as client:
            whole = client.chat.completions.create(**ASKED, temperature=0)
            assert (whole.choices[0].message.content or "").strip() == SAID
            pieces = list(client.chat.completions.create(**ASKED, stream=True))
            assert "".join(one.choices[0].delta.content or "" for one in pieces).strip() == SAID
        for path in ("/v1/chat/completions", "/invocations"):
            for headers in ({}, {"Authorization": "Bearer wrong"}):
                assert requests.post(served + path, json=ASKED, headers=headers, timeout=20).status_code == 401
        assert "vllm:request_success_total" in requests.get(f"{served}/metrics", timeout=20).text
    assert run_deploy(inventory).changed_operations == []


def processes(host: LabHost) -> dict[str, str]:
    """Process id -> name, of the instance's user."""
    said = host.run(
        "find /proc -maxdepth 1 -name '[0-9]*' -user rigwright-chat -printf '%f\\n' | while read -r pid; do "
        "echo $pid $(cat /proc/$pid/comm); done 2> /dev/null",
        check=False,
    )
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


@pytest.mark.all_only
@newest
def test_whatever_of_it_ends_it_comes_back_and_leaves_nothing(
    vllm_host: LabHost, vllm: VllmServers, tmp_path: Path
) -> None:
    inventory = vllm_box.write_vllm_inventory(tmp_path, vllm_host, vllm, instances=vllm_box.TWO)
    for name in (None, "VLLM::Worker_TP", "VLLM::EngineCor"):
        before, main = processes(vllm_host), main_pid(vllm_host)
        assert sum(one == "VLLM::Worker_TP" for one in before.values()) == 2
        victim = next((pid for pid, one in before.items() if one == name), main)
        vllm_host.run(f"kill -9 {victim}")
        wait_until(
            lambda main=main: main_pid(vllm_host) not in (0, main) and is_serving(vllm_host), f"back after {name} ended"
        )
        assert before.keys() & processes(vllm_host).keys() == set()
        assert vllm_host.run("ls -A /dev/shm") == ""
    assert red_checks(inventory) == set()
    vllm_host.run("systemctl stop rigwright-chat")
    assert processes(vllm_host) == {}
    assert vllm_host.run("ls -A /dev/shm; ls -d /run/rigwright/instances/chat 2> /dev/null || true") == ""
    assert vllm_host.run("grep -c rigwright-chat /proc/mounts || true").strip() == "0"
    vllm_host.reboot()
    wait_until(lambda: is_serving(vllm_host), "serving after a boot", 300)
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


@pytest.mark.all_only
@newest
def test_it_gives_way_to_llama_cpp_comes_back_and_goes(vllm_host: LabHost, vllm: VllmServers, tmp_path: Path) -> None:
    def declared(name: str, **rig: object) -> Path:
        return vllm_box.write_vllm_inventory(tmp_path / name, vllm_host, vllm, **rig)

    two, one, other = declared("two", instances=vllm_box.TWO), declared("one"), declared("other", instances=CHAT)
    numbers = {two: current(two)["number"]}
    planned = run_plan(other).planned_operations
    run = run_deploy(other)
    assert (run.status, run.changed_operations) == (0, planned), run.said
    assert set(processes(vllm_host).values()) == {"llama-server"}
    assert red_checks(other) == set()
    numbers[other] = current(other)["number"]
    # the controller's end while it loads
    killed = run_deploy(one, "--yes", file=KILLING, KILL_AT="Serving | Activate generation", KILL_AFTER="6")
    assert killed.status == -signal.SIGKILL
    run = deploy(one)
    assert red_checks(one) == set()
    assert run_deploy(one).changed_operations == []
    for wanted, number in reversed(numbers.items()):
        back = rigwright("rollback", str(one), "--to", str(number))
        assert back.returncode == 0, back.stdout + back.stderr
        assert red_checks(wanted) == set()
    assert vllm_host.run("ls /var/cache/rigwright/instances/chat /var/lib/rigwright/starts") != ""
    gone = rigwright("remove", str(two), "--yes")
    assert gone.returncode == 0, gone.stderr
    assert vllm_host.run("find / -xdev -iname '*rigwright*' -not -path '/proc/*' -not -path '/var/log/*'") == ""
    assert vllm_host.run("ls -A /srv /dev/shm /opt").split() == ["/dev/shm:", "/opt:", "/srv:"]


# Stops the first new engine while another generation than that one is current: a stand-in for a card that hangs.
FREEZER = """
while :; do
  sleep 0.05
  [ "$(readlink /etc/rigwright/current)" != generations/{number} ] || continue
  for one in /proc/[0-9]*; do
    case " {old} " in *" ${{one#/proc/}} "*) continue ;; esac
    read -r name < $one/comm && [ "$name" = VLLM::EngineCor ] && kill -STOP ${{one#/proc/}} && exit
  done
done 2> /dev/null
"""


@pytest.mark.all_only
@newest
def test_a_start_that_hangs_is_ended_and_the_old_generation_is_back(
    vllm_host: LabHost, vllm: VllmServers, tmp_path: Path
) -> None:
    good = vllm_box.write_vllm_inventory(tmp_path / "good", vllm_host, vllm, instances=vllm_box.TWO)
    hurried = vllm_box.CATALOG.replace("ready_timeout = 300", "ready_timeout = 90")
    bad = vllm_box.write_vllm_inventory(tmp_path / "bad", vllm_host, vllm, hurried, instances=vllm_box.TWO)
    planned = ["Serving | Write generation", "Serving | Activate generation", "Serving | Record what is installed"]
    assert run_plan(bad).planned_operations == planned
    before, number = processes(vllm_host), current(good)["number"]
    freezer = FREEZER.format(number=number, old=" ".join(before))
    vllm_host.run(f"systemd-run -q --unit=freezer --expand-environment=no sh -c {shlex.quote(freezer)}")
    run = run_deploy(bad)
    assert run.status == 1
    assert "rigwright-chat.service did not become ready; its last log lines:" in run.said
    assert "operation timed out. Terminating." in run.said
    assert "(APIServer pid=" in run.said
    assert f"generation {number} is back" in run.said
    assert "Traceback" not in run.said
    assert is_serving(vllm_host)
    assert before.keys() & processes(vllm_host).keys() == set()
    assert red_checks(good) == set()
    assert run_deploy(good).changed_operations == []
