"""Packages on real hosts: fetched once for four boxes, gone on with after a kill and a cut, and dropped again."""

from __future__ import annotations

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

from lab.hosts import Host
from lab.labs import Lab
from rigwright.host.locks import LOCKS
from rigwright.supply.bundle import Row, text
from rigwright.supply.lock import read
from tests.hosts.conftest import Boot, FirstRun
from tests.hosts.servers import Mirror, _MirrorHandler, index
from tests.hosts.support import command, deploy, until, write_inventory
from tests.locks import lock_text

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


class Counting(Mirror):
    """A mirror that counts what it sends, and stands still in the middle of large files until it is to go on."""

    def __init__(self, address: str, have: Callable[[str], bytes | None]) -> None:
        super().__init__(address, have)
        self.RequestHandlerClass = _CountingHandler
        self.lock = threading.Lock()
        self.sent = 0
        self.met, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()


class _CountingHandler(_MirrorHandler):
    server: Counting

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
    """Four boxes, the first of which shares, and an index with stand-ins for wheels, which nobody could install."""

    boxes: list[Host]
    outside: Counting
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "rig.py"

    def fetch(self, group: str) -> None:
        run = deploy(self.inventory, file=PACKAGES, GROUP=group)
        assert run.status == 0, run.said
        assert deploy(self.inventory, file=PACKAGES, GROUP=group).changed == []

    def there(self, box: Host) -> int:
        """How many of a box's packages lie there, all of them by their hashes."""
        found = box.run(f"cd {ROOT} 2>/dev/null && sha256sum */*.whl || true").splitlines()
        assert all(line.partition(" ")[0].startswith(line.split()[1].partition("/")[0]) for line in found)
        return len(found)


def locked(folder: Path, wheels: Path, *groups: str) -> None:
    """Make stand-ins for wheels, and a lock beside an inventory in which they are groups."""
    rows = []
    wheels.mkdir(parents=True)
    for group in groups:
        for number, size in enumerate(SIZES):
            name, content = f"{group}{number}", os.urandom(size)
            (wheels / f"{name}-1.0-py3-none-any.whl").write_bytes(content)
            rows.append(ROW.format(group=group, name=name, size=size, sha256=hashlib.sha256(content).hexdigest()))
    (folder / "locks").mkdir()
    (folder / "locks/mine.lock.toml").write_text(lock_text(*rows))


@pytest.fixture
def fleet(lab: Lab, boot: Boot, first_run: FirstRun, tmp_path: Path) -> Iterator[Fleet]:
    """The first one shares by a deploy; what the others need for fetching, a converged one has."""
    wheels = tmp_path / "wheels"
    locked(tmp_path, wheels, "one", "two")
    boxes = [boot(first_run.layer) for _ in range(4)]
    with Counting(lab.gateway, index(wheels)) as outside:
        made = Fleet(boxes, outside, tmp_path)
        share = {"share": {"address": boxes[0].address, "allow": [str(lab.subnet)]}}
        peers = {"peers": [f"http://{boxes[0].address}:8090"]}
        declared = {box.name: {**box.connection, **(peers if number else share)} for number, box in enumerate(boxes)}
        common = {
            "instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}},
            "mirrors": {"shelf": [lab.shelf_url], "index": [outside.url]},
        }
        made.inventory.write_text(
            f"from rigwright.inventory import hosts\n\nrigs = hosts({declared!r}, **{common!r})\n"
        )
        run = deploy(made.inventory, "--limit", boxes[0].name, "--yes")
        assert run.status == 0, run.said
        outside.sent = 0
        yield made
        outside.go_on.set()


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_four_boxes_draw_packages_once_and_go_on_after_a_kill_and_a_cut(fleet: Fleet) -> None:
    total = sum(SIZES)
    fleet.fetch("one")
    assert [fleet.there(box) for box in fleet.boxes] == [len(SIZES)] * 4
    assert total <= fleet.outside.sent <= 1.05 * total

    fleet.outside.sent = 0
    fleet.outside.go_on.clear()
    first, second, third, fourth = fleet.boxes
    words = command(fleet.inventory, "--yes", file=PACKAGES)
    environment = os.environ | {"GROUP": "two"}
    small = sum(size < LARGE for size in SIZES)
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as running:
        try:
            until(fleet.outside.met.is_set, "half of a large one sent")
            until(lambda: fleet.there(fourth) == len(SIZES) + small, "small ones passed on")
        finally:
            running.kill()
    first.run("systemctl kill --signal=KILL 'rw-job-fetch-*'")
    third.kill()
    third.start()
    third.wait()
    fleet.outside.go_on.set()
    fleet.fetch("two")
    assert [fleet.there(box) for box in fleet.boxes] == [2 * len(SIZES)] * 4
    assert total <= fleet.outside.sent <= 1.05 * total
    left = "find /srv/models -name '*.part' -o -name '*.wrong' -o -name '.progress.json'"
    assert [box.run(left) for box in fleet.boxes] == [""] * 4

    _dropped(fleet, second)


