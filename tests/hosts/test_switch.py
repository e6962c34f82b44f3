"""Another variant for an instance behind a gateway, on a real host with real llama.cpp, while clients ask."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from cli.lock_resolver.checkpoint_inspection import parse_header
from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from rigwright.supply.lock import Lock, render_lock
from tests.hosts.gateway_box import DEMO, QUESTION, SLOW, GatewayBox, run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.steady_load import run_load
from tests.hosts.support import deploy, red_checks, run_deploy, wait_until
from tests.lock_files import render_sealed_lock

BROKEN = "broken-rig"
# Of the model whose answers take a while, as tests/hosts/gateway_box.py has it; and one that does not start.
VARIANTS = f"""
[variants."llamacpp/slow-two"]
engine = "llama.cpp"
model = "{SLOW}"
context = 8192
parallel = 4
flags.threads = "1"

[variants."llamacpp/slow-none"]
engine = "llama.cpp"
model = "{SLOW}"
context = 8192
parallel = 4
flags.threads = "1"
flags.json-schema = '{{"type": 5}}'

[variants."llamacpp/slow-empty"]
engine = "llama.cpp"
model = "{SLOW}"
context = 8192
parallel = 4
flags.threads = "1"
flags.grammar = 'root ::= ""'

[variants."llamacpp/broken"]
engine = "llama.cpp"
model = "{BROKEN}"
context = 8192
flags.threads = "1"

[models.{BROKEN}]
file = "{BROKEN}"

[inputs.{BROKEN}]
kind = "weight"
version = "1"
sources = ["shelf:{BROKEN}.gguf"]
"""
DRAIN = 5


@pytest.fixture(scope="module")
def box(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayBox]:
    """A host with one instance behind a gateway."""
    (host,) = lab.up([HostSpec(f"s{release[-2:]}", release, (first_run.layer,))])
    made = GatewayBox(lab, host, tmp_path_factory.mktemp("switch"))
    made.prepare()
    (made.folder / "catalog/switch.toml").write_text(VARIANTS)
    break_off(made)
    deploy(write_variant(made))
    yield made
    host.destroy()


def break_off(box: GatewayBox) -> None:
    """A file of weights that its lock has, and that is no model."""
    content = b"GGUF" + os.urandom(1 << 16)
    (box.lab.shelf_folder / f"{BROKEN}.gguf").write_bytes(content)
    row = {"kind": "weight", "name": BROKEN, "version": "1", "file": f"{BROKEN}.gguf"}
    row["sha256"] = hashlib.sha256(content).hexdigest()
    lines = [f'{key} = "{value}"' for key, value in row.items()]
    lines += [f"size = {len(content)}", f'sources = ["shelf:{BROKEN}.gguf"]']
    (box.folder / "locks/broken.lock.toml").write_text(render_sealed_lock("\n".join(["[[artefact]]", *lines, ""])))


def lock(box: GatewayBox, *, told: bool) -> None:
    """Lock the slow model, with what its header says of memory or without."""
    weight = box.lab.shelf_folder / f"{SLOW}.gguf"
    size = weight.stat().st_size

    def beginning(count: int) -> bytes:
        with weight.open("rb") as file:
            return file.read(count)

    path = box.folder / "locks/slow.lock.toml"
    row = Lock.load([box.folder / "locks"]).artefacts[SLOW]
    known = parse_header(weight.name, size, beginning) if told else None
    path.write_text(render_lock([row.model_copy(update={"header": known})], "slow.toml"))


def write_variant(box: GatewayBox, variant: str = "llamacpp/slow", **changes: Any) -> Path:
    return box.write_gateway_inventory(
        {"chat": {**DEMO, "variant": variant}},
        aliases={},
        models={"chat": {"instances": ["chat"]}},
        drain=DRAIN,
        **changes,
    )


def switch(box: GatewayBox, *words: str) -> subprocess.CompletedProcess[str]:
    # the model knows nothing, which its answers show
    return run_rigwright("switch", str(box.folder / "rig.py"), "chat", "--unverified", *words)


def serves(box: GatewayBox) -> str:
    """The variant that the host's own manifest says."""
    said = json.loads(box.host.run("cat /etc/rigwright/current/manifest.json"))
    return str(said["instances"]["chat"]["variant"])


