"""Hosts that the tests share: one blank host a Debian release is converged, and everything else boots from that.

Engines come from those that are kept (lab.kept), for they are named by all that they are compiled from. What hosts were
converged to is not kept from run to run: it has Debian's packages of the day, which no digest of ours knows.

While working on tests, `pytest tests/hosts --layers FOLDER` keeps it all the same, and boots from it again.
"""

from __future__ import annotations

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

from lab import kept
from lab.hosts import Host, HostSpec
from lab.labs import Lab
from lab.nvidia.keys import Key
from rigwright.paths import ROOT
from rigwright.supply.lock import Lock
from tests.hosts import drivers, vllm_box
from tests.hosts.containers_box import containers_box as containers_box
from tests.hosts.drivers import Box
from tests.hosts.layers import BlankPlan, Compiled, FirstRun, alone, put_engine, watched
from tests.hosts.support import command, deploy, plan, served, until, write_inventory

BASE = Path(__file__).with_name("base_deploy.py")
_numbers = itertools.count(1)


# Where there is no kept engine, `rigwright test` compiles for this release alone. `all` compiles for both.
FIRST = "debian-13"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the host tests."""
    parser.addoption("--layers", type=Path, help="keep layers in this folder, and boot from them again")


@pytest.fixture(scope="session")
def layers(pytestconfig: pytest.Config, lab: Lab) -> Iterator[Path]:
    """Where layers go that hosts boot from."""
    kept = pytestconfig.getoption("--layers")
    if kept:
        yield kept
        return
    folder = lab.folder.with_name(f"{lab.name}-layers")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A lab of this test run's own."""
    lab = Lab(f"t{os.getpid() % 100_000}")
    lab.down()
    yield lab
    lab.down()


@pytest.fixture(scope="session", params=[pytest.param("debian-12", marks=pytest.mark.all_only), "debian-13"])
def release(request: pytest.FixtureRequest) -> str:
    """Each Debian release; but for what differs on the older one (`on_both`), that one in `rigwright test all`."""
    return str(request.param)


@pytest.fixture(scope="session")
def blank_plan(lab: Lab, release: str, tmp_path_factory: pytest.TempPathFactory) -> BlankPlan:
    """Plan for a blank host."""
    (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release)])
    before = time.time_ns()
    seen = plan(write_inventory(tmp_path_factory.mktemp(release), lab, host))
    written = host.written(before)
    host.destroy()
    return BlankPlan(seen, written)


