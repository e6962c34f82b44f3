"""Each process of two models on demand is killed at each step of a wake and an eviction; power is cut; a card fails."""

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.on_demand_host import BUDGETS, GATEWAY_PORT, OnDemandBox, write_operator_folder
from benchmarks.on_demand_load import RandomLoad, RandomRequest
from benchmarks.stand_in_card import install_card, need_of_device
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import red_check_lines, run_deploy, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
MODELS = ("one", "two")
RESIDENCE_S = 2
ON_DEMAND = {"host_memory": BUDGETS[1], "residence": RESIDENCE_S}
TOKENS, HOUR_S, STEP_LIMIT_S = 8, 3600.0, 90
LOAD = RandomLoad(f"127.0.0.1:{GATEWAY_PORT}", MODELS, 6, HOUR_S, TOKENS)
PROGRAM = Path(__file__).with_name("kill_at_step.py").read_text()
WAKE = ("waiting", "ordered", "starting", "loading", "answered")
EVICTION = ("announced", "stopping", "stopped")
# step -> the processes that run at it
ALWAYS = ("residency", "router", "nginx", "worker")
CASES = {
    **dict.fromkeys((*WAKE, *EVICTION), ALWAYS),
    **dict.fromkeys(("starting", "loading", "answered"), (*ALWAYS, "starting")),
    **dict.fromkeys(("waiting", "announced", "stopping"), (*ALWAYS, "leaving")),
}
CASES["loading"] += ("recorder",)
MIB_NEEDED, MIB_TOTAL = 700, 1200
# nvidia-smi is asked while a model is to start; one that hangs is killed after 20 s
CARD_FAULTS: tuple[str, ...] = ("nvidia-smi", "status", "rubbish", "half")
CARD_CASES = {
    **dict.fromkeys(("announced", "stopping", "loading"), CARD_FAULTS),
    **dict.fromkeys(("waiting", "stopped"), (*CARD_FAULTS, "hang")),
}

# seconds before the next start of an instance with an engine that was killed in each of its cases
LONGEST_PAUSE_S = 80.0
# the ledger counts from its look at the box, and its line comes once the gateway, which may have been killed, answers
CLOCK_S = 0.5
HEALTH = f"curl -sf http://127.0.0.1:{GATEWAY_PORT}/health"
# SD_MESSAGE_UNIT_STARTING
UNIT_STARTS = "MESSAGE_ID=7d4958e842da4a758f6c1cdc7b36dcc5"


@dataclass(frozen=True)
class Kill:
    """One kill, as the program on the host reports it."""

    step: str
    process: str
    at: float
    """By the monotonic clock, which all throwaway hosts share."""
    back: float
    """When all parts ran again."""
    arriving: str
    leaving: str

    @property
    def engine_of(self) -> str:
        """The model whose engine was killed; empty for another process."""
        return {"starting": self.arriving, "leaving": self.leaving}.get(self.process, "")


