"""Clients of a gateway whose two models do not fit together: none loses a request, whatever is killed or reloaded."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.on_demand_host import BUDGETS, GATEWAY_PORT, OnDemandBox, disturb_regularly, write_operator_folder
from benchmarks.on_demand_load import RandomLoad
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import LOG
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import deploy, red_check_lines

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
RESIDENCE_S = 2
ON_DEMAND = {"host_memory": BUDGETS[1], "residence": RESIDENCE_S}
CLIENTS, SECONDS, TOKENS = 8, 60.0, 8
# a proof of each, and a load of each for clients
FEWEST_LOADS = 4
LOAD = RandomLoad(f"127.0.0.1:{GATEWAY_PORT}", ("one", "two"), CLIENTS, SECONDS, TOKENS)
DISTURBED_EVERY_S = 4.0


@pytest.fixture
def box(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[OnDemandBox]:
    host = boot(first_run.layer)
    inventory = write_operator_folder(tmp_path, lab, host, {"one": {}, "two": {}}, ON_DEMAND)
    deploy(inventory)
    yield OnDemandBox(host, inventory, ("one", "two"))


def test_clients_of_two_models_that_do_not_fit_lose_no_request(box: OnDemandBox) -> None:
    with disturb_regularly(box.host, DISTURBED_EVERY_S):
        rows = box.run_load(LOAD)
    assert [one for one in rows if one.problem] == []
    assert {one.model for one in rows} == {"one", "two"}
    assert {one.tokens for one in rows} == {TOKENS}
    assert any(one.comments for one in rows if one.stream)

    lines = [json.loads(line) for line in box.host.run(f"cat {LOG}").splitlines()]
    assert sum(int(line["completion_tokens"] or 0) for line in lines) == sum(one.tokens for one in rows)

    loads = box.load_seconds()
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
