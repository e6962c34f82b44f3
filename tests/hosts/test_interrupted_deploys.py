"""A deploy that is cut off at every one of its operations in turn, by the end of the controller or of the host.

The host goes back and forth between two rigs that differ in everything a rig can differ in: engine, weights, flags,
port, key, authorities. Whatever is cut off, what was served before is served on, and the next run converges.

A new operation is swept by itself. If both rigs share its result, `UNDO` gives it something to do; if it waits for
something, `MOMENTS` has another second at which to cut.
"""

import hashlib
import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.download_servers import make_certificate
from tests.hosts.support import deploy, red_checks, run_deploy, run_plan, wait_until, write_inventory
from tests.lock_files import render_sealed_lock

KILLING = Path(__file__).with_name("interrupted_deploy.py")
COMMIT = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"
# The stand-in for a source: it "compiles" by taking what the real one was compiled to, in a second instead of minutes.
CMAKE = """cmake_minimum_required(VERSION 3.18)
project(packed NONE)
add_custom_target(llama-server COMMAND cp -a ${CMAKE_SOURCE_DIR}/bin ${CMAKE_BINARY_DIR}/)
"""
SOURCE_ROW = """
[[artefact]]
kind = "source"
name = "packed"
version = "{version}"
file = "packed.tar.gz"
sha256 = "{packed_sha256}"
size = {packed_size}
sources = ["shelf:packed.tar.gz"]
"""
WEIGHT_ROW = """
[[artefact]]
kind = "weight"
name = "tiny-rig"
version = "{version}"
file = "{model}"
sha256 = "{model_sha256}"
size = {model_size}
sources = ["shelf:{model}"]
"""
CATALOG = """[inputs.tiny-rig]
kind = "weight"
version = "{version}"
sources = ["shelf:{model}"]

[inputs.packed]
kind = "source"
version = "{version}"
sources = ["shelf:packed.tar.gz"]

[engines.packed]
kind = "llama.cpp"
source = "packed"
commit = "{commit}"

[variants."llamacpp/swept"]
engine = "packed"
model = "tiny-rig"
context = {context}
flags.metrics = true
"""
# The state that is undone before the deploy, so that the operation has work. Objects of both rigs must not be taken
# from under the one that serves.
UNDO = {
    "Base | Folders": "chmod 700 /var/lib/rigwright/jobs",
    "Base | Users": "usermod --shell /bin/sh rigwright-chat",
    "Base | Packages": "dpkg --purge ninja-build",
    "Tools | Install host tools": "rm /opt/rigwright/tools-*/.complete",
    "Tools | Directory of programs that manage weights": "chmod 700 /opt/rigwright/weights",
    "Tools | Programs that manage weights": "rm /opt/rigwright/weights/rigwright_weights/fetch.py",
    "Weights | Weights are hashed again as time passes": "systemctl disable --quiet --now rigwright_rehash.timer",
    "Self check | Directories": "chmod 700 /etc/rigwright/self_check",
    "Self check | Program and declaration": "rm /etc/rigwright/self_check/declaration.json",
    "Self check | Run after changes": "systemctl disable --quiet --now rigwright_self_check.path",
    "Self check | Run every few minutes": "systemctl disable --quiet --now rigwright_self_check.timer",
}
# Seconds into an operation: its beginning, and where it waits for something.
MOMENTS = {
    "Base | Packages": (0.0, 3.0),
    "Tools | Install host tools": (0.0, 3.0),
    "Engines | Install packed": (0.0, 1.0),
    "Serving | Activate generation": (0.0, 1.0),
}
# Of the operations, one of each kind with the way in which most can go wrong: the whole sweep is for
# `rigwright test all`. Between the two, all that moves bytes, compiles and switches is cut off.
KINDS = {
    "controller": {
        "Base | Packages": (3.0,),
        "Engines | Install packed": (1.0,),
        "Serving | Activate generation": (1.0,),
    },
    "host": {
        "Tools | Install host tools": (3.0,),
        f"Weights | Fetch {MODEL}": (0.0,),
        "Serving | Activate generation": (0.0,),
        "Serving | Prune generations": (0.0,),
    },
}
# The operations after a generation has been proven to serve.
AFTERWARDS = (
    *("Serving | Gateway log rotation", "Serving | Prune generations", "Serving | Record what is installed"),
    *("Self check | Directories", "Self check | Program and declaration", "Self check | No module to wait for"),
    *("Self check | Run after changes", "Self check | Run every few minutes"),
)
# The readiness script asks through setpriv. Without it an activation stays where it waits for a slow model. The fetcher
# uses setpriv, too, and keeps it.
WAIT = r"""mv /usr/bin/setpriv /usr/bin/setpriv.kept
printf '#!/bin/sh\ncase $1 in --pdeathsig) exec setpriv.kept "$@" ;; *) exit 126 ;; esac\n' > /usr/bin/setpriv
chmod 755 /usr/bin/setpriv"""
GO_ON = "[ ! -e /usr/bin/setpriv.kept ] || mv /usr/bin/setpriv.kept /usr/bin/setpriv"


def pack(host: LabHost, lab: ThrowawayLab) -> Path:
    """The stand-in source archive, made of the host's engine, on the shelf."""
    engines = host.folder / "root" / "opt/rigwright/engines"
    built = next(path for path in engines.iterdir() if not path.is_symlink())
    archive = lab.shelf_folder / "packed.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(built / "bin", "packed/bin")
        (lab.folder / "CMakeLists.txt").write_text(CMAKE)
        tar.add(lab.folder / "CMakeLists.txt", "packed/CMakeLists.txt")
    return archive


