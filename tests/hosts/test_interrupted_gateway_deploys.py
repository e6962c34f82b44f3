"""A deploy of another gateway, cut off at each of its operations: clients are served on, and the next run converges."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from openai import OpenAIError

from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from tests.hosts.gateway_box import DEMO, GatewayBox, ask_question, run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import deploy, red_checks, run_deploy, run_plan, wait_until
from tests.hosts.test_interrupted_deploys import KILLING

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]

CHAT = {"chat": DEMO}
# The state that is undone before, so that there is work; the two differ in all else.
UNDO = {
    "Serving | Keys of clients": "rm -f /etc/rigwright/credentials/gateway-keys.json",
    "Serving | Gateway log rotation": "rm -f /etc/logrotate.d/rigwright_gateway",
    "Self check | Look after the rotation": "systemctl disable --quiet --now rigwright_rotation.timer",
}
CUTS = [
    ("Serving | Keys of clients", 0.0),
    ("Serving | Certificates", 0.0),
    ("Serving | Gateway log rotation", 0.0),
    ("Serving | The gateway has them", 0.0),
    ("Serving | Write generation", 0.0),
    ("Serving | Activate generation", 0.0),
    ("Serving | Activate generation", 0.5),
    ("Serving | Activate generation", 1.0),
    ("Self check | Look after the rotation", 0.0),
]


@pytest.fixture(scope="module")
def box(
    lab: ThrowawayLab, release: str, first_run: ConvergedLayers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayBox]:
    """A host with a gateway and one instance."""
    (host,) = lab.up([HostSpec(f"gs{release[-2:]}", release, (first_run.layer,))])
    made = GatewayBox(lab, host, tmp_path_factory.mktemp("gateway"))
    deploy(write_gateway(made, 0))
    yield made
    host.destroy()


def write_gateway(box: GatewayBox, number: int) -> Path:
    """One of two gateways: another alias, another name in its certificate, and another listener for the second."""
    gateway = box.gateway_entry(aliases={f"alias-{number}": "tiny-rig"})
    listeners = dict(gateway["listeners"])  # type: ignore[call-overload]
    listeners["office"] = listeners["office"] | {"names": [f"name-{number}.example.org"]}
    if number:
        listeners["more"] = {"address": "0.0.0.0", "port": 8001, "keys": False}
    return box.write_gateway_inventory(CHAT, aliases=gateway["aliases"], listeners=listeners)


def serves(box: GatewayBox) -> bool:
    """Whether the listener that both have answers."""
    try:
        return ask_question(box.plain_client().with_options(timeout=10)) == ANSWER
    except (OpenAIError, requests.RequestException):
        return False


@pytest.mark.parametrize("kind", ["controller", "host"])
def test_a_deploy_cut_off_at_an_operation_of_the_gateway_is_finished_by_the_next_run(
    box: GatewayBox, kind: str, subtests: pytest.Subtests
) -> None:
    assert run_rigwright("key", "make", str(write_gateway(box, 0)), f"for-{kind}").returncode == 0
    now = 0
    deploy(write_gateway(box, now))
    for operation, after in CUTS:
        with subtests.test(f"{operation} after {after} s"):
            box.host.run(UNDO.get(operation, "true"))
            inventory = write_gateway(box, 1 - now)
            environment = {"KILL_AT": operation, "KILL_AFTER": str(after)}
            if kind == "host":
                environment["KILL_HOST"] = box.host.namespace
            killed = run_deploy(inventory, "--yes", file=KILLING, **environment)
            assert killed.status == -signal.SIGKILL, killed.said
            if kind == "host":
                box.host.start()
                box.host.wait()
            wait_until(lambda: serves(box), "clients are served after the cut", 60)
            deploy(inventory)
            now = 1 - now
            assert ask_question(box.plain_client(), f"alias-{now}") == ANSWER
            assert run_plan(inventory).planned_operations == []
    assert red_checks(write_gateway(box, now)) == set()
