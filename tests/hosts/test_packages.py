"""Packages on real hosts: fetched once for four boxes, gone on with after a kill and a cut, and dropped again."""

import hashlib
import json
import os
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.supply.bundle import BundleRow, render_index
from rigwright.supply.lock import load_lock_file
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.download_servers import StandInMirror, _StandInMirrorHandler, index_content
from tests.hosts.support import deploy, deploy_command, run_deploy, wait_until, write_inventory
from tests.lock_files import render_sealed_lock

PACKAGES = Path(__file__).with_name("packages_deploy.py")
ROOT, STATE = "/srv/models/_packages", "/var/lib/rigwright"
LARGE = 1_000_000  # bytes
SIZES = (6_000_000, 3_000_000, *(40_000 for _ in range(40)))
ROW = """
[[artefact]]
kind = "wheel"
group = "{group}"
name = "{name}"
version = "1.0"
file = "{name}-1.0-py3-none-any.whl"
sha256 = "{sha256}"
size = {size}
sources = ["index:{name}"]
"""


class CountingMirror(StandInMirror):
    """A mirror that counts what it sends, and stands still in the middle of large files until it is to go on."""

    def __init__(self, address: str, have: Callable[[str], bytes | None]) -> None:
        super().__init__(address, have)
        self.RequestHandlerClass = _CountingHandler
        self.lock = threading.Lock()
        self.sent = 0
        self.met, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()


class _CountingHandler(_StandInMirrorHandler):
    server: CountingMirror

    def _send(self, content: bytes) -> None:
        for at in range(0, len(content), 65536):
            if len(content) > LARGE and at > len(content) // 2 and not self.server.go_on.is_set():
                self.server.met.set()
                self.server.go_on.wait()
                self.close_connection = True
                return
            super()._send(content[at : at + 65536])
            with self.server.lock:
                self.server.sent += len(content[at : at + 65536])


@dataclass
class Fleet:
    """Four boxes, the first of which shares, and an index with stand-ins for wheels, which cannot be installed."""

    boxes: list[LabHost]
    outside: CountingMirror
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "rig.py"

    def fetch(self, group: str) -> None:
        deploy(self.inventory, file=PACKAGES, GROUP=group)
        assert run_deploy(self.inventory, file=PACKAGES, GROUP=group).changed_operations == []

    def count_packages(self, box: LabHost) -> int:
        """How many of a box's packages lie there, all of them by their hashes."""
        found = box.run(f"cd {ROOT} 2>/dev/null && sha256sum */*.whl || true").splitlines()
        assert all(line.partition(" ")[0].startswith(line.split()[1].partition("/")[0]) for line in found)
        return len(found)


def write_stand_in_lock(folder: Path, wheels: Path, *groups: str) -> None:
    """Make stand-ins for wheels, and a lock beside an inventory in which they are groups."""
    rows = []
    wheels.mkdir(parents=True)
    for group in groups:
        for number, size in enumerate(SIZES):
            name, content = f"{group}{number}", os.urandom(size)
            (wheels / f"{name}-1.0-py3-none-any.whl").write_bytes(content)
            rows.append(ROW.format(group=group, name=name, size=size, sha256=hashlib.sha256(content).hexdigest()))
    (folder / "locks").mkdir()
    (folder / "locks/mine.lock.toml").write_text(render_sealed_lock(*rows))


