"""The driver's checks on the machine itself, beside those inside of a host that it lends its cards to."""

import re
import shutil
import subprocess

import pytest

from rigwright.nvidia.cards import topology
from rigwright.project_root import ROOT
from tests.gpu.gpu_machine import GpuMachine, check_here

FILES = ("driver", "modules", "packages", "cards")
# Statements that have to hold on every machine with a card, for each origin of its driver
SHOWN = {"N01", "N02", "N03", "N06", "N07", "N08", "N23", "N26", "N27"}
# of it what the kernel's log or systemd says
LOGGED = {"N06", "N08", "N26"}


@pytest.fixture
def local_machine(machine: GpuMachine) -> None:
    """Leave out a machine elsewhere."""
    if not machine.throwaway:
        pytest.skip("with --host the card is not this machine's")


def test_the_drivers_checks_hold_here(local_machine: None) -> None:
    done = check_here(*(str(ROOT / f"checks/test_nvidia_{name}.py") for name in FILES))
    print(done.stdout)
    found = dict(
        reversed(row) for row in re.findall(r"^ *(ok|FAIL|skip) +\S+ +(N[0-9]{2}) ", done.stdout, re.MULTILINE)
    )
    shown = SHOWN
    if not shutil.which("systemctl"):
        print(f"no systemd runs this machine: {', '.join(sorted(LOGGED))} have nothing to read")
        shown = SHOWN - LOGGED
    assert {name for name in shown if found.get(name) != "ok"} == set(), done.stdout + done.stderr


def test_the_cards_places_are_read(local_machine: None) -> None:
    said = subprocess.run(
        ["sh", "-c", topology.render_topology_query()], capture_output=True, text=True, check=True
    ).stdout
    found = topology.parse(said.splitlines())
    print(found)
    assert found.cards
    assert not found.failed
    assert all(card.uuid.startswith("GPU-") and card.lanes and card.vbios and card.bar1_mib for card in found.cards)
    assert len(found.pairs) == len(found.cards) * (len(found.cards) - 1) // 2
