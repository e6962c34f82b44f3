"""A kind of engine in one folder is deployed, checked, drifted and rolled back, and no other file knows it."""

import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.support import check_verdicts, deploy, red_checks, run_deploy, run_plan
from tests.hosts.toy import SERVER
from tests.lock_files import render_sealed_lock

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
GREETING = """it's "a" \\ $HOME %n ${X} ; `date` 5 > 4 & {"json": [1, 2]} ünï"""
SETTINGS = {"name": "a b", "deep": {"list": [1, "%", "$$"]}}
# a dash would put its slice into that of another
NAME, PORT = "toy-a", 8030
KEY = f"/etc/rigwright/credentials/{NAME}.api-key"
HEAD = """
import sys
sys.path.insert(0, {folder!r})
from toy import KIND
from rigwright.engines import register
from rigwright.inventory import hosts
register(KIND)
"""
CATALOG = f"""
[engines.toy]
kind = "toy"
source = "toy-server"

[models.toy]
file = "toy-model"

[variants."toy/loud"]
engine = "toy"
model = "toy"
greeting = {json.dumps(GREETING, ensure_ascii=False)}
settings = {{ name = "a b", deep = {{ list = [1, "%", "$$"] }} }}

[variants."toy/quiet"]
engine = "toy"
model = "toy"
greeting = "hush"
"""


def row(kind: str, name: str, file: str, content: bytes) -> str:
    return f"""
[[artefact]]
kind = "{kind}"
name = "{name}"
version = "1"
file = "{file}"
sha256 = "{hashlib.sha256(content).hexdigest()}"
size = {len(content)}
sources = ["shelf:{file}"]
"""


class ToyBox:
    """A box of toys and its inventory."""

    def __init__(self, lab: ThrowawayLab, host: LabHost, folder: Path) -> None:
        self.lab, self.host, self.folder = lab, host, folder
        (lab.shelf_folder / "toy-server").write_bytes(SERVER.read_bytes())
        for noun in ("catalog", "locks"):
            (folder / noun).mkdir()
        (folder / "catalog" / "toy.toml").write_text(CATALOG)
        rows = row("source", "toy-server", "toy-server", SERVER.read_bytes())
        rows_of_model = row("weight", "toy-model", MODEL, (lab.shelf_folder / MODEL).read_bytes())
        (folder / "locks" / "toy.lock.toml").write_text(render_sealed_lock(rows, rows_of_model))

    def declare(self, variant: str) -> Path:
        rig = {
            **self.host.inventory_keys,
            "mirrors": {"shelf": [self.lab.shelf_url]},
            "instances": {NAME: {"variant": variant, "port": PORT}},
        }
        path = self.folder / "rig.py"
        head = HEAD.format(folder=str(ROOT / "tests" / "hosts"))
        path.write_text(f"{head}\nrigs = hosts({{'box': {rig!r}}})\n")
        return path

    def ask(self) -> dict[str, Any]:
        """The toy's own report."""
        line = f'curl -s -H "Authorization: Bearer $(cat {KEY})" http://127.0.0.1:{PORT}/greet'
        said: dict[str, Any] = json.loads(self.host.run(line))
        return said

    def pids(self) -> list[str]:
        """Its processes, by the slice of its own."""
        slice_ = f"rigwright-{NAME}.slice".replace("toy-a", r"toy\\x2da")
        return self.host.run(f"grep -l '/{slice_}/' /proc/[0-9]*/cgroup | cut -d / -f 3").split()


@pytest.fixture
def toys(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> Iterator[ToyBox]:
    """A host that nothing was compiled on."""
    yield ToyBox(lab, boot(), tmp_path)


@pytest.mark.all_only
def test_a_kind_of_engine_in_one_folder(toys: ToyBox) -> None:
    host, inventory = toys.host, toys.declare("toy/loud")
    assert {"Engines | Install toy", "Serving | Activate generation"} <= set(run_plan(inventory).planned_operations)
    deploy(inventory)
    said = toys.ask()
    assert said == {"argv": [GREETING, json.dumps(SETTINGS)], "greeting": GREETING, "warmed": 2}
    assert len(toys.pids()) == 2
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()
    assert "g++" not in host.run("dpkg-query -f '${Package}\\n' -W")

    drifts(toys, inventory)
    back_and_forth(toys, inventory)
    host.reboot()
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


def drifts(toys: ToyBox, inventory: Path) -> None:
    """The changes that a check sees of it, and a deploy repairs."""
    host = toys.host
    engine = "/etc/rigwright/current/engines/toy"
    host.run(f"echo >> $(readlink -f {engine})/bin/toy-server")
    assert red_checks(inventory) == {"L02"}
    host.run(f"truncate --size=-1 $(readlink -f {engine})/bin/toy-server")
    host.run(f'sed -i \'s/"digest": "/&x/\' {engine}/build.json')
    assert red_checks(inventory) == {"L01", "L02"}
    host.run(f'sed -i \'s/"digest": "x/"digest": "/\' {engine}/build.json')
    # one that runs beside its unit, from the same folder
    host.run(f"systemd-run -q --unit=stray {engine}/bin/toy-server 8099 {KEY} /etc/hosts")
    assert red_checks(inventory) == {"S09"}
    host.run("systemctl stop stray")
    # its model is another file of the same name: no process of its own says so, and it starts again
    before = toys.pids()
    model = host.run(f"echo /srv/models/*/1/{MODEL}").strip()
    host.run(f"cp -p {model} {model}.new && mv {model}.new {model}")
    assert "Serving | Activate generation" in run_deploy(inventory).changed_operations
    assert not set(before) & set(toys.pids())


def back_and_forth(toys: ToyBox, inventory: Path) -> None:
    """Another variant, and the way back."""
    toys.declare("toy/quiet")
    deploy(inventory)
    assert toys.ask()["argv"] == ["hush", "{}"]
    rig = str(ROOT / "rig")
    done = subprocess.run([rig, "rollback", str(inventory), "--to", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert toys.ask()["argv"][0] == GREETING
    toys.declare("toy/loud")
    assert run_deploy(inventory).changed_operations == []
    assert check_verdicts(inventory)["S06"] == "ok"
