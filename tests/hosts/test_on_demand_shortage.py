"""Models on demand: one cannot start, or another process takes the memory; the others serve on."""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.on_demand_host import BUDGETS, GATEWAY_PORT, OnDemandBox, write_operator_folder
from benchmarks.on_demand_load import RandomLoad, RandomRequest
from benchmarks.stand_in_card import install_card, need_of_device, take_of_card
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import run_deploy, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
AT = f"127.0.0.1:{GATEWAY_PORT}"
TOKENS, RESIDENCE_S = 8, 2
MIB_NEEDED, MIB_TOTAL, MIB_TAKEN = 700, 1200, 600
# A stand-in for the kernel's end of a process, which needs a memory controller: systemd learns of it as of systemd-oomd
KILL_FOR_MEMORY = """
import glob, os, signal, time
group = "/sys/fs/cgroup/rigwright.slice/rigwright-one.slice/rigwright-one.service"
until = time.monotonic() + 60

def is_engine(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read() == "llama-server\\n"

while time.monotonic() < until:
    is_recorded = glob.glob("/run/systemd/transient/rigwright_memory-one-*")
    for path in glob.glob(group + "/cgroup.procs") if is_recorded else ():
        with open(path) as file:
            engines = [int(pid) for pid in file.read().split() if is_engine(pid)]
        if engines:
            os.setxattr(group, "user.oomd_ooms", b"1")
            os.kill(engines[0], signal.SIGKILL)
            raise SystemExit
    time.sleep(0.01)
raise SystemExit("not killed")
"""


@contextmanager
def deployed(
    lab: ThrowawayLab, host: LabHost, folder: Path, models: tuple[str, ...], memory: str
) -> Iterator[OnDemandBox]:
    budget = {"host_memory": memory, "residence": RESIDENCE_S}
    inventory = write_operator_folder(folder, lab, host, {name: {} for name in models}, budget)
    run = run_deploy(inventory)
    assert run.status == 0, run.said
    yield OnDemandBox(host, inventory, models)


def take_card(host: LabHost) -> Callable[[int], None]:
    """A stand-in card; the function has another process take so many MiB of it."""
    install_card(host, MIB_TOTAL)
    return partial(take_of_card, host)


def take_host(host: LabHost) -> Callable[[int], None]:
    """A stand-in of the kernel's memory figures, as LXCFS puts it into containers."""

    def take(size: int) -> None:
        text = f"MemTotal: {64 << 20} kB\nMemAvailable: {(MIB_TOTAL - size) << 10} kB\n"
        host.run(f"printf %s {shlex.quote(text)} > /srv/meminfo")

    take(0)
    host.run("mount --bind /srv/meminfo /proc/meminfo")
    return take


def ask(box: OnDemandBox, model: str, *, plain: float, requests: int = 1) -> list[RandomRequest]:
    return box.run_load(RandomLoad(AT, (model,), 1, 120.0, TOKENS, requests=requests, plain=plain))


def phases(box: OnDemandBox) -> dict[str, str]:
    rows: dict[str, Any] = json.loads(box.host.run("cat /var/lib/rigwright/residency/ledger.json"))["instances"]
    return {name: row["phase"] for name, row in rows.items()}


def start_results(host: LabHost, name: str) -> list[str]:
    """systemd's results of an instance's starts without an answer, by its records."""
    record: dict[str, Any] = json.loads(host.run(f"cat /var/lib/rigwright/memory/{name}.json"))
    return [row["result"] for row in record.get("failures", ())]


def test_one_of_six_fails_to_start_and_five_serve_on(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    names = ("m1", "m2", "m3", "m4", "m5", "broken")
    with deployed(lab, boot(first_run.layer), tmp_path, names, "8G") as box:
        box.host.run("mv /etc/rigwright/credentials/broken.api-key /root/")
        began = time.time()
        rows = box.run_load(RandomLoad(AT, names, 8, 45.0, TOKENS))
        failed = [one for one in rows if one.model == "broken"]
        assert [one for one in rows if one.problem and one.model != "broken"] == []
        assert {one.model for one in rows} == set(names)
        assert any(one.stream for one in failed)
        assert any(not one.stream for one in failed)
        for one in failed:
            assert (one.status == 503 and one.retry_s) or one.problem.startswith("error event"), one
            assert "its unit failed" in one.problem or "status 243" in one.problem, one
        loads = box.count_loads("rigwright_residency", ("", " is starting"), began)
        assert {loads[name] for name in names[:5]} == {1}, "none is stopped for one that fails"
        # each failed start is followed by a longer pause
        assert 1 <= loads["broken"] <= 4

        box.host.run("mv /root/broken.api-key /etc/rigwright/credentials/")
        wait_s = 40.0
        deadline = time.monotonic() + wait_s
        while (one := ask(box, "broken", plain=1.0)[0]).problem and time.monotonic() < deadline:
            assert one.is_refusal
            time.sleep(min(one.retry_s, wait_s))
        assert not one.problem, one


@pytest.mark.parametrize(("device", "stand_in"), [("0", take_card), ("host", take_host)], ids=["card", "host"])
def test_another_process_takes_the_memory_and_the_loaded_model_serves_on(
    lab: ThrowawayLab,
    boot: BootHost,
    first_run: ConvergedLayers,
    tmp_path: Path,
    device: str,
    stand_in: Callable[[LabHost], Callable[[int], None]],
) -> None:
    with deployed(lab, boot(first_run.layer), tmp_path, ("one", "two"), BUDGETS[1]) as box:
        take = stand_in(box.host)
        need_of_device(box.host, device, MIB_NEEDED)
        (first,) = ask(box, "one", plain=0.0)
        assert not first.problem, first

        load = RandomLoad(AT, ("one",), 2, 3600.0, TOKENS)
        with box.begin_load(load) as clients:
            take(MIB_TAKEN)
            refused = [ask(box, "two", plain=share)[0] for share in (0.0, 1.0)]
            served = clients.finish()
        words = f"it needs {MIB_NEEDED} MiB of {'the host' if device == 'host' else 'card 0'}"
        for one in refused:
            assert words in one.problem, one
            assert f"other processes have {MIB_TAKEN}" in one.problem, one
        assert refused[1].is_refusal
        assert [one for one in served if one.problem] == []
        assert len(served) > len(refused)
        assert phases(box) == {"one": "awake", "two": "asleep"}

        # the memory is free again
        take(0)
        (one,) = ask(box, "two", plain=1.0)
        assert not one.problem, one

        # another process takes the memory while the other model starts, and the kernel ends that model
        with box.begin_load(replace(load, models=("one",), clients=1, requests=1)) as clients:
            box.host.run(f"python3 -I -c {shlex.quote(KILL_FOR_MEMORY)}")
            (ended,) = clients.rows()
        assert ended.is_refusal or ended.problem.startswith("error event"), ended
        assert "the kernel ended it for lack of memory" in ended.problem, ended
        wait_until(lambda: start_results(box.host, "one") == ["oom-kill"], "a record of the failed start")
        (one,) = ask(box, "two", plain=0.0)
        assert not one.problem, one
