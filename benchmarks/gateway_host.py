"""A throwaway host with a gateway in front of two instances: a real llama.cpp, and a stand-in of a fixed pace.

The stand-in is started by an instance's own unit in the place of its engine: socket, port, sandbox, readiness and the
gateway's way to it are those of any instance.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from benchmarks import BenchmarkFailed, litellm
from benchmarks.http_streams import ServerAddress, StreamRequest
from benchmarks.noop_deploy import own_lab
from lab import engine_cache, tiny_model
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, render_lock

REAL, PACED = "real", "paced"
PORTS = {REAL: 8020, PACED: 8021}
PLAIN_PORT, TLS_PORT, NAME = 8000, 8443, "llm.example.org"
# Ways to an instance: its own socket, with nothing in between, and its port, both with its own key; the gateway's
# listener without TLS, which takes no key, and that with TLS, which takes one; LiteLLM's proxy in front of its port.
SOCKET, PORT, PLAIN, TLS, LITELLM = "socket", "port", "gateway", "gateway, TLS", "LiteLLM"
# 13 million weights: some hundred tokens a second on the one core that it gets, the other one is for all else.
SIZE = tiny_model.LlamaSize(layers=6, width=384, heads=6, kv_heads=3, feed_forward=1536, context=16384)
SLOTS = 16
CATALOG = f"""
[inputs.bench-rig]
kind = "weight"
version = "1"
sources = ["shelf:bench-rig.gguf"]

[models.bench-rig]
file = "bench-rig"

[variants."llamacpp/bench"]
engine = "llama.cpp"
model = "bench-rig"
context = 16384
parallel = {SLOTS}

[variants."llamacpp/bench".flags]
threads = "1"
"""
RESIDENT = """
for unit in rigwright_gateway rigwright_router; do
  group=$(systemctl show --property=ControlGroup --value $unit)
  cat /sys/fs/cgroup$group/cgroup.procs /sys/fs/cgroup/systemd$group/cgroup.procs 2>/dev/null
done | sort -u | while read -r pid; do sed -n 's/^Pss: *//p' /proc/$pid/smaps_rollup; done
"""
STAND_IN = "/opt/bench-paced.py"
START_LIMIT = 60  # seconds until the gateway must let clients through to both
LOAD_LIMIT = 900  # seconds; the command line allows 600


@dataclass(frozen=True)
class Box:
    """The host, deployed."""

    host: LabHost
    folder: Path
    inventory: Path
    authority: str
    """PEM of its own authority."""
    key: str
    """A client's."""

    @property
    def inside(self) -> list[str]:
        """The command that runs a command of this machine in the host's network."""
        return ["ip", "netns", "exec", self.host.namespace]

    def engine_key(self, instance: str) -> str:
        """The key of an instance itself."""
        unit = shlex.quote(f"/etc/systemd/system/rigwright-{instance}.service")
        return self.host.run(f"cat $(sed -n 's/^LoadCredential=api-key://p' {unit})").strip()

    def place(self, way: str, instance: str, proxy: litellm.Proxy | None = None) -> ServerAddress:
        """Where a way leads to an instance.

        Args:
            way: One of those above.
            instance: REAL or PACED.
            proxy: LiteLLM's, for that way.
        """
        if way == SOCKET:
            # nspawn keeps the host's own /run from everybody but its processes
            root = f"/proc/{self._process()}/root"
            return ServerAddress(f"{root}/run/rigwright/instances/{instance}/api.sock", self.engine_key(instance))
        if way == PORT:
            return ServerAddress(f"127.0.0.1:{PORTS[instance]}", self.engine_key(instance))
        if way == LITELLM:
            return ServerAddress(f"127.0.0.1:{litellm.PORT}", proxy.key if proxy else "")
        if way == PLAIN:
            return ServerAddress(f"127.0.0.1:{PLAIN_PORT}")
        return ServerAddress(f"127.0.0.1:{TLS_PORT}", self.key, self.authority, NAME)

    def begin(self, asked: StreamRequest) -> RunningLoad:
        """Start a load; `end` waits for it."""
        return start_load(self.host, asked)

    def connections(self, instance: str) -> int:
        """That an instance has, with what it listens on and has for itself."""
        main = shlex.join(("systemctl", "show", "--property=MainPID", "--value", f"rigwright-{instance}"))
        return int(self.host.run(f"ls -l /proc/$({main})/fd | grep -c socket: || true"))

    def resident(self) -> int:
        """Bytes of memory that all processes of nginx and router have, pages that they share counted once."""
        said = self.host.run(RESIDENT)
        kibibytes = [int(line.split()[0]) for line in said.splitlines()]
        if not kibibytes:
            raise BenchmarkFailed(f"no processes of the gateway: {said[:500]!r}")
        return 1024 * sum(kibibytes)

    def _process(self) -> int:
        """A process of the host's, by its number on this machine."""
        said = subprocess.run(["ip", "netns", "pids", self.host.namespace], capture_output=True, text=True).stdout
        for pid in said.split():
            if (Path("/proc") / pid / "root/run/rigwright/instances").is_dir():
                return int(pid)
        raise BenchmarkFailed(f"{self.host.name} has no process whose files can be reached")


