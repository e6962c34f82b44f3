"""The whole path: a blank host, an answered chat, and the same again."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from openai import AuthenticationError, OpenAI

from lab.hosts import LabHost
from lab.ssh_tunnel import forward_port
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from rigwright.toml import tomllib
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.drift_tables import CHANGED_ONLY
from tests.hosts.host_layers import BlankHostPlan, CompiledEngine, assert_compilation_continued
from tests.hosts.support import (
    KEY_FILE,
    PORT,
    api_key,
    check_verdicts,
    deploy,
    is_serving,
    on_both,
    red_checks,
    run_deploy,
    run_plan,
    write_inventory,
)

# Logging in and running commands is itself logged; nothing else may be written by a run that changes nothing.
LOGS = re.compile(r"/var/log/(journal/.*|wtmp(\.db)?|lastlog|btmp)")
RUNNING = re.compile(
    rf"{LOGS.pattern}|/var/lib/rigwright/(self_check/\w+\.jsonl?|memory/([a-z]+\.json|\.[a-z]+\.lock))"
)
"""The files that a host writes while nothing happens to it: logs, results of its own check, memory of its start."""
NOT_RUN = Path(__file__).with_name("not_run_without_cards.toml")


def left_out(verdicts: dict[str, str]) -> set[str]:
    """The skipped checks, where all checks of the driver and of cards are one: N. These hosts were never reviewed."""
    nvidia = {identifier for identifier in verdicts if identifier.startswith("N")}
    skipped = {identifier for identifier, word in verdicts.items() if word == "skip"}
    assert nvidia <= skipped
    return skipped - nvidia - CHANGED_ONLY - {"X01"} | {"N"}


def changed_paths(host: LabHost, since_ns: int) -> list[str]:
    return [path for path in host.changed_paths(since_ns) if not RUNNING.fullmatch(path)]


def test_a_plan_of_a_blank_host_writes_nothing(blank_plan: BlankHostPlan) -> None:
    assert blank_plan.plan.status == 0
    assert [path for path in blank_plan.written if not LOGS.fullmatch(path)] == []


@pytest.mark.all_only  # and wherever no engine is kept: the fixture `engine_layer`
def test_a_controller_killed_while_compiling_leaves_the_job_running_and_the_next_run_watches_it(
    compiled: CompiledEngine,
) -> None:
    assert_compilation_continued(compiled)


@on_both
def test_a_converged_host_passes_every_check_that_needs_no_card(inventory: Path) -> None:
    verdicts = check_verdicts(inventory)
    assert {i for i, word in verdicts.items() if word == "FAIL"} == set()
    listed = tomllib.loads(NOT_RUN.read_text())
    assert left_out(verdicts) == set(listed["checks"])


def test_a_second_run_changes_nothing(inventory: Path, converged: LabHost) -> None:
    before = time.time_ns()
    assert run_plan(inventory).planned_operations == []
    assert run_deploy(inventory).changed_operations == []
    assert changed_paths(converged, before) == []


@on_both
def test_a_reboot_changes_nothing(inventory: Path, converged: LabHost) -> None:
    converged.reboot()
    assert run_deploy(inventory).changed_operations == []
    assert is_serving(converged)
    assert red_checks(inventory) == set()


def test_a_user_with_sudo_is_enough_and_the_plan_of_a_blank_host_is_what_the_run_does(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, blank_plan: BlankHostPlan, tmp_path: Path
) -> None:
    host = boot(first_run.engine_layer)
    host.run(
        "useradd --create-home ops && cp -r /root/.ssh /home/ops/ && chown -R ops /home/ops/.ssh "
        "&& echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops"
    )
    inventory = write_inventory(tmp_path, lab, host, ssh_user="ops", _sudo=True)
    planned = run_plan(inventory).planned_operations
    run = deploy(inventory)
    assert planned == run.changed_operations
    ran = [row["name"] for row in run.report["results"]["operations"]]
    listed = tomllib.loads(NOT_RUN.read_text())["operations"]
    assert [row["name"] for row in run.report["plan"] if row["name"] not in ran] == list(listed)
    # with the engine there, all that a blank host lacks but its source and the compilation
    lacking = [name for name in blank_plan.plan.planned_operations if name not in planned]
    assert lacking == ["Engines | Fetch source of llama.cpp", "Engines | Install llama.cpp"]
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


@on_both
def test_clients_are_answered_and_strangers_are_not(converged: LabHost) -> None:
    with forward_port(converged, PORT) as port:
        url = f"http://127.0.0.1:{port}/v1"
        client = OpenAI(base_url=url, api_key=api_key(converged))
        question = [{"role": "user", "content": "Are you there?"}]
        reply = client.chat.completions.create(model="tiny-rig", messages=question)
        assert (reply.choices[0].message.content or "").strip() == ANSWER
        assert reply.choices[0].finish_reason == "stop"

        stream = client.chat.completions.create(model="tiny-rig", messages=question, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert len(pieces) > 1
        assert "".join(pieces).strip() == ANSWER

        with pytest.raises(AuthenticationError):
            OpenAI(base_url=url, api_key="wrong").chat.completions.create(model="tiny-rig", messages=question)
        bare = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"{url}/models"]
        assert subprocess.run(bare, capture_output=True, text=True).stdout == "401"
    header = f"sed 's/^/Authorization: Bearer /' {KEY_FILE}"
    said = converged.run(f"{header} | curl -s -H @- http://127.0.0.1:{PORT}/v1/models")
    assert '"tiny-rig"' in said


def test_an_instance_that_is_not_declared_any_more_is_gone(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    chat = {"variant": "llamacpp/demo", "port": PORT}
    both = write_inventory(tmp_path / "both", lab, converged, instances={"chat": chat, "two": {**chat, "port": 8021}})
    planned = run_plan(both).planned_operations
    run = deploy(both)
    assert run.changed_operations == planned
    assert red_checks(both) == set()
    pid = int(converged.run("systemctl show --property=MainPID --value rigwright-two"))

    one = write_inventory(tmp_path / "one", lab, converged)
    assert "S10" in red_checks(one)
    planned = run_plan(one).planned_operations
    run = run_deploy(one)
    assert (run.status, run.changed_operations) == (0, planned), run.said
    assert converged.run("ls /etc/systemd/system").count("two") == 0
    # a rollback would need it
    assert converged.run("ls /etc/rigwright/credentials").split() == ["chat.api-key", "two.api-key"]
    assert converged.run("systemctl list-units --all --plain --no-legend 'rigwright-two*'") == ""
    assert converged.run("ss -Hltn 'sport = :8021'") == ""
    assert converged.run(f"ls -d /proc/{pid} 2>/dev/null || true") == ""
    assert is_serving(converged)
    assert red_checks(one) == set()


@pytest.mark.all_only
def test_two_instances_can_swap_their_ports(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    def both(chat: int, two: int) -> Path:
        variant = "llamacpp/demo"
        instances = {"chat": {"variant": variant, "port": chat}, "two": {"variant": variant, "port": two}}
        return write_inventory(tmp_path / str(chat), lab, converged, instances=instances)

    deploy(both(PORT, PORT + 1))
    swapped = both(PORT + 1, PORT)
    planned = run_plan(swapped).planned_operations
    run = run_deploy(swapped)
    assert (run.status, run.changed_operations) == (0, planned), run.said
    assert red_checks(swapped) == set()
    assert run_deploy(swapped).changed_operations == []


def test_one_host_out_of_reach_leaves_the_others_deployed_and_checked(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    good = write_inventory(tmp_path / "good", lab, converged)
    text = good.read_text().replace("{'box':", "{'gone': {'ssh_hostname': '127.0.0.1', 'ssh_port': 9}, 'box':")
    both = tmp_path / "both.py"
    both.write_text(text)
    assert run_deploy(both).status == 1
    done = subprocess.run([sys.executable, "-m", "cli", "check", str(both)], capture_output=True, text=True)
    assert done.returncode == 3
    assert "gone: cannot be reached" in done.stdout
    assert "box: conforms" in done.stdout
