"""The gateway of a real host: clients, keys, certificates, and what becomes of streams while things change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import Host, HostSpec
from lab.labs import Lab
from tests.hosts.layers import FirstRun
from tests.hosts.support import PORT, check, deploy, on_both, plan, red, until, write_inventory

DEMO = {"variant": "llamacpp/demo", "port": PORT}
TWO = {"chat": DEMO, "chat2": {**DEMO, "port": 8021}}
LAN, TLS = 8000, 8443
NAME = "llm.example.org"
GATEWAY = {
    "listeners": {
        "lan": {"address": "0.0.0.0", "port": LAN, "keys": False},
        "office": {"address": "0.0.0.0", "port": TLS, "tls": True, "names": [NAME]},
    },
    "aliases": {"gpt-4o": "tiny-rig"},
    "origins": ["chrome-extension://abc"],
}
QUESTION: Any = [{"role": "user", "content": "Are you there?"}]


def rigwright(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, as an operator runs it from anywhere."""
    return subprocess.run([sys.executable, "-m", "cli", *words], capture_output=True, text=True, cwd="/")


def address(host: Host) -> str:
    return str(host.connection["ssh_hostname"])


@pytest.fixture(scope="module")
def box(
    lab: Lab, release: str, first_run: FirstRun, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Host, Path]]:
    """A host with two equal instances behind a gateway."""
    (host,) = lab.up([HostSpec(f"g{release[-2:]}", release, (first_run.layer,))])
    inventory = write_inventory(tmp_path_factory.mktemp("gateway"), lab, host, instances=TWO, gateway=GATEWAY)
    planned = plan(inventory).planned
    run = deploy(inventory)
    assert run.status == 0, run.said
    assert run.changed == planned
    yield host, inventory
    host.destroy()


@on_both
def test_a_host_with_a_gateway_is_as_declared_and_stays_so(box: tuple[Host, Path]) -> None:
    host, inventory = box
    verdicts = check(inventory)
    assert {identifier for identifier, word in verdicts.items() if word == "FAIL"} == set()
    assert {f"D0{number}" for number in range(1, 10)} <= verdicts.keys()
    assert deploy(inventory).changed == []
    host.reboot()
    until(lambda: red(inventory) == set(), "as declared after a boot")
    assert deploy(inventory).changed == []
