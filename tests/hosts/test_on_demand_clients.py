"""Clients of a gateway whose two models do not fit together: none loses a request, whatever is killed or reloaded."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.on_demand_host import BUDGET, GATEWAY_PORT, OnDemandBox, write_operator_folder
from benchmarks.on_demand_load import RandomLoad
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import LOG
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import red_check_lines, run_deploy

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
RESIDENCE_S = 2
ON_DEMAND = {"host_memory": BUDGET, "residence": RESIDENCE_S}
CLIENTS, SECONDS, TOKENS = 8, 60.0, 8
# a proof of each, and a load of each for clients
FEWEST_LOADS = 4
LOAD = RandomLoad(f"127.0.0.1:{GATEWAY_PORT}", ("one", "two"), CLIENTS, SECONDS, TOKENS)
DISTURBANCES = (
    "systemctl kill --signal=KILL rigwright_residency.service",
    "systemctl reload rigwright_gateway.service",
    "systemctl restart rigwright_residency.service",
    "systemctl kill --signal=KILL rigwright_router.service",
)


@pytest.fixture
def box(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[OnDemandBox]:
    host = boot(first_run.layer)
    inventory = write_operator_folder(tmp_path, lab, host, {"one": {}, "two": {}}, ON_DEMAND)
    run = run_deploy(inventory)
    assert run.status == 0, run.said
    yield OnDemandBox(host, inventory, ("one", "two"))


def disturb(box: OnDemandBox, ended: threading.Event) -> None:
    """Kill, restart and reload by turns, until told to end."""
    number = 0
    while not ended.wait(4.0):
        box.host.run(DISTURBANCES[number % len(DISTURBANCES)])
        number += 1


def test_clients_of_two_models_that_do_not_fit_lose_no_request(box: OnDemandBox) -> None:
    ended = threading.Event()
    other = threading.Thread(target=disturb, args=(box, ended))
    other.start()
    try:
        rows = box.run_load(LOAD)
    finally:
        ended.set()
        other.join()
    assert [one for one in rows if one.problem] == []
    assert {one.model for one in rows} == {"one", "two"}
    assert {one.tokens for one in rows} == {TOKENS}
    assert any(one.comments for one in rows if one.stream)

    lines = [json.loads(line) for line in box.host.run(f"cat {LOG}").splitlines()]
    assert sum(int(line["completion_tokens"] or 0) for line in lines) == sum(one.tokens for one in rows)

    loads = load_seconds(box)
    answers = max(one.total_s - one.first_s for one in rows if one.stream)
    # a model waits at most for the other one's turn, and each turn for its last answers
    longest = max(rows, key=lambda one: one.first_s)
    bound = 2 * (max(loads.values()) + RESIDENCE_S + 2 * answers) + 10
    assert longest.first_s <= bound, (longest, loads, answers)
    # also by what was measured, one at a time
    journal = box.host.run("journalctl --unit=rigwright_residency --output=cat --no-pager")
    assert sum(journal.count(f"{name} is starting") for name in ("one", "two")) >= FEWEST_LOADS
    assert len(box.loaded()) <= 1
    assert red_check_lines(box.inventory) == {}


def load_seconds(box: OnDemandBox) -> dict[str, float]:
    """Of each instance's last load, as the ledger has it."""
    ledger = json.loads(box.host.run("cat /var/lib/rigwright/residency/ledger.json"))
    return {name: float(row["load_seconds"]) for name, row in ledger["instances"].items()}
