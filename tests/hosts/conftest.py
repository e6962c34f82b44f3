"""Hosts that the tests share: one blank host a Debian release is converged, and everything else boots from that.

Engines come from those that are kept (lab.engine_cache), for they are named by all that they are compiled from.
Converged hosts are not kept from run to run: they have Debian's packages of the day, which no digest of ours knows.

While working on tests, `pytest tests/hosts --layers FOLDER` keeps it all the same, and boots from it again.
"""

import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import engine_cache
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.hosts import driver_box, vllm_box
from tests.hosts.containers_box import containers_box as containers_box
from tests.hosts.driver_box import DriverBox
from tests.hosts.host_layers import (
    BlankHostPlan,
    CompiledEngine,
    ConvergedLayers,
    assert_compilation_continued,
    exclusive_layer,
    install_engine,
)
from tests.hosts.support import deploy_command, is_serving, run_deploy, run_plan, wait_until, write_inventory
from tests.stand_ins.nvidia.signing_keys import SigningKey

BASE = Path(__file__).with_name("base_deploy.py")
_host_numbers = itertools.count(1)


# Where there is no kept engine, `rigwright test` compiles for this release alone. `all` compiles for both.
FIRST = "debian-13"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the host tests."""
    parser.addoption("--layers", type=Path, help="keep layers in this folder, and boot from them again")
    parser.addoption("--all-changes", action="store_true", help="make all new changes of a host, not a sample")


@pytest.fixture(scope="session")
def layers(pytestconfig: pytest.Config, lab: ThrowawayLab) -> Iterator[Path]:
    """Where layers go that hosts boot from."""
    kept = pytestconfig.getoption("--layers")
    if kept:
        yield kept
        return
    folder = lab.folder.with_name(f"{lab.name}-layers")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def lab() -> Iterator[ThrowawayLab]:
    """A lab of this test run's own."""
    lab = ThrowawayLab(f"t{os.getpid() % 100_000}")
    lab.down()
    yield lab
    lab.down()


@pytest.fixture(scope="session", params=[pytest.param("debian-12", marks=pytest.mark.all_only), "debian-13"])
def release(request: pytest.FixtureRequest) -> str:
    """Each Debian release; but for what differs on the older one (`on_both`), that one in `rigwright test all`."""
    return str(request.param)


@pytest.fixture(scope="session")
def blank_plan(lab: ThrowawayLab, release: str, tmp_path_factory: pytest.TempPathFactory) -> BlankHostPlan:
    """Plan for a blank host."""
    (host,) = lab.up([HostSpec(f"h{next(_host_numbers)}", release)])
    before = time.time_ns()
    seen = run_plan(write_inventory(tmp_path_factory.mktemp(release), lab, host))
    written = host.changed_paths(before)
    host.destroy()
    return BlankHostPlan(seen, written)


