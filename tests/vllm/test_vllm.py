"""vLLM's whole locked closure, brought to a blank host and run there: `./rig test vllm`.

The Python is this machine's CPython 3.10, packed as a conda package: conda-forge's own is not what is proven here.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.hosts.support import check_verdicts, run_deploy, run_plan, write_inventory
from tests.stand_ins import conda_python
from tests.stand_ins.environment_source import EnvironmentSource, LabEnvironment, write_declaration
from tests.vllm.resource_peak import measure_peak

GROUP = "vllm-0.21.0"
ENVIRONMENT = LabEnvironment("vllm", "vllm", ("vllm",))
MIB = 1 << 20
GB = 10**9
LISTED = (
    "import json, sys; from importlib.metadata import distributions; "
    "print(json.dumps([sys.version.split()[0], sorted([d.name, d.version] for d in distributions())]))"
)


@pytest.fixture
def lab() -> Iterator[ThrowawayLab]:
    lab = ThrowawayLab(f"v{os.getpid() % 100_000}")
    lab.down()
    yield lab
    lab.down()


def entered(inventory: Path, *words: str) -> str:
    """The output of a command in the environment, as an operator runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "ssh", "--in", ENVIRONMENT.name, str(inventory), *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def uv(host: LabHost, *words: str) -> str:
    """The host's own uv about the environment."""
    prefix = host.run("ls -d /opt/rigwright/engines/vllm-*/env").strip()
    return host.run(f"/opt/rigwright/installers-*/bin/uv pip {' '.join(words)} --python {prefix}/bin/python 2>&1")


def test_the_whole_closure_is_installed_and_imported(lab: ThrowawayLab, tmp_path: Path) -> None:
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        pytest.skip(f"{interpreter} is here alone, and {GROUP} is locked for CPython {conda_python.DEFAULT_SERIES}")
    (host,) = lab.up([HostSpec("h1")])
    with EnvironmentSource(lab.gateway, tmp_path / "channel", interpreter) as source:
        began = time.monotonic()
        rows = (*source.python, *source.environment_rows(Lock.load([ROOT / "locks"]).groups[GROUP]))
        print(f"\nkept on this machine, or fetched once: {len(rows)} files in {time.monotonic() - began:.0f} s")
        prove(lab, host, source, rows, tmp_path / "box")


def prove(
    lab: ThrowawayLab, host: LabHost, source: EnvironmentSource, rows: tuple[Artefact, ...], folder: Path
) -> None:
    """Deploy, look at what came, and deploy again."""
    total = sum(row.size for row in rows)
    inventory = write_inventory(
        folder, lab, host, instances={}, envs=[ENVIRONMENT.name], mirrors=source.inventory_mirrors
    )
    write_declaration(folder, ENVIRONMENT, rows)
    assert run_plan(inventory).status == 0
    began, before = time.monotonic(), source.sent_bytes
    with measure_peak(host) as highest:
        run = run_deploy(inventory)
    assert run.status == 0, run.said[-4000:]
    seconds, sent = time.monotonic() - began, source.sent_bytes - before
    print(
        f"deploy of a blank host: {seconds:.0f} s, {sent / GB:.3f} GB fetched, of which {total / GB:.3f} GB are locked"
    )
    print(f"at the highest: {highest.disk_bytes / GB:.1f} GB of disk, {highest.memory_bytes / MIB:.0f} MiB of memory")
    built = host.run("cat /opt/rigwright/engines/vllm-*/build.json")
    print(f"of it putting together, judging and trying: {json.loads(built)['seconds']} s")
    files, size = host.run("cd /opt/rigwright/engines/vllm-*/env && find . -type f | wc -l && du -s -B1 .").split()[:2]
    print(f"installed: {files} files, {int(size) / GB:.2f} GB")

    version, found = json.loads(entered(inventory, "python", "-c", LISTED))
    locked = {row.name: row.version for row in rows if row.kind == "wheel"}
    assert version == source.interpreter.version
    assert {name.lower().replace("_", "-").replace(".", "-"): release for name, release in found} == locked
    began = time.monotonic()
    assert entered(inventory, "python", "-c", "import vllm; print(vllm.__version__)").split() == [locked["vllm"]]
    print(f"import vllm, on no card: {time.monotonic() - began:.1f} s with rigwright ssh --in NAME")
    said = uv(host, "check", "--offline", "--no-cache")
    assert "compatible" in said, said
    print(said.strip().splitlines()[-1])

    assert host.run("find /srv/models -type f -not -name '.*'") == ""
    began = time.monotonic()
    assert run_deploy(inventory).changed_operations == []
    print(f"a deploy that changes nothing: {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    verdicts = check_verdicts(inventory)
    print(f"checks: {time.monotonic() - began:.1f} s")
    assert "FAIL" not in verdicts.values(), verdicts
