"""One machine with a card for all tests here: `./rig test gpu`, or `./rig test gpu --host USER@ADDRESS`."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.machine_requirements import UnsupportedMachine
from lab.throwaway_lab import ThrowawayLab
from roles.first_contact import HostKeyUnavailable
from tests.gpu import gpu_machine
from tests.gpu.gpu_machine import INVENTORY, GpuMachine
from tests.gpu.gpu_requirements import missing_requirements
from tests.hosts.support import PyinfraRun, run_deploy

# instances' units; those of the gateway and others have an underscore
SERVING = "systemctl list-units --plain --no-legend --state=active,activating 'rigwright-*.service' | cut -d' ' -f1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which machine, and where its files come from."""
    parser.addoption("--host", help="a real machine, as USER@ADDRESS, instead of a throwaway host")
    parser.addoption(
        "--bundle",
        type=Path,
        help="for no network: what `.venv/bin/python -m tests.gpu.gpu_bundle FOLDER` has made where there is one",
    )
    parser.addoption(
        "--vllm", type=Path, help="what `.venv/bin/python -m tests.gpu.vllm_bundle FOLDER` has made; none without"
    )
    parser.addoption("--clients-for", default="60", help="seconds for which clients ask models on demand")
    parser.addoption("--also-build-for", default="", help="more compute capabilities, such as 7.5,8.6,12.0")
    parser.addoption("--leave-up", action="store_true", help="leave the throwaway host up, for `rig bench`")
    parser.addoption("--release", default="debian-12", help="what the throwaway host runs")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Name all that this machine lacks before a test begins."""
    option = session.config.getoption
    if not session.items or option("--host") or option("collectonly"):
        return
    if missing := missing_requirements(option("--release"), option("--bundle"), option("--vllm")):
        pytest.exit("\n".join(("this machine lacks:", *missing)), 2)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: a lent machine can be gone before the last test ends."""
    if report.failed:
        print(f"\n{report.longreprtext}", flush=True)


@pytest.fixture(scope="session")
def machine(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuMachine]:
    """The machine, described for inventory/metal.py."""
    address, lab = pytestconfig.getoption("--host"), ThrowawayLab("metal")
    given: Path | None = pytestconfig.getoption("--bundle")
    more = [capability for capability in pytestconfig.getoption("--also-build-for").split(",") if capability]
    try:
        if not address:
            lab.down()
        found = (
            gpu_machine.connect_machine(address)
            if address
            else gpu_machine.boot_machine(lab, pytestconfig.getoption("--release"))
        )
        # its bundle has packages of the gateway that some tests put before other instances
        found.describe(extra_capabilities=more, gateway=gpu_machine.GATEWAY)
        bundle = given or gpu_machine.make_bundle(found.system, tmp_path_factory.mktemp("bundle"))
        gpu_machine.add_model(bundle)
        found.describe(extra_capabilities=more, bundle=str(bundle))
        yield found
        found.run(f"rm -rf {gpu_machine.SCRATCH}")
    except (UnsupportedMachine, HostKeyUnavailable, ValueError, RuntimeError, subprocess.CalledProcessError) as error:
        pytest.exit(str(error), 2)
    finally:
        if not address and not pytestconfig.getoption("--leave-up"):
            lab.down()
            gpu_machine.RECORD.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def first_deploy(machine: GpuMachine) -> PyinfraRun:
    """The deploy of the machine as it was found."""
    return run_deploy(INVENTORY)


@pytest.fixture(scope="module")
def deployed(machine: GpuMachine, first_deploy: PyinfraRun) -> GpuMachine:
    """The machine as inventory/metal.py declares it, whatever tests of other modules have left."""
    done = run_deploy(INVENTORY) if first_deploy.status == 0 else first_deploy
    if done.status:
        pytest.fail(f"the deploy failed: {done.said[-4000:]}")
    return machine


@pytest.fixture(scope="module")
def idle_cards() -> Iterator[None]:
    """This machine's cards without instances of the rig that other tests, or an earlier run, have left up."""
    lab = ThrowawayLab("metal")
    serving = [(host, unit) for host in (lab.hosts if lab.exists else []) for unit in host.run(SERVING).split()]
    for host, unit in serving:
        host.run(f"systemctl stop {unit}")
    yield
    for host, unit in serving:
        host.run(f"systemctl reset-failed {unit} 2>/dev/null; systemctl start {unit}")