@pytest.fixture(scope="session")
def compiled(lab: ThrowawayLab, layers: Path, release: str, tmp_path_factory: pytest.TempPathFactory) -> CompiledEngine:
    """Converge a blank host, with the controller killed in the middle of the compilation."""
    with exclusive_layer(layers, f"{release}-compiled") as layer:
        record = layer.with_suffix(".pickle")
        if record.exists():
            earlier: CompiledEngine = pickle.loads(record.read_bytes())
            return earlier
        (host,) = lab.up([HostSpec(f"h{next(_host_numbers)}", release)])
        inventory = write_inventory(tmp_path_factory.mktemp(release), lab, host)
        with subprocess.Popen(
            deploy_command(inventory, "--yes"),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as controller:
            assert controller.stderr
            said = []
            for line in controller.stderr:
                said.append(line)
                if "compiling: " in line:
                    break
            else:
                pytest.fail(f"the deploy ended before it compiled: {''.join(said)}")
            os.killpg(controller.pid, signal.SIGKILL)
        job_after_kill = host.run("systemctl list-units --plain --no-legend --state=active 'rw-job-llama.cpp-*'")
        second = run_deploy(inventory)
        if second.status:
            pytest.fail(f"the second run failed: {second.said}")
        engine_cache.save_engines(host)
        seen = CompiledEngine(job_after_kill, second, host.freeze_layer(layer))
        record.write_bytes(pickle.dumps(seen))
        return seen


@pytest.fixture(scope="session")
def engine_layer(request: pytest.FixtureRequest, release: str) -> str:
    """The engine of what is compiled from now: the one that was kept, or else one that is compiled."""
    layer = engine_cache.cache_path(release)
    if not layer.exists():
        if request.config.getoption("--quick") and release != FIRST:
            pytest.skip(f"no engine is kept for {release}: `rigwright test all` compiles one")
        assert_compilation_continued(request.getfixturevalue("compiled"))
    return str(layer)


@pytest.fixture(scope="session")
def first_run(
    lab: ThrowawayLab, layers: Path, release: str, engine_layer: str, tmp_path_factory: pytest.TempPathFactory
) -> ConvergedLayers:
    """Converge a blank host that has its engine."""
    with exclusive_layer(layers, release) as layer:
        if not layer.exists():
            (host,) = lab.up([HostSpec(f"h{next(_host_numbers)}", release)])
            inventory = write_inventory(tmp_path_factory.mktemp(release), lab, host)
            # folders first and the engine into them, so that the ledger has what it has after a compilation
            for file in (BASE, ROOT / "deploy.py"):
                run = run_deploy(inventory, file=file)
                if run.status:
                    pytest.fail(f"the first run failed: {run.said}")
                if file == BASE:
                    install_engine(host, engine_layer)
            host.freeze_layer(layer)
    return ConvergedLayers(str(layer), engine_layer)


BootHost = Callable[..., LabHost]


@pytest.fixture
def boot(lab: ThrowawayLab, release: str) -> Iterator[BootHost]:
    """Boot hosts for one test: `boot(*layers, cards=..., disks=...)`."""
    booted: list[LabHost] = []

    def up(*layers: str, cards: tuple[str, ...] = (), disks: tuple[str, ...] = ()) -> LabHost:
        (host,) = lab.up([HostSpec(f"h{next(_host_numbers)}", release, layers, cards, disks=disks)])
        booted.append(host)
        return host

    yield up
    for host in booted:
        host.destroy()


@pytest.fixture
def converged(boot: BootHost, first_run: ConvergedLayers) -> LabHost:
    """A host that boots from what a converged one left, and serves."""
    host = boot(first_run.layer)
    wait_until(lambda: is_serving(host), "serving after a boot")
    return host


@pytest.fixture
def inventory(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> Path:
    """The inventory of the converged host."""
    return write_inventory(tmp_path, lab, converged)


@pytest.fixture(scope="session")
def vllm(lab: ThrowawayLab) -> Iterator[vllm_box.VllmServers]:
    """The real vLLM for the CPU, and what it serves."""
    lab.up([])  # its network, for what is served there
    with vllm_box.serve_vllm(lab) as made:
        yield made


@pytest.fixture(scope="session")
def vllm_layers(
    layers: Path,
    release: str,
    first_run: ConvergedLayers,
    vllm: vllm_box.VllmServers,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, ...]:
    """A host that serves vLLM over two processes, and served llama.cpp before."""
    below, folder = (first_run.layer,), tmp_path_factory.mktemp(release)
    return vllm_box.converged_layers(layers, release, vllm, folder, below, instances=vllm_box.TWO)


@pytest.fixture
def vllm_host(boot: BootHost, vllm_layers: tuple[str, ...]) -> LabHost:
    """That host, serving."""
    host = boot(*vllm_layers)
    wait_until(lambda: is_serving(host), "serving after a boot", 300)  # the recipe's ready_timeout
    return host


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked wheels of the hosts' tools, fetched as pip fetches them."""
    found = tmp_path_factory.mktemp("wheels")
    rows = Lock.load([ROOT / "locks"]).groups["tools"]
    names = tmp_path_factory.mktemp("names") / "requirements.txt"
    names.write_text("".join(f"{row.name}=={row.version} --hash=sha256:{row.sha256}\n" for row in rows))
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-r", str(names)]
    subprocess.run([*pip, "-d", str(found)], check=True)
    return found


@pytest.fixture(scope="session")
def key(layers: Path) -> SigningKey:
    """The key of a stand-in for NVIDIA's archive, which the layers know."""
    with exclusive_layer(layers, "key") as folder:
        record = folder.with_suffix(".pickle")
        if not record.exists():
            record.write_bytes(pickle.dumps(SigningKey.generate_key(folder)))
        made: SigningKey = pickle.loads(record.read_bytes())
        return made


@pytest.fixture(scope="session")
def undriven_layer(
    lab: ThrowawayLab, layers: Path, release: str, key: SigningKey, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The layer of a host with two cards with all but a driver: most of the time goes into compilers."""
    with exclusive_layer(layers, f"{release}-undriven") as layer:
        if not layer.exists():
            made = driver_box.boot_driver_box(lab, release, tmp_path_factory.mktemp("undriven") / "box", key)
            made.declare(managed=False)
            made.run_rig("deploy")
            made.host.freeze_layer(layer)
    return str(layer)


@pytest.fixture(scope="session")
def driven_layer(
    lab: ThrowawayLab,
    layers: Path,
    release: str,
    key: SigningKey,
    undriven_layer: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The same with its driver running, and nothing left to do: over the layer above."""
    with exclusive_layer(layers, f"{release}-driven") as layer:
        if not layer.exists():
            made = driver_box.boot_driver_box(
                lab, release, tmp_path_factory.mktemp("driven") / "box", key, undriven_layer
            )
            made.publish(driver_box.OLD[release])
            made.declare()
            made.lock(driver_box.OLD[release])
            made.run_rig("deploy", "--reboot")
            made.host.freeze_layer(layer)
    return str(layer)


@pytest.fixture
def undriven(
    lab: ThrowawayLab, release: str, key: SigningKey, tmp_path: Path, undriven_layer: str
) -> Iterator[DriverBox]:
    """A host with two cards, two kernels and no driver; its archive has two."""
    made = _declare_driver_box(lab, release, key, tmp_path, undriven_layer)
    yield made
    made.host.destroy()


@pytest.fixture
def driven(
    lab: ThrowawayLab, release: str, key: SigningKey, tmp_path: Path, undriven_layer: str, driven_layer: str
) -> Iterator[DriverBox]:
    """A host whose older driver runs; its archive has two."""
    made = _declare_driver_box(lab, release, key, tmp_path, driven_layer, undriven_layer)
    yield made
    made.host.destroy()


@pytest.fixture(scope="module")
def driven_box(
    lab: ThrowawayLab,
    release: str,
    key: SigningKey,
    tmp_path_factory: pytest.TempPathFactory,
    undriven_layer: str,
    driven_layer: str,
) -> Callable[[], DriverBox]:
    """Boots such a host, for several tests."""
    return lambda: _declare_driver_box(
        lab, release, key, tmp_path_factory.mktemp("driven"), driven_layer, undriven_layer
    )


def _declare_driver_box(lab: ThrowawayLab, release: str, key: SigningKey, folder: Path, *layers: str) -> DriverBox:
    made = driver_box.boot_driver_box(lab, release, folder / "box", key, *layers)
    made.publish(driver_box.OLD[release], driver_box.NEW[release])
    made.declare()
    made.lock(driver_box.OLD[release])
    return made