def generation(box: GatewayBox) -> str:
    return box.host.run("readlink /etc/rigwright/current")


@pytest.mark.parametrize(
    "room", [True, pytest.param(False, marks=pytest.mark.all_only)], ids=["beside", "in its place"]
)
def test_no_client_loses_an_answer_while_another_variant_comes(box: GatewayBox, room: bool) -> None:
    lock(box, told=room)
    inventory = write_variant(box)
    deploy(inventory)
    before = inventory.read_text()
    with run_load(box.url()) as clients:
        done = switch(box, "llamacpp/slow-two")
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"{len(clients.answered)} answered, {len(clients.told)} get 503, longest silence {clients.longest_gap:.1f} s")
    assert clients.wrong == []
    assert bool(clients.told) != room
    assert ("no downtime" in done.stdout) == room
    assert ("its lock has no memory figures" in done.stdout) != room
    assert box.host.run("find /run -name 'rigwright_beside*' -o -name '*.beside'") == ""
    assert inventory.read_text() == before.replace("llamacpp/slow", "llamacpp/slow-two")
    assert "chat: llamacpp/slow -> llamacpp/slow-two" in done.stdout
    assert serves(box) == "llamacpp/slow-two"
    assert red_checks(inventory) == set()
    # once more changes nothing
    now = generation(box), box.host.run("systemctl show --property=MainPID rigwright-chat")
    again = switch(box, "llamacpp/slow-two")
    assert again.returncode == 0, again.stdout + again.stderr
    assert (generation(box), box.host.run("systemctl show --property=MainPID rigwright-chat")) == now
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_a_variant_that_does_not_serve_gives_way_to_the_old_one(box: GatewayBox) -> None:
    lock(box, told=False)
    inventory = write_variant(box)
    deploy(inventory)
    before, was = inventory.read_text(), generation(box)
    start = float(box.host.run("systemctl show --value --property=ActiveEnterTimestampMonotonic rigwright-chat"))
    start -= float(box.host.run("systemctl show --value --property=InactiveExitTimestampMonotonic rigwright-chat"))
    with run_load(box.url()) as clients:
        done = switch(box, "llamacpp/broken")
    print(f"own start {start / 1e6:.1f} s, longest silence {clients.longest_gap:.1f} s, {len(clients.told)} get 503")
    assert done.returncode == 1
    assert "failed to load model" in done.stdout + done.stderr
    assert "is as it was" in done.stderr
    assert (inventory.read_text(), generation(box), serves(box)) == (before, was, "llamacpp/slow")
    assert clients.wrong == []
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_a_variant_that_answers_wrongly_gives_way_to_the_old_one(box: GatewayBox) -> None:
    lock(box, told=False)
    inventory = write_variant(box)
    deploy(inventory)
    before = inventory.read_text()
    start = float(box.host.run("systemctl show --value --property=ActiveEnterTimestampMonotonic rigwright-chat"))
    start -= float(box.host.run("systemctl show --value --property=InactiveExitTimestampMonotonic rigwright-chat"))
    done = run_rigwright("switch", str(inventory), "chat", "llamacpp/slow-empty")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "llamacpp/slow-empty fails: it answers a question" in done.stderr
    assert "chat serves llamacpp/slow again" in done.stderr
    assert (inventory.read_text(), serves(box)) == (before, "llamacpp/slow")
    again = float(box.host.run("systemctl show --value --property=ActiveEnterTimestampMonotonic rigwright-chat"))
    again -= float(box.host.run("systemctl show --value --property=InactiveExitTimestampMonotonic rigwright-chat"))
    print(f"own start {start / 1e6:.1f} s, again {again / 1e6:.1f} s")
    assert again < start + 10e6
    assert requests.post(box.url(), json={"model": "chat", "messages": QUESTION, "max_tokens": 1}, timeout=60).ok
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_once_leaves_the_file_and_status_says_so_until_the_next_deploy(box: GatewayBox) -> None:
    inventory = write_variant(box)
    deploy(inventory)
    before = inventory.read_text()
    done = switch(box, "llamacpp/slow-two", "--once")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (inventory.read_text(), serves(box)) == (before, "llamacpp/slow-two")
    said = run_rigwright("status", str(inventory)).stdout
    assert "the inventory differs" in said
    assert "chat serves llamacpp/slow-two until the next deploy: the inventory has llamacpp/slow\n" in said
    (told,) = json.loads(run_rigwright("status", str(inventory), "--json").stdout)
    assert [(one["variant"], one["declared"]) for one in told["instances"]] == [("llamacpp/slow-two", "llamacpp/slow")]
    listed = run_rigwright("switch", str(inventory), "chat", "--list").stdout
    assert [line.split()[-1] for line in listed.splitlines() if line.startswith("llamacpp/slow ")] == ["declared"]
    assert [line.split()[-1] for line in listed.splitlines() if line.startswith("llamacpp/slow-two")] == ["served"]
    deploy(inventory)
    assert serves(box) == "llamacpp/slow"
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_a_silent_standby_costs_clients_nothing(box: GatewayBox) -> None:
    lock(box, told=True)
    inventory = write_variant(box)
    deploy(inventory)
    before = inventory.read_text(), generation(box), box.host.run("systemctl show --property=MainPID rigwright-chat")
    with run_load(box.url()) as clients:
        done = switch(box, "llamacpp/slow-none")
    assert done.returncode == 1
    assert "rigwright_beside-chat.service did not become ready" in done.stdout + done.stderr
    assert (clients.wrong, clients.told) == ([], [])
    now = inventory.read_text(), generation(box), box.host.run("systemctl show --property=MainPID rigwright-chat")
    assert now == before
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_an_activation_that_is_killed_while_both_run_leaves_the_old_one(box: GatewayBox) -> None:
    lock(box, told=True)
    inventory = write_variant(box)
    deploy(inventory)
    command = [sys.executable, "-m", "cli", "switch", str(inventory), "chat", "--unverified", "llamacpp/slow-two"]
    with run_load(box.url()) as clients:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        box.host.run(
            "until systemctl is-active --quiet rigwright_beside-chat; do sleep 0.05; done; "
            "systemctl kill --signal=KILL rw-job-activate"
        )
        assert running.wait() == 1
        wait_until(
            lambda: box.host.run("systemctl is-active rigwright_beside-chat || true").strip() != "active", "ended"
        )
        done = switch(box, "llamacpp/slow-two")
        assert done.returncode == 0, done.stdout + done.stderr
    assert clients.wrong == []
    assert serves(box) == "llamacpp/slow-two"
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_one_that_is_killed_in_the_middle_is_finished_by_the_same_again(box: GatewayBox) -> None:
    inventory = write_variant(box)
    deploy(inventory)
    command = [sys.executable, "-m", "cli", "switch", str(inventory), "chat", "--unverified", "llamacpp/slow-two"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    active = "systemctl is-active rw-job-activate || true"
    wait_until(lambda: box.host.run(active).strip() in ("active", "activating"), "an activation")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    # work under way on the host is finished there
    wait_until(lambda: serves(box) == "llamacpp/slow-two" and box.host.run(active).strip() == "inactive", "finished")
    assert "llamacpp/slow-two" in inventory.read_text()
    done = switch(box, "llamacpp/slow-two")
    assert done.returncode == 0, done.stdout + done.stderr
    assert red_checks(inventory) == set()
    assert requests.post(box.url(), json={"model": "chat", "messages": QUESTION, "max_tokens": 1}, timeout=60).ok
