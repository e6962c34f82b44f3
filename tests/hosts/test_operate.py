"""A real llama.cpp, asked how it is and what it can do: in order, hanging, stopped, ending, and behind a gateway."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import CHAT, api_key, deploy, is_serving, main_pid, wait_until, write_inventory
from tests.unit.pseudo_terminal import run_on_terminal

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

UNIT = "rigwright-chat.service"
SILENT = "/run/rigwright/silent/chat"


def look_at_instance(inventory: Path) -> tuple[int, dict[str, Any], float]:
    """Exit status of `status`, the instance, and the seconds of the look."""
    done = run_rigwright("status", str(inventory), "--json")
    assert done.stdout, done.stderr
    (host,) = json.loads(done.stdout)
    assert host["instances"], host
    return done.returncode, host["instances"][0], host["took_s"]


def on_a_terminal(columns: int, *words: str) -> list[str]:
    """The output of the command on a terminal of so many columns."""
    _, said = run_on_terminal([sys.executable, "-m", "cli", *words], os.environ, columns)
    return said.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


def test_one_look_tells_what_is_so(lab: ThrowawayLab, converged: LabHost, inventory: Path, tmp_path: Path) -> None:
    code, one, took = look_at_instance(inventory)
    assert (code, one["state"], one["errors"]) == (0, "ready", [])
    assert one["metrics"]["tokens"] >= 1
    done = run_rigwright("status", str(inventory))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as declared" in done.stdout
    rows = on_a_terminal(80, "status", str(inventory))
    assert max(map(len, rows)) <= 80, rows
    assert rows[0].split()[:2] == ["host", "instance"]

    # an instance that hangs is silent after some patience, then wedged, which a short look shows
    pid = main_pid(converged)
    converged.run(f"kill -STOP {pid}")
    code, one, silent_took = look_at_instance(inventory)
    assert (code, one["state"]) == (1, "silent")
    converged.run(f'sed -i \'s/"began": [0-9]*/"began": 0/\' {SILENT}')
    code, one, wedged_took = look_at_instance(inventory)
    assert (code, one["state"]) == (1, "wedged"), one
    print(f"looks took {took}, {silent_took} and {wedged_took} s")
    assert wedged_took < 3
    assert "chat is wedged" in run_rigwright("status", str(inventory)).stdout
    converged.run(f"kill -CONT {pid}")
    wait_until(lambda: look_at_instance(inventory)[1]["state"] == "ready", "ready again", 30)
    assert converged.run(f"ls {SILENT} 2>/dev/null || true") == ""

    converged.run("systemctl stop rigwright-chat; touch /run/reboot-required")
    assert look_at_instance(inventory)[:2][1]["state"] == "stopped"
    stopped = run_rigwright("status", str(inventory))
    assert (stopped.returncode, "a reboot is pending" in stopped.stdout) == (1, True)
    converged.run("systemctl start rigwright-chat")
    wait_until(lambda: is_serving(converged), "it serves again")

    # of an inventory that is refused, running processes are reported
    refused = tmp_path / "refused.py"
    refused.write_text(inventory.read_text().replace("llamacpp/demo", "llamacpp/none"))
    done = run_rigwright("status", str(refused), "--json")
    assert done.returncode == 2, done.stderr
    assert "llamacpp/none" in done.stderr
    assert [(row["instance"], row["state"]) for row in json.loads(done.stdout)[0]["instances"]] == [("chat", "running")]


@pytest.mark.all_only
def test_one_that_cannot_start_has_failed_and_says_why(converged: LabHost, inventory: Path) -> None:
    converged.run("systemctl stop rigwright-chat")
    path = converged.run("tail -n 1 /etc/rigwright/current/weights/chat 2>/dev/null || true").strip()
    weights = path or converged.run("find /srv/models -name '*.gguf' | head -n 1").strip()
    converged.run(f"mv {weights} {weights}.away && printf broken > {weights}")
    converged.run("systemctl start --no-block rigwright-chat", check=False)

    def has_failed() -> bool:
        code, one, _ = look_at_instance(inventory)  # each restart is silent until it has read the file
        return (code, one["state"]) == (1, "failed") and any("is not a GGUF" in error for error in one["errors"])

    wait_until(has_failed, "failed, and the reason is reported", 60)
    told = run_rigwright("doctor", str(inventory), "--json", "--no-checks")
    _, host = json.loads(told.stdout)
    assert (told.returncode, host["causes"][0]["id"]) == (1, "invalid-magic-characters"), host
    assert "state-failed" in {cause["id"] for cause in host["causes"]}
    converged.run(
        f"mv {weights}.away {weights}; systemctl reset-failed rigwright-chat; systemctl restart rigwright-chat"
    )
    wait_until(lambda: is_serving(converged), "it serves again")


@pytest.mark.all_only
def test_capabilities_are_asked_at_its_socket_and_leave_nothing(converged: LabHost, inventory: Path) -> None:
    before = converged.run("systemctl show -P InvocationID rigwright-chat")
    done = run_rigwright("check", "--serving", str(inventory), "--json")
    (host,) = json.loads(done.stdout)["hosts"]
    found = {one["check"]: (one["verdict"], one["detail"]) for one in host["instances"][0]["checks"]}
    # a model of 0.8 MB says one sentence, whatever it is asked
    assert {name for name, (verdict, _) in found.items() if verdict == "fail"} == set(), found
    assert found["server"][0] == "ok"
    assert found["completion"][0] == "skip"
    assert "too small" in found["completion"][1]
    assert {found[name][0] for name in ("tool-call", "streamed-tool", "thinking", "drafts", "image", "patches")} == {
        "n/a"
    }
    assert (done.returncode, host["verdict"]) == (0, "as declared")
    assert converged.run("systemctl list-units --all --plain --no-legend 'rw-client-*'") == ""
    assert converged.run("systemctl show -P InvocationID rigwright-chat") == before
    key = api_key(converged)
    assert key not in converged.run("journalctl --no-pager -o cat -b")


@pytest.mark.all_only
def test_stress_tests_run_under_the_deploy_lock(converged: LabHost, inventory: Path) -> None:
    done = run_rigwright("bench", "stress", str(inventory), "--json")
    (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
    found = {check["check"]: check for check in one["checks"]}
    # one sentence is no code, and a context of 1,024 tokens has room for no needle and no conversation
    assert (done.returncode, one["ended"], one["foreign_tokens"]) == (1, "", 0), one
    assert {found[name]["verdict"] for name in ("needle", "tool-return", "conversation")} == {"n/a"}
    assert "an answer of" in found["coding"]["detail"]
    assert converged.run("systemctl list-units --all --plain --no-legend 'rw-client-*'") == ""
    lease = "/run/rigwright/locks/lease"
    converged.run(f"mkdir -p /run/rigwright/locks; systemd-run --quiet flock -n {lease} sleep 60")
    wait_until(lambda: converged.run(f"flock -n {lease} true || echo held").strip() == "held", "held by somebody else")
    held = run_rigwright("bench", "stress", str(inventory), "--json")
    assert held.returncode == 2, held.stdout


@pytest.mark.all_only
def test_clients_of_a_gateway_come_through_it(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    address = str(converged.inventory_keys["ssh_hostname"])
    listeners = {
        "lan": {"address": "0.0.0.0", "port": 8000, "keys": False},
        "office": {"address": "0.0.0.0", "port": 8443, "tls": True, "names": ["llm.example.org", address]},
    }
    inventory = write_inventory(tmp_path, lab, converged, instances=CHAT, gateway={"listeners": listeners})
    deploy(inventory)
    made = run_rigwright("key", "make", str(inventory), "verifier")
    assert made.returncode == 0, made.stderr
    (tmp_path / "client.key").write_text(made.stdout)
    key = ("--key-file", str(tmp_path / "client.key"))
    for options in (("--listener", "lan"), ("--listener", "office", *key)):
        done = run_rigwright("check", "--serving", str(inventory), "--json", "--gateway", *options)
        (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
        found = {check["check"]: check["verdict"] for check in one["checks"]}
        assert (one["ended"], one["gateway"], found["server"], found["completion"]) == ("", True, "ok", "skip"), one
    (tmp_path / "client.key").write_text("wrong\n")
    done = run_rigwright("check", "--serving", str(inventory), "--json", "--gateway", "--listener", "office", *key)
    (one,) = json.loads(done.stdout)["hosts"][0]["instances"]
    assert (one["checks"][0]["verdict"], "401" in one["checks"][0]["detail"]) == ("fail", True)
    assert look_at_instance(inventory)[1]["state"] == "ready"