@pytest.fixture
def fleet(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[Fleet]:
    """The first one shares by a deploy; a converged one has the needs of the others for fetching."""
    wheels = tmp_path / "wheels"
    write_stand_in_lock(tmp_path, wheels, "one", "two")
    boxes = [boot(first_run.layer) for _ in range(4)]
    with CountingMirror(lab.gateway, index_content(wheels)) as outside:
        made = Fleet(boxes, outside, tmp_path)
        share = {"share": {"address": boxes[0].address, "allow": [str(lab.subnet)]}}
        peers = {"peers": [f"http://{boxes[0].address}:8090"]}
        declared = {
            box.name: {**box.inventory_keys, **(peers if number else share)} for number, box in enumerate(boxes)
        }
        common = {
            "instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}},
            "mirrors": {"shelf": [lab.shelf_url], "index": [outside.url]},
        }
        made.inventory.write_text(
            f"from rigwright.inventory import hosts\n\nrigs = hosts({declared!r}, **{common!r})\n"
        )
        deploy(made.inventory, "--limit", boxes[0].name, "--yes")
        outside.sent = 0
        yield made
        outside.go_on.set()


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_four_boxes_draw_packages_once_and_go_on_after_a_kill_and_a_cut(fleet: Fleet) -> None:
    total = sum(SIZES)
    fleet.fetch("one")
    assert [fleet.count_packages(box) for box in fleet.boxes] == [len(SIZES)] * 4
    assert total <= fleet.outside.sent <= 1.05 * total

    fleet.outside.sent = 0
    fleet.outside.go_on.clear()
    first, second, third, fourth = fleet.boxes
    words = deploy_command(fleet.inventory, "--yes", file=PACKAGES)
    environment = os.environ | {"GROUP": "two"}
    small = sum(size < LARGE for size in SIZES)
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        try:
            wait_until(fleet.outside.met.is_set, "half of a large one sent")
            wait_until(lambda: fleet.count_packages(fourth) == len(SIZES) + small, "small ones passed on")
        finally:
            running.kill()
    first.run("systemctl kill --signal=KILL 'rw-job-fetch-*'")
    third.kill()
    third.start()
    third.wait()
    fleet.outside.go_on.set()
    fleet.fetch("two")
    assert [fleet.count_packages(box) for box in fleet.boxes] == [2 * len(SIZES)] * 4
    assert total <= fleet.outside.sent <= 1.05 * total
    left = "find /srv/models -name '*.part' -o -name '*.wrong' -o -name '.progress.json'"
    assert [box.run(left) for box in fleet.boxes] == [""] * 4

    _dropped(fleet, second)


def _dropped(fleet: Fleet, box: LabHost) -> None:
    """A dropped package leaves nothing; packages that another needs stay."""
    rows = [row for row in load_lock_file(fleet.folder / "locks/mine.lock.toml") if row.group == "one"]
    files = [{"path": row.package_path, "sha256": row.sha256, "size": row.size} for row in rows]
    spec = {"root": "/srv/models", "records": STATE + "/weights", "ledger": STATE + "/owned", "locks": LOCKS}
    box.run(f"printf %s {shlex.quote(json.dumps(spec | {'files': files}))} > /root/spec.json")
    before = len(box.run(f"ls {STATE}/weights/*-*").splitlines())
    box.run("PYTHONPATH=/opt/rigwright/weights python3 -m rigwright_weights.drop /root/spec.json")
    assert fleet.count_packages(box) == len(SIZES)
    assert len(box.run(f"ls {STATE}/weights/*-*").splitlines()) == before - len(SIZES)
    assert len(box.run(f"grep '^dir {ROOT}/' {STATE}/owned").splitlines()) == len(SIZES)


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_a_bundle_sends_packages_in_one_job_and_what_is_verified_no_more(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    write_stand_in_lock(tmp_path, tmp_path / "bundle/wheels", "one")
    rows = load_lock_file(tmp_path / "locks/mine.lock.toml")
    listed = [BundleRow(path=f"wheels/{row.file}", sha256=row.sha256, size=row.size) for row in rows]
    (tmp_path / "bundle/bundle.json").write_text(render_index("now", [], [], listed))
    host = boot(first_run.layer)
    inventory = write_inventory(tmp_path, lab, host, bundle="bundle")
    run = deploy(inventory, file=PACKAGES, GROUP="one")
    assert run.changed_operations[-1:] == ["Fetch the packages"]
    assert f"sending {len(SIZES)} files" in run.said
    assert run_deploy(inventory, file=PACKAGES, GROUP="one").changed_operations == []
    # as a job leaves it that was ended in the middle
    kept, lost = rows[0].package_path, rows[1].package_path
    host.run(f"cd /srv/models && cp {kept} {lost}.part && echo x >> {lost}")
    run = deploy(inventory, file=PACKAGES, GROUP="one")
    assert "sending 1 file" in run.said
    assert run_deploy(inventory, file=PACKAGES, GROUP="one").changed_operations == []
    sums = host.run("cd /srv/models/_packages && sha256sum */*.whl").split()[::2]
    assert sorted(sums) == sorted(row.sha256 for row in rows)
    assert (
        host.run("find /srv/models -name '*.part'; ls -d /var/lib/rigwright/jobs/rw-job-fetch-*/files", check=False)
        == ""
    )