@dataclass(frozen=True)
class RunningLoad:
    """A load that is under way."""

    process: subprocess.Popen[str]
    said: IO[str]

    def end(self) -> str:
        """Wait for it; returns what it printed.

        Raises:
            BenchmarkFailed: it failed, or has not ended after LOAD_LIMIT seconds.
        """
        try:
            _, complaint = self.process.communicate(timeout=LOAD_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise BenchmarkFailed(f"a load has not ended after {LOAD_LIMIT} s") from None
        with self.said:
            self.said.seek(0)
            if self.process.returncode:
                raise BenchmarkFailed(complaint[-1000:] or f"the load program ended with {self.process.returncode}")
            return self.said.read()


def start_load(host: LabHost, asked: StreamRequest) -> RunningLoad:
    """Start a load in the network of a host."""
    inside = ["ip", "netns", "exec", host.namespace]
    program = [*inside, sys.executable, "-I", str(ROOT / "benchmarks" / "http_streams.py")]
    # not a pipe, which it would wait for while it has no reader
    said = TemporaryFile("w+")  # noqa: SIM115 # its reader closes it
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.PIPE, text=True)
    assert process.stdin
    process.stdin.write(json.dumps(asdict(asked)))
    process.stdin.close()
    process.stdin = None
    return RunningLoad(process, said)


def rigwright(*words: str) -> str:
    """The command, as an operator runs it; returns what it printed.

    Raises:
        BenchmarkFailed: it failed.
    """
    command = [sys.executable, "-m", "cli", *words]
    done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkFailed((done.stdout + done.stderr)[-3000:])
    return done.stdout


def gateway() -> dict[str, object]:
    """The declared gateway of the host."""
    every = "0.0.0.0"
    return {
        "listeners": {
            "lan": {"address": every, "port": PLAIN_PORT, "keys": False},
            "office": {"address": every, "port": TLS_PORT, "tls": True, "names": [NAME]},
        },
        # names of our own, so that each body has to be changed on its way to the engine
        "models": {name: {"instances": [name], "queue": 4096} for name in PORTS},
    }


def write_locked_model(folder: Path, lab: ThrowawayLab, name: str, size: tiny_model.LlamaSize, catalog: str) -> None:
    """Write a model that the shelf lacks, and the catalogue and lock that name it."""
    weight = lab.shelf_folder / f"{name}.gguf"
    if not weight.exists():
        tiny_model.write_model(weight, size=size)
    row = Artefact(
        kind="weight",
        name=name,
        version="1",
        file=weight.name,
        sha256=hashlib.sha256(weight.read_bytes()).hexdigest(),
        size=weight.stat().st_size,
        sources=(f"shelf:{weight.name}",),
    )
    texts = {f"catalog/{name}.toml": catalog, f"locks/{name}.lock.toml": render_lock([row], f"{name}.toml")}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def declare(folder: Path, lab: ThrowawayLab, host: LabHost) -> Path:
    """The operator's folder: catalogue, lock, weights on the shelf, and the inventory, which is returned."""
    write_locked_model(folder, lab, "bench-rig", SIZE, CATALOG)
    variants = {REAL: "llamacpp/bench", PACED: "llamacpp/demo"}
    instances = {name: {"variant": variants[name], "port": port} for name, port in PORTS.items()}
    entry = {**host.inventory_keys, "instances": instances, "gateway": gateway(), "mirrors": {"shelf": [lab.shelf_url]}}
    inventory = folder / "rig.py"
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {entry!r}}})\n")
    return inventory


@contextmanager
def deployed(folder: Path, release: str, layers: tuple[str, ...]) -> Iterator[Box]:
    """The host, gone when the block ends.

    Raises:
        BenchmarkFailed: a deploy fails, or the gateway does not come to serve.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that makes the lab.
        TimeoutError: the host does not answer.
    """
    with own_lab() as lab:
        (host,) = lab.up([HostSpec("h1", release, layers or engine_cache.cached_layers(release))])
        inventory = declare(folder, lab, host)
        rigwright("deploy", str(inventory))
        engine_cache.save_engines(host)
        put_stand_in(host)
        key = rigwright("key", "make", str(inventory), "bench").strip()
        box = Box(host, folder, inventory, rigwright("key", "ca", str(inventory)), key)
        _until_served(box)
        yield box


def put_stand_in(host: LabHost) -> None:
    """Have the stand-in's unit start it."""
    text = (ROOT / "benchmarks" / "paced_engine.py").read_text()
    command = f"/usr/bin/python3 -I {STAND_IN} /run/rigwright/instances/{PACED}/api.sock"
    override = f"[Service]\nExecStart=\nExecStart={command}\n"
    folder, unit = f"/run/systemd/system/rigwright-{PACED}.service.d", f"rigwright-{PACED}.service"
    host.run(
        f"printf %s {shlex.quote(text)} > {shlex.quote(STAND_IN)} && mkdir -p {shlex.quote(folder)} && "
        f"printf %s {shlex.quote(override)} > {shlex.quote(f'{folder}/bench.conf')} && systemctl daemon-reload && "
        f"systemctl restart {shlex.quote(unit)}"
    )


def _until_served(box: Box) -> None:
    deadline = time.monotonic() + START_LIMIT
    while True:
        try:
            for way in (PLAIN, TLS):
                for instance in PORTS:
                    box.begin(StreamRequest(box.place(way, instance), instance, streams=1, seconds=0, tokens=1)).end()
            return
        except BenchmarkFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
