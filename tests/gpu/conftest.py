"""One machine with a card for all tests here: `./rig test gpu`, or `./rig test gpu --host USER@ADDRESS`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.labs import Lab
from lab.machine import Unsupported
from roles.survey import Unreachable
from tests.gpu import machine as machines
from tests.gpu.machine import INVENTORY, Machine
from tests.hosts.support import Run, deploy


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which machine, and where its files come from."""
    parser.addoption("--host", help="a real machine, as USER@ADDRESS, instead of a throwaway host")
    parser.addoption(
        "--bundle",
        type=Path,
        help="for no network: what `rigwright bundle` made of inventory/metal.py, with a gateway",
    )
    parser.addoption("--also-build-for", default="", help="more compute capabilities, such as 7.5,8.6,12.0")
    parser.addoption("--leave-up", action="store_true", help="leave the throwaway host up, for `rig bench`")
    parser.addoption("--release", default="debian-12", help="what the throwaway host runs")


@pytest.fixture(scope="session")
def machine(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The machine, described for inventory/metal.py."""
    address, lab = pytestconfig.getoption("--host"), Lab("metal")
    given: Path | None = pytestconfig.getoption("--bundle")
    more = [capability for capability in pytestconfig.getoption("--also-build-for").split(",") if capability]
    try:
        if not address:
            lab.down()
        found = machines.reach(address) if address else machines.boot(lab, pytestconfig.getoption("--release"))
        # its bundle has packages of the gateway that some tests put before other instances
        found.describe(also_build_for=more, gateway=machines.GATEWAY)
        bundle = given or machines.make_bundle(found, tmp_path_factory.mktemp("bundle"))
        found.describe(also_build_for=more, bundle=str(bundle))
        yield found
        found.run(f"rm -rf {machines.SCRATCH}")
    except (Unsupported, Unreachable, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
        pytest.exit(str(error), 2)
    finally:
        if not address and not pytestconfig.getoption("--leave-up"):
            lab.down()
            machines.RECORD.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def first(machine: Machine) -> Run:
    """The deploy of the machine as it was found."""
    return deploy(INVENTORY)


@pytest.fixture
def deployed(machine: Machine, first: Run) -> Machine:
    """The machine once it is the rig."""
    if first.status:
        pytest.fail(f"the deploy failed: {first.said[-4000:]}")
    return machine
