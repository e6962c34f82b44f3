"""Hosts that the tests share: one blank host a Debian release is converged, and everything else boots from that.

While working on tests, `pytest tests/hosts --layers FOLDER` keeps what the first run left and boots from it again.
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
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import kept
from lab.hosts import Host, HostSpec
from lab.images import RELEASES
from lab.labs import Lab
from lab.nvidia.keys import Key
from rigwright.inventory import ROOT
from rigwright.supply.lock import Lock
from tests.hosts import drivers
from tests.hosts.drivers import Box
from tests.hosts.support import Run, command, deploy, plan, served, until, write_inventory

_numbers = itertools.count(1)


@dataclass(frozen=True)
class FirstRun:
    """What was seen while a blank host was converged, and what it left for other hosts to boot from."""

    blank_plan: Run
    written_by_plan: list[str]
    job_after_kill: str
    second: Run
    layer: str
    """All that the converged host wrote."""
    engine_layer: str
    """Only its compiled engine: a blank host with it skips the compilation."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the host tests."""
    parser.addoption("--layers", type=Path, help="keep the first run's layers in this folder, and boot from them again")


@pytest.fixture(scope="session")
def layers(pytestconfig: pytest.Config, lab: Lab) -> Iterator[Path]:
    """Where the first run's layers go."""
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


@pytest.fixture(scope="session", params=sorted(RELEASES))
def release(request: pytest.FixtureRequest) -> str:
    """Each Debian release."""
    return str(request.param)


@pytest.fixture(scope="session")
def first_run(lab: Lab, layers: Path, release: str, tmp_path_factory: pytest.TempPathFactory) -> FirstRun:
    """Converge a blank host, with the controller killed in the middle of the compilation."""
    record = layers / f"{release}.pickle"
    if record.exists():
        earlier: FirstRun = pickle.loads(record.read_bytes())
        return earlier
    (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release)])
    inventory = write_inventory(tmp_path_factory.mktemp(release), lab, host)
    before = time.time_ns()
    blank_plan = plan(inventory)
    written = host.written(before)

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
    units = "systemctl list-units --plain --no-legend --state=active 'rw-job-llama.cpp-*'"
    job_after_kill = host.run(units)

    second = deploy(inventory)
    if second.status:
        pytest.fail(f"the second run failed: {second.said}")
    kept.keep(host)  # the demo boots from it too
    layer = host.freeze(layers / release)
    engine_layer = layers / f"{release}-engine"
    kept.copy([path for path in (Path(layer) / kept.ENGINES).iterdir() if not path.is_symlink()], engine_layer)
    seen = FirstRun(blank_plan, written, job_after_kill, second, layer, str(engine_layer))
    record.write_bytes(pickle.dumps(seen))
    return seen


Boot = Callable[..., Host]


@pytest.fixture
def boot(lab: Lab, release: str) -> Iterator[Boot]:
    """Boot hosts for one test: `boot(*layers, cards=...)`."""
    booted: list[Host] = []

    def up(*layers: str, cards: tuple[str, ...] = ()) -> Host:
        (host,) = lab.up([HostSpec(f"h{next(_numbers)}", release, layers, cards)])
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
def key(tmp_path_factory: pytest.TempPathFactory) -> Key:
    """The key of a stand-in for NVIDIA's archive."""
    return Key.make(tmp_path_factory.mktemp("archive") / "key")


@pytest.fixture(scope="session")
def undriven_layer(lab: Lab, layers: Path, release: str, key: Key, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a host with two cards has written once all is there but a driver: most of the time goes into compilers."""
    layer = layers / f"{release}-undriven"
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
    layer = layers / f"{release}-driven"
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
    yield from _boxed(lab, release, key, tmp_path, undriven_layer)


@pytest.fixture
def driven(lab: Lab, release: str, key: Key, tmp_path: Path, undriven_layer: str, driven_layer: str) -> Iterator[Box]:
    """A host whose older driver runs; its archive has two."""
    yield from _boxed(lab, release, key, tmp_path, driven_layer, undriven_layer)


def _boxed(lab: Lab, release: str, key: Key, folder: Path, *layers: str) -> Iterator[Box]:
    made = drivers.boot(lab, release, folder / "box", key, *layers)
    made.publish(drivers.OLD[release], drivers.NEW[release])
    made.declare()
    made.lock(drivers.OLD[release])
    yield made
    made.host.destroy()
