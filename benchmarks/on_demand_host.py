"""A throwaway host: its gateway offers equal models, which real llama.cpp instances load on demand on the processor."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from benchmarks import BenchmarkFailed
from benchmarks.gateway_host import rigwright, write_locked_model
from benchmarks.noop_deploy import own_lab
from benchmarks.on_demand_load import RandomLoad, RandomRequest
from lab import engine_cache, tiny_model
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT

# Memory of models at the same time -> `host_memory`
BUDGETS = {1: "1200M", 2: "1700M"}
GATEWAY_PORT, ROUTER_PORT, FIRST_PORT = 8000, 9000, 8020
# one thread: on a busy machine several would wait for each other
CONTEXT, SLOTS, THREADS = 32768, 4, 1
WEIGHT = "sleeping-rig"
# 104 million weights, 208 MB, and a KV cache of 402 MB, all in memory of the process. Each of BUDGETS holds one model
# by its declared need (1147 MB), and by its measured need (about 680 MB) as many models as its key says.
SIZE = tiny_model.LlamaSize(layers=12, width=768, heads=12, kv_heads=4, feed_forward=3072, context=CONTEXT)
CATALOG = f"""
[inputs.{WEIGHT}]
kind = "weight"
version = "1"
sources = ["shelf:{WEIGHT}.gguf"]

[models.{WEIGHT}]
file = "{WEIGHT}"

[variants."llamacpp/sleeping"]
engine = "llama.cpp"
model = "{WEIGHT}"
context = {CONTEXT}
parallel = {SLOTS}

[variants."llamacpp/sleeping".flags]
threads = "{THREADS}"
load-mode = "none"
"""


DISTURBANCES = (
    "systemctl kill --signal=KILL rigwright_residency.service",
    "systemctl reload rigwright_gateway.service",
    "systemctl restart rigwright_residency.service",
    "systemctl kill --signal=KILL rigwright_router.service",
)


@dataclass(frozen=True)
class RunningLoad:
    """Clients that run."""

    process: subprocess.Popen[str]
    said: IO[str]
    wrong: IO[str]

    def rows(self) -> list[RandomRequest]:
        """Their requests, once they have ended."""
        status = self.process.wait()
        for file in (self.said, self.wrong):
            file.seek(0)
        if status:
            raise BenchmarkFailed(self.wrong.read()[-1000:])
        return [RandomRequest(**row) for row in json.load(self.said)]

    def finish(self) -> list[RandomRequest]:
        """Let each client finish its request; returns all requests."""
        self.process.terminate()
        return self.rows()


@dataclass(frozen=True)
class OnDemandBox:
    """The host, deployed."""

    host: LabHost
    inventory: Path
    models: tuple[str, ...]

    def run_load(self, load: RandomLoad) -> list[RandomRequest]:
        """Run clients in the host's network."""
        with self.begin_load(load) as clients:
            return clients.rows()

    @contextmanager
    def begin_load(self, load: RandomLoad) -> Iterator[RunningLoad]:
        """Clients in the host's network, gone when the block ends."""
        program = [sys.executable, "-I", str(ROOT / "benchmarks" / "on_demand_load.py")]
        command = ["ip", "netns", "exec", self.host.namespace, *program]
        with (
            TemporaryFile("w+") as said,
            TemporaryFile("w+") as wrong,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=wrong, text=True) as process,
        ):
            try:
                assert process.stdin
                process.stdin.write(json.dumps(asdict(load)))
                process.stdin.close()
                yield RunningLoad(process, said, wrong)
            finally:
                process.kill()

    def load_seconds(self) -> dict[str, float]:
        """Instance -> seconds of its last load, by the ledger."""
        ledger = json.loads(self.host.run("cat /var/lib/rigwright/residency/ledger.json"))
        return {name: float(row["load_seconds"]) for name, row in ledger["instances"].items()}

    def count_loads(self, unit: str, mark: tuple[str, str], since: float) -> dict[str, int]:
        """Model -> the lines of a unit's journal with its name in the mark, from a time on."""
        command = ("journalctl", f"--unit={unit}", f"--since=@{since:.3f}", "--output=cat", "--no-pager")
        journal = self.host.run(shlex.join(command))
        lines = journal.splitlines()
        return {name: sum(is_marked(line, name, mark) for line in lines) for name in self.models}

    def loaded(self) -> set[str]:
        """The models with active units."""
        units = (f"rigwright-{name}" for name in self.models)
        states = self.host.run(shlex.join(("systemctl", "is-active", *units)), check=False).split()
        return {name for name, state in zip(self.models, states, strict=True) if state == "active"}


def is_marked(line: str, name: str, mark: tuple[str, str]) -> bool:
    """Whether a line has a name between the two parts of a mark, as whole words."""
    before = f"(?:^|{re.escape(mark[0])})" if mark[0] else "^"
    return re.search(rf"{before}{re.escape(name)}{re.escape(mark[1])}(?!\S)", line) is not None


@contextmanager
def disturb_regularly(host: LabHost, every: float) -> Iterator[list[str]]:
    """Kill, restart and reload by turns while the block runs; yields the commands that ran."""
    ended, ran = threading.Event(), list[str]()

    def disturb() -> None:
        while not ended.wait(every):
            ran.append(DISTURBANCES[len(ran) % len(DISTURBANCES)])
            host.run(ran[-1])

    thread = threading.Thread(target=disturb)
    if every:
        thread.start()
    try:
        yield ran
    finally:
        ended.set()
        if every:
            thread.join()


def write_operator_folder(
    folder: Path, lab: ThrowawayLab, host: LabHost, models: dict[str, dict[str, Any]], budget: dict[str, Any]
) -> Path:
    """The operator's folder: catalogue, lock, weights on the shelf, and the inventory, which is returned."""
    write_locked_model(folder, lab, WEIGHT, SIZE, CATALOG)
    declared = {"variant": "llamacpp/sleeping", "start": "on-demand"}
    instances = {
        name: declared | {"port": FIRST_PORT + number} | keys for number, (name, keys) in enumerate(models.items())
    }
    gateway = {
        "listeners": {"lan": {"address": "0.0.0.0", "port": GATEWAY_PORT, "keys": False, "evict": True}},
        "models": {name: {"instances": [name]} for name in models},
    }
    entry = {
        **host.inventory_keys,
        "instances": instances,
        "gateway": gateway,
        "on_demand": budget,
        "mirrors": {"shelf": [lab.shelf_url]},
    }
    inventory = folder / "rig.py"
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {entry!r}}})\n")
    return inventory


@contextmanager
def deploy_on_demand(
    folder: Path, release: str, models: dict[str, dict[str, Any]], budget: dict[str, Any]
) -> Iterator[OnDemandBox]:
    """The host, gone when the block ends.

    Args:
        folder: For the operator's files.
        release: The host's Debian.
        models: Name -> further keys of its instance.
        budget: `on_demand` of the inventory.
    """
    with own_lab() as lab:
        (host,) = lab.up([HostSpec("h1", release, engine_cache.cached_layers(release))])
        inventory = write_operator_folder(folder, lab, host, models, budget)
        rigwright("deploy", str(inventory))
        engine_cache.save_engines(host)
        yield OnDemandBox(host, inventory, tuple(models))