@pytest.fixture(scope="session")
def compiled(lab: Lab, layers: Path, release: str, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Converge a blank host, with the controller killed in the middle of the compilation."""
    with alone(layers, f"{release}-compiled") as layer:
        record = layer.with_suffix(".pickle")
        if record.exists():
            earlier: Compiled = pickle.loads(record.read_bytes())
            return earlier
        (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release)])
        inventory = write_inventory(tmp_path_factory.mktemp(release), lab, host)
        with subprocess.Popen(
            command(inventory, "--yes"),
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
        second = deploy(inventory)
        if second.status:
            pytest.fail(f"the second run failed: {second.said}")
        kept.keep(host)
        seen = Compiled(job_after_kill, second, host.freeze(layer))
        record.write_bytes(pickle.dumps(seen))
        return seen


@pytest.fixture(scope="session")
def engine_layer(request: pytest.FixtureRequest, release: str) -> str:
    """The engine of what is compiled from now: the one that was kept, or else one that is compiled."""
    layer = kept.place(release)
    if not layer.exists():
        if request.config.getoption("--quick") and release != FIRST:
            pytest.skip(f"no engine is kept for {release}: `rigwright test all` compiles one")
        watched(request.getfixturevalue("compiled"))
    return str(layer)


@pytest.fixture(scope="session")
def first_run(
    lab: Lab, layers: Path, release: str, engine_layer: str, tmp_path_factory: pytest.TempPathFactory
) -> FirstRun:
    """Converge a blank host that has its engine."""
    with alone(layers, release) as layer:
        if not layer.exists():
            (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release)])
            inventory = write_inventory(tmp_path_factory.mktemp(release), lab, host)
            # folders first and the engine into them, so that the ledger has what it has after a compilation
            for file in (BASE, ROOT / "deploy.py"):
                run = deploy(inventory, file=file)
                if run.status:
                    pytest.fail(f"the first run failed: {run.said}")
                if file == BASE:
                    put_engine(host, engine_layer)
            host.freeze(layer)
    return FirstRun(str(layer), engine_layer)


Boot = Callable[..., Host]


@pytest.fixture
def boot(lab: Lab, release: str) -> Iterator[Boot]:
    """Boot hosts for one test: `boot(*layers, cards=..., disks=...)`."""
    booted: list[Host] = []

    def up(*layers: str, cards: tuple[str, ...] = (), disks: tuple[str, ...] = ()) -> Host:
        (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release, layers, cards, disks=disks)])
        booted.append(host)
        return host

    yield up
    for host in booted:
        host.destroy()


@pytest.fixture
def converged(boot: Boot, first_run: FirstRun) -> Host:
    """A host that boots from what a converged one left, and serves."""
    host = boot(first_run.layer)
    until(lambda: served(host), "serving after a boot")
    return host


@pytest.fixture
def inventory(lab: Lab, converged: Host, tmp_path: Path) -> Path:
    """The inventory of the converged host."""
    return write_inventory(tmp_path, lab, converged)


@pytest.fixture(scope="session")
def vllm(lab: Lab) -> Iterator[vllm_box.Ground]:
    """The real vLLM for the CPU, and what it serves."""
    lab.up([])  # its network, for what is served there
    with vllm_box.ground(lab) as made:
        yield made


@pytest.fixture(scope="session")
def vllm_layers(
    layers: Path, release: str, first_run: FirstRun, vllm: vllm_box.Ground, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ...]:
    """A host that serves vLLM over two processes, and served llama.cpp before."""
    below, folder = (first_run.layer,), tmp_path_factory.mktemp(release)
    return vllm_box.converged(layers, release, vllm, folder, below, instances=vllm_box.TWO)


@pytest.fixture
def vllm_host(boot: Boot, vllm_layers: tuple[str, ...]) -> Host:
    """That host, serving."""
    host = boot(*vllm_layers)
    until(lambda: served(host), "serving after a boot")
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
def key(layers: Path) -> Key:
    """The key of a stand-in for NVIDIA's archive, which the layers know."""
    with alone(layers, "key") as folder:
        record = folder.with_suffix(".pickle")
        if not record.exists():
            record.write_bytes(pickle.dumps(Key.make(folder)))
        made: Key = pickle.loads(record.read_bytes())
        return made


@pytest.fixture(scope="session")
def undriven_layer(lab: Lab, layers: Path, release: str, key: Key, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a host with two cards has written once all is there but a driver: most of the time goes into compilers."""
    with alone(layers, f"{release}-undriven") as layer:
        if not layer.exists():
            made = drivers.boot(lab, release, tmp_path_factory.mktemp("undriven") / "box", key)
            made.declare(managed=False)
            made.rig("deploy")
            made.host.freeze(layer)
    return str(layer)


@pytest.fixture(scope="session")
def driven_layer(
    lab: Lab, layers: Path, release: str, key: Key, undriven_layer: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The same with its driver running, and nothing left to do: over the layer above."""
    with alone(layers, f"{release}-driven") as layer:
        if not layer.exists():
            made = drivers.boot(lab, release, tmp_path_factory.mktemp("driven") / "box", key, undriven_layer)
            made.publish(drivers.OLD[release])
            made.declare()
            made.lock(drivers.OLD[release])
            made.rig("deploy", "--reboot")
            made.host.freeze(layer)
    return str(layer)


@pytest.fixture
def undriven(lab: Lab, release: str, key: Key, tmp_path: Path, undriven_layer: str) -> Iterator[Box]:
    """A host with two cards, two kernels and no driver; its archive has two."""
    made = _boxed(lab, release, key, tmp_path, undriven_layer)
    yield made
    made.host.destroy()


@pytest.fixture
def driven(lab: Lab, release: str, key: Key, tmp_path: Path, undriven_layer: str, driven_layer: str) -> Iterator[Box]:
    """A host whose older driver runs; its archive has two."""
    made = _boxed(lab, release, key, tmp_path, driven_layer, undriven_layer)
    yield made
    made.host.destroy()


@pytest.fixture(scope="module")
def driven_box(
    lab: Lab,
    release: str,
    key: Key,
    tmp_path_factory: pytest.TempPathFactory,
    undriven_layer: str,
    driven_layer: str,
) -> Callable[[], Box]:
    """Boots such a host, for several tests."""
    return lambda: _boxed(lab, release, key, tmp_path_factory.mktemp("driven"), driven_layer, undriven_layer)


def _boxed(lab: Lab, release: str, key: Key, folder: Path, *layers: str) -> Box:
    made = drivers.boot(lab, release, folder / "box", key, *layers)
    made.publish(drivers.OLD[release], drivers.NEW[release])
    made.declare()
    made.lock(drivers.OLD[release])
    return made