@pytest.fixture
def box(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[OnDemandBox]:
    host = boot(first_run.layer)
    inventory = write_operator_folder(tmp_path, lab, host, {name: {} for name in MODELS}, ON_DEMAND)
    run = run_deploy(inventory)
    assert run.status == 0, run.said
    yield OnDemandBox(host, inventory, MODELS)


def kill_at_steps(box: OnDemandBox, cases: list[str], zero: float) -> tuple[list[Kill], int]:
    """Kill a process at each step; the kills, by seconds since a zero, and the most engines at the same time."""
    command = shlex.join(["python3", "-I", "-c", PROGRAM, str(STEP_LIMIT_S), *cases])
    done = subprocess.run(box.host.ssh_command(command), capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (done.stderr[-2000:], rows[-2:])
    kills = [Kill(*(row[key] for key in Kill.__dataclass_fields__)) for row in rows[:-1]]
    return [replace(kill, at=kill.at - zero, back=kill.back - zero) for kill in kills], rows[-1]["most"]


def is_served(box: OnDemandBox, name: str) -> bool:
    """Whether a model answers now."""
    (one,) = box.run_load(replace(LOAD, models=(name,), clients=1, requests=1))
    return not one.problem


def says_why(one: RandomRequest) -> bool:
    """Whether the client got the reason of the end: by a status, or by the last event of its stream. nginx relays a
    stream that has not waited for a load, and cuts it off.
    """
    is_cut = one.stream and not one.comments and one.problem == "the stream ended early"
    return is_cut or one.status >= 500 or one.problem.startswith("error event")


def is_explained(one: RandomRequest, kill: Kill) -> bool:
    """Whether a kill explains the end of a request."""
    ended = one.began + one.total_s
    if kill.process in ("nginx", "worker"):
        # its connections end with it; those that come later wait in the socket, which systemd holds
        return one.began <= kill.back and ended >= kill.at
    # until the pause before the next start is over
    return one.model == kill.engine_of and one.began - LONGEST_PAUSE_S <= kill.at <= ended and says_why(one)


def journal(box: OnDemandBox, since: float, *filters: str) -> list[tuple[float, str]]:
    """Time and text of each line of this boot's journal from a time on."""
    options = ("--boot", f"--since=@{since:.3f}", "--output=short-unix", "--no-pager", "--quiet")
    command = ("journalctl", *options, *filters)
    lines = (line.split(maxsplit=3) for line in box.host.run(shlex.join(command)).splitlines())
    return [(float(line[0]), line[3]) for line in lines if len(line) == 4]


def assert_each_start_was_decided(box: OnDemandBox, since: float) -> None:
    """Nothing is started twice, and each model stays loaded for its residence unless its engine ends."""
    decided = journal(box, since, "--unit=rigwright_residency", "_COMM=python3")
    for name in box.models:
        of_unit = journal(box, since, UNIT_STARTS, f"UNIT=rigwright-{name}.service")
        own = [(at, text) for at, text in decided if text.startswith(f"{name} is ")]
        starts = sum(text.startswith(f"{name} is starting") for _, text in own)
        assert 0 < len(of_unit) <= starts, (name, of_unit, own)
        began = 0.0
        for at, text in own:
            if text == f"{name} is awake":
                # one that was about to leave, and stays after all, is awake again
                began = began or at
            elif text == f"{name} is stopping":
                assert at - began >= RESIDENCE_S - CLOCK_S, (name, began, at)
            began = began if text == f"{name} is awake" else 0.0


def test_a_kill_at_any_step_ends_only_requests_of_the_killed_process(box: OnDemandBox) -> None:
    cases = [f"{step}:{process}" for step, processes in CASES.items() for process in processes]
    zero, since = time.monotonic(), time.time()
    with box.begin_load(replace(LOAD, zero=zero)) as clients:
        kills, most = kill_at_steps(box, cases, zero)
        rows = clients.finish()
    for name in MODELS:
        # the pause after its last end is over, and it counts as failed no longer
        wait_until(partial(is_served, box, name), f"an answer of {name}")
    ended = [one for one in rows if one.problem]
    refused = sum(one.is_refusal or "asleep" in one.problem for one in ended)
    print(f"{len(cases)} kills, {len(rows)} requests, {len(ended)} ended, {refused} of these refused in a pause")
    assert len(kills) == len(cases)
    assert [one for one in ended if not any(is_explained(one, kill) for kill in kills)] == []
    assert {one.tokens for one in rows if not one.problem} == {TOKENS}
    assert {one.model for one in rows if not one.problem} == set(MODELS)
    assert most == 1
    assert_each_start_was_decided(box, since)
    assert red_check_lines(box.inventory) == {}


def test_a_faulty_nvidia_smi_at_any_step_ends_no_request(box: OnDemandBox) -> None:
    install_card(box.host, MIB_TOTAL)
    need_of_device(box.host, "0", MIB_NEEDED)
    cases = [f"{step}:{fault}" for step, faults in CARD_CASES.items() for fault in faults]
    zero, since = time.monotonic(), time.time()
    with box.begin_load(replace(LOAD, zero=zero)) as clients:
        kills, most = kill_at_steps(box, cases, zero)
        rows = clients.finish()
    print(f"{len(kills)} faults, {len(rows)} requests, the longest {max(one.total_s for one in rows):.1f} s")
    assert len(kills) == len(cases)
    assert [one for one in rows if one.problem] == []
    assert most == 1
    assert_each_start_was_decided(box, since)
    ledger = json.loads(box.host.run("cat /var/lib/rigwright/residency/ledger.json"))["instances"]
    assert {name for name, row in ledger.items() if row["phase"] == "awake"} == box.loaded()
    assert box.host.run("systemctl show --property=NRestarts --value rigwright_residency").strip() == "0"


def test_a_power_cut_at_a_step_ends_what_is_under_way_and_nothing_later(box: OnDemandBox) -> None:
    zero, since = time.monotonic(), time.time()
    cuts = []
    with box.begin_load(replace(LOAD, zero=zero)) as clients:
        for step in ("announced", "stopped", "loading"):
            kill_at_steps(box, [f"{step}:none"], zero)
            cut = time.monotonic() - zero
            box.host.kill()
            box.host.start()
            box.host.wait()
            wait_until(lambda: box.host.run(HEALTH, check=False), "the gateway")
            cuts.append((cut, time.monotonic() - zero))
            # from here on nothing is killed: both models are asked for, and take turns
            _, most = kill_at_steps(box, ["answered:none", "stopped:none", "answered:none"], zero)
            assert most == 1
            assert_each_start_was_decided(box, since)
        rows = clients.finish()
    lost = [one for one in rows if one.problem]
    print(len(rows), "requests", len(lost), "lost with the host", cuts)
    assert lost
    assert [
        one for one in lost if not any(one.began <= back and one.began + one.total_s >= cut for cut, back in cuts)
    ] == []
    assert red_check_lines(box.inventory) == {}