def rig(folder: Path, lab: ThrowawayLab, host: LabHost, number: int, archive: Path) -> Path:
    """One of the two rigs, with a lock and a catalogue of its own; returns its inventory."""
    model = lab.shelf_folder / MODEL
    for name in ("locks", "catalog/flags"):
        (folder / name).mkdir(parents=True)
    facts = {"version": number, "model": MODEL}
    for name, path in (("packed", archive), ("model", model)):
        facts |= {f"{name}_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), f"{name}_size": path.stat().st_size}
    rows = render_sealed_lock(SOURCE_ROW.format(**facts), WEIGHT_ROW.format(**facts))
    (folder / "locks" / "swept.lock.toml").write_text(rows)
    (folder / "catalog" / "swept.toml").write_text(
        CATALOG.format(version=number, model=MODEL, commit=COMMIT, context=1024 * number)
    )
    snapshot = next((ROOT / "catalog" / "flags").glob("llama.cpp-*.txt"))
    (folder / "catalog" / "flags" / f"llama.cpp-{number}-{COMMIT[:7]}.txt").write_bytes(snapshot.read_bytes())
    (folder / "key").write_text(f"key-{number}-0123456789abcdef\n")
    make_certificate(folder, "127.0.0.1")
    instances = {"chat": {"variant": "llamacpp/swept", "port": 8100 + number, "api_key_file": str(folder / "key")}}
    return write_inventory(folder, lab, host, instances=instances, ca_file="authority.pem", keep_generations=1)


def answered(host: LabHost, number: int) -> bool:
    """Whether the rig of that number answers a completion, with its key on its port."""
    body = json.dumps({"messages": [{"role": "user", "content": "?"}], "max_tokens": 1})
    ask = (
        f"curl -s -o /dev/null -w '%{{http_code}}' -H 'Authorization: Bearer key-{number}-0123456789abcdef' "
        f"-H 'Content-Type: application/json' -d '{body}' http://127.0.0.1:{8100 + number}/v1/chat/completions || true"
    )
    return host.run(ask, check=False).strip() == "200"


def cut_off(host: LabHost, rigs: dict[int, Path], now: int, operation: str, after: float, kind: str) -> None:
    """Deploy the rig that is not served, cut it off, look what is served, and deploy it again."""
    target = 3 - now
    if after and "Activate" in operation:
        host.run(WAIT)
    else:
        host.run(UNDO.get(operation, "true"))
        host.run(f"rm -rf /srv/models/tiny-rig/{target} /var/lib/rigwright/weights/*")
    environment = {"KILL_AT": operation, "KILL_AFTER": str(after)}
    if kind == "host":
        environment["KILL_HOST"] = host.namespace
    killed = run_deploy(rigs[target], "--yes", file=KILLING, **environment)
    assert killed.status == -signal.SIGKILL, killed.said
    if kind == "host":
        host.start()
        host.wait()
        host.run(GO_ON)
        # an unproven generation does not come up
        proven = target if operation in AFTERWARDS else now
        wait_until(lambda: answered(host, proven), f"rig {proven} serves after the cut", 60)
    else:
        host.run(GO_ON)
        wait_until(lambda: answered(host, now) or answered(host, target), "something serves", 30)
    deploy(rigs[target])
    assert (answered(host, target), answered(host, now)) == (True, False)
    assert run_plan(rigs[target]).planned_operations == []


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
@pytest.mark.parametrize("kind", ["controller", pytest.param("host", marks=pytest.mark.all_only)])
def test_a_deploy_cut_off_at_an_operation_of_each_kind_is_finished_by_the_next_run(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path, kind: str, subtests: pytest.Subtests
) -> None:
    sweep(lab, boot(first_run.layer), tmp_path, kind, KINDS[kind], subtests)


@pytest.mark.all_only
@pytest.mark.parametrize(
    ("kind", "release"), [("controller", "debian-12"), ("host", "debian-13")], indirect=["release"]
)
def test_a_deploy_cut_off_at_every_operation_leaves_a_service_and_is_finished_by_the_next_run(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path, kind: str, subtests: pytest.Subtests
) -> None:
    sweep(lab, boot(first_run.layer), tmp_path, kind, None, subtests)


def sweep(
    lab: ThrowawayLab,
    host: LabHost,
    folder: Path,
    kind: str,
    chosen: dict[str, tuple[float, ...]] | None,
    subtests: pytest.Subtests,
) -> None:
    """Cut deploys off at the chosen operations and moments, or at all of them."""
    archive = pack(host, lab)
    rigs = {number: rig(folder / str(number), lab, host, number, archive) for number in (1, 2)}
    first = deploy(rigs[1])
    operations = [row["name"] for row in first.report["results"]["operations"]]
    assert {*UNDO, *MOMENTS, *(chosen or ())} <= set(operations)
    moments = {operation: MOMENTS.get(operation, (0.0,)) for operation in operations} if chosen is None else chosen
    now = 1
    for operation, seconds in moments.items():
        for after in seconds:
            with subtests.test(f"{operation} after {after} s"):
                cut_off(host, rigs, now, operation, after, kind)
                now = 3 - now
    assert red_checks(rigs[now]) == set()
    command = [sys.executable, "-m", "cli", "show", "generations", str(rigs[now]), "--json"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert [row["current"] for row in json.loads(said)] == [True]
