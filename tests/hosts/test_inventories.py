"""Each inventory that is shipped comes up: locked, deployed on hosts with stand-in cards, checked, and left alone.

docs/reference/evidence.md, "Never shown", lists the parts that no throwaway host can show.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.engines import kind_of
from rigwright.model.gateway_schema import ListenerEntry
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from tests.hosts.shipped.shipped_boxes import RELEASE, ShippedBoxes, ShippedServers, serve_shipped
from tests.hosts.support import api_key, red_check_lines, run_deploy
from tests.stand_ins.nvidia.signing_keys import SigningKey

pytestmark = pytest.mark.parametrize("release", [RELEASE], indirect=True)
SAID = {"llama.cpp": "The rig is alive", "vllm": "alive"}
"""The answer of the real llama.cpp with the tiny model, and of the stand-in for vLLM."""
LACKING = {"L03"}
"""The red checks of such hosts: the Python of their channel is this machine's, and is of another patch release."""
NAMES = [
    pytest.param("rig3090", marks=pytest.mark.all_only),
    pytest.param("rig2080ti", marks=pytest.mark.all_only),
    pytest.param("rig5090", marks=pytest.mark.all_only),
    pytest.param("rig5090two", marks=pytest.mark.all_only),
    pytest.param("rig5090solo", marks=pytest.mark.all_only),
    pytest.param("fleet", marks=pytest.mark.all_only),
]


@pytest.fixture(scope="module")
def shipped_servers(
    lab: ThrowawayLab, key: SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ShippedServers]:
    """The sources of all of them."""
    lab.up([])  # its network, for what is served there
    with serve_shipped(lab, key, tmp_path_factory.mktemp("channel")) as found:
        yield found


@pytest.fixture
def boxes(shipped_servers: ShippedServers, undriven_layer: str, name: str, tmp_path: Path) -> Iterator[ShippedBoxes]:
    """The hosts of one of them, with all there but what a deploy brings to boxes with cards."""
    one = ShippedBoxes(shipped_servers, name, tmp_path / "box")
    try:
        one.boot(undriven_layer)
        yield one
    finally:
        one.destroy()


@pytest.mark.parametrize("name", NAMES)
def test_it_comes_up(boxes: ShippedBoxes, engine_layer: str, name: str) -> None:
    boxes.lock()
    assert boxes.rigwright("validate").endswith("valid\n")
    boxes.install_engines(engine_layer)
    planned = json.loads(boxes.rigwright("plan", "--json"))
    assert {host["host"]: host["refused"] for host in planned} == {host: [] for host in boxes.hosts}
    before = len(boxes.made.index.asked), len(boxes.made.hub.asked)
    # as its first lines say: one box of a fleet, and when that serves all
    for limit in (["--limit", "rig3090-two"], []) if name == "fleet" else ([],):
        run = run_deploy(boxes.inventory, "--yes", "--data", "reboot=true", *limit)
        assert run.status == 0, run.said[-6000:]
    if name == "fleet":
        fetched_once(boxes.made, *before)
    for rig in boxes.rigs.values():
        comes_up(boxes.hosts[rig.name], rig)
    boxes.report_computing()
    assert {check for check in red_check_lines(boxes.inventory) if check not in LACKING} == set()
    again = run_deploy(boxes.inventory)
    assert (again.status, again.changed_operations) == (0, []), again.said[-6000:]


def comes_up(host: LabHost, rig: Rig) -> None:
    """Assert that a box serves all that it declares, through its gateway too, and that its cards are set so."""
    assert [answer(host, one) for one in rig.instances] == [SAID[kind_of(one).name] for one in rig.instances]
    found = limits(host)
    assert found == [
        now if limit is None else limit
        for now, limit in zip(found, rig.driver.power_limits(len(rig.cards)), strict=True)
    ]
    for listener in rig.gateway.listeners.values() if rig.gateway else ():
        offered = {name for name in (*rig.gateway.models, *rig.gateway.aliases) if is_offered(rig, listener, name)}
        status = 401 if listener.keys else 200
        assert {name: through(host, listener.port, name) for name in offered} == dict.fromkeys(offered, status)


def fetched_once(made: ShippedServers, packages: int, weights: int) -> None:
    """Assert that what boxes share came from outside to one of them alone.

    Args:
        made: Their sources.
        packages: So many questions to the index came before.
        weights: The same of the hub.
    """
    asked = [*made.index.asked[packages:], *made.hub.asked[weights:]]
    got = [one.path for one in asked if one.method == "GET"]
    assert len([path for path in got if "/vllm-0.21.0-" in path]) == 1
    # from the hub's second server, where it leads to
    assert len([path for path in got if "int4-AutoRound" in path and "/cdn/" in path]) == 1


def answer(host: LabHost, one: Instance) -> str:
    """An instance's answer to a question, at its own port and with its key."""
    body = json.dumps({"model": one.model_name, "messages": [{"role": "user", "content": "Hello?"}]})
    asked = f"curl -sf -H 'Authorization: Bearer {api_key(host, one.name)}' -H 'Content-Type: application/json'"
    said = json.loads(host.run(f"{asked} -d '{body}' http://127.0.0.1:{one.port}/v1/chat/completions"))
    return str(said["choices"][0]["message"]["content"]).strip()


def is_offered(rig: Rig, listener: ListenerEntry, name: str) -> bool:
    """Whether clients of a listener may ask for a name or an alias."""
    return bool(rig.gateway and rig.gateway.has_model(listener, rig.gateway.aliases.get(name, name)))


def through(host: LabHost, port: int, name: str) -> int:
    """The status of a question to a gateway from another machine, without a key, for a name or an alias."""
    body = {"model": name, "messages": [{"role": "user", "content": "Hello?"}]}
    return requests.post(f"http://{host.address}:{port}/v1/chat/completions", json=body, timeout=60).status_code


def limits(host: LabHost) -> list[float]:
    """The cards' power limits, W."""
    said = host.run("nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits")
    return [float(limit) for limit in said.split()]