def _dropped(fleet: Fleet, box: Host) -> None:
    """What was installed is dropped, and nothing is left of it; what another needs stays."""
    rows = [row for row in read(fleet.folder / "locks/mine.lock.toml") if row.group == "one"]
    files = [{"path": row.package_path, "sha256": row.sha256, "size": row.size} for row in rows]
    spec = {"root": "/srv/models", "records": STATE + "/weights", "ledger": STATE + "/owned", "locks": LOCKS}
    box.run(f"printf %s {shlex.quote(json.dumps(spec | {'files': files}))} > /root/spec.json")
    before = len(box.run(f"ls {STATE}/weights/*-*").splitlines())
    box.run("PYTHONPATH=/opt/rigwright/weights python3 -m rigwright_weights.drop /root/spec.json")
    assert fleet.there(box) == len(SIZES)
    assert len(box.run(f"ls {STATE}/weights/*-*").splitlines()) == before - len(SIZES)
    assert len(box.run(f"grep '^dir {ROOT}/' {STATE}/owned").splitlines()) == len(SIZES)


@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_a_bundle_sends_packages_in_one_job_and_what_is_verified_no_more(
    lab: Lab, boot: Boot, first_run: FirstRun, tmp_path: Path
) -> None:
    locked(tmp_path, tmp_path / "bundle/wheels", "one")
    rows = read(tmp_path / "locks/mine.lock.toml")
    listed = [Row(path=f"wheels/{row.file}", sha256=row.sha256, size=row.size) for row in rows]
    (tmp_path / "bundle/bundle.json").write_text(text("now", [], [], listed))
    host = boot(first_run.layer)
    inventory = write_inventory(tmp_path, lab, host, bundle="bundle")
    run = deploy(inventory, file=PACKAGES, GROUP="one")
    assert run.status == 0, run.said
    assert run.changed[-1:] == ["Fetch the packages"]
    assert f"sending {len(SIZES)} files" in run.said
    assert deploy(inventory, file=PACKAGES, GROUP="one").changed == []
    # as a job leaves it that was ended in the middle
    kept, lost = rows[0].package_path, rows[1].package_path
    host.run(f"cd /srv/models && cp {kept} {lost}.part && echo x >> {lost}")
    run = deploy(inventory, file=PACKAGES, GROUP="one")
    assert run.status == 0, run.said
    assert "sending 1 files" in run.said
    assert deploy(inventory, file=PACKAGES, GROUP="one").changed == []
    sums = host.run("cd /srv/models/_packages && sha256sum */*.whl").split()[::2]
    assert sorted(sums) == sorted(row.sha256 for row in rows)
    assert (
        host.run("find /srv/models -name '*.part'; ls -d /var/lib/rigwright/jobs/rw-job-fetch-*/files", check=False)
        == ""
    )
