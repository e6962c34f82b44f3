"""An engine that comes as an image: a disk that fills up, deploys cut off anywhere, and a gateway before it."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path

import pytest

from tests.hosts.image import LENT_DISK, REPOSITORY, Box, image
from tests.hosts.image.fixtures import box as box
from tests.hosts.image.fixtures import inventory as inventory
from tests.hosts.models import rigwright
from tests.hosts.support import deploy, main_pid, plan, red, served, until
from tests.unit.file_server import file_server, slow
from tests.unit.registry_server import Registry

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
UNIT = "rigwright-chat.service"


def test_a_disk_that_fills_up_while_layers_come_leaves_what_serves(box: Box, inventory: Path, release: str) -> None:
    locks = box.folder / "locks/box.lock.toml"
    old, before, three = locks.read_text(), main_pid(box.host), image("three")
    with file_server(address=box.lab.gateway) as files:
        Registry(files).push(three, "v1", repository=REPOSITORY)
        python = max(three.blobs, key=lambda one: len(three.blobs[one]))
        files.serve(f"v2/{REPOSITORY}/blobs/sha256:{python}", slow(three.blobs[python], 1_000_000))
        there = box.declare(mirrors={"shelf": [box.lab.shelf_url], "lan": [files.url]})
        assert rigwright("lock", "--refresh", str(there)).returncode == 0
        # room enough when it is looked at, and gone when it is written to
        box.host.run(
            "mount -t tmpfs -o size=1500m none /srv/models; "
            "systemd-run -q --unit=filler sh -c 'until [ -d /srv/models/_packages ]; do sleep 0.01; done; "
            "dd if=/dev/zero of=/srv/models/full bs=1M 2>/dev/null; dd if=/dev/zero of=/srv/models/more bs=1 2>&1'"
        )
        run = deploy(there)
        assert run.status == 1
        assert "the disk of /srv/models is full" in run.said, run.said[-3000:]
        assert "Traceback" not in run.said
        assert (main_pid(box.host), box.about()["mark"]) == (before, "one")
        box.host.run("systemctl stop filler; rm -f /srv/models/full /srv/models/more")
        run = deploy(there)
        assert run.status == 0, run.said[-3000:]
        assert box.about()["mark"] == "three"
    locks.write_text(old)
    box.host.run("umount --lazy /srv/models")
    assert deploy(box.declare()).status == 0
    assert box.about()["mark"] == "one"


LAN = 8000
GATEWAY = {"listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}}}  # a throwaway host


def test_a_gateway_leads_to_it_by_its_models_name(box: Box, inventory: Path, release: str) -> None:
    declared = box.declare(gateway=GATEWAY)
    done = deploy(declared)
    assert done.status == 0, done.said[-3000:]
    asked = f"curl -s http://127.0.0.1:{LAN}/v1"
    (model,) = [one["id"] for one in json.loads(box.host.run(f"{asked}/models"))["data"]]
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "?"}]})
    said = box.host.run(f"{asked}/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}")
    assert json.loads(said)["choices"][0]["message"]["content"] == "alive"
    assert red(declared) == LENT_DISK
    assert deploy(declared).changed == []
    # a restart of the container is one of a backend: it is gone, and found again
    box.host.run(f"systemctl kill --signal=KILL {UNIT}")
    until(lambda: f'"{model}"' in box.host.run(f"{asked}/models"), "the model is there again")
    until(lambda: "alive" in box.host.run(f"{asked}/chat/completions -d {shlex.quote(body)}"), "answered again")
    assert deploy(box.declare()).status == 0


KILLING = Path(__file__).with_name("killing_deploy.py")
# Seconds into an operation, beside its beginning: while layers come, are unpacked, and an instance starts.
MOMENTS = {
    "Engines | Fetch layers of vllm-image": (0.0, 1.0),
    "Engines | Install vllm-image": (0.0, 0.5, 2.0),
    "Serving | Activate generation": (0.0, 1.0),
}


@pytest.mark.parametrize("kind", ["controller", "host"])
def test_a_deploy_that_is_cut_off_at_any_operation_is_finished_by_the_next_run(
    box: Box, inventory: Path, kind: str, subtests: pytest.Subtests, release: str
) -> None:
    locks, host = box.folder / "locks/box.lock.toml", box.host
    locked = {"one": locks.read_text()}
    # of what is not served nothing stays, so that each deploy fetches and unpacks
    assert deploy(box.declare(keep_generations=1)).status == 0
    box.push(image("three"))
    box.locked("--refresh")
    locked["three"] = locks.read_text()
    declared = box.declare(keep_generations=1)
    first = deploy(declared)
    assert first.status == 0, first.said[-3000:]
    assert {*MOMENTS} <= {*first.changed}
    environment = {"KILL_HOST": host.namespace} if kind == "host" else {}
    for operation in first.changed:
        for after in MOMENTS.get(operation, (0.0,)):
            with subtests.test(f"{operation} after {after} s"):
                now = box.about()["mark"]
                target = "one" if now == "three" else "three"
                locks.write_text(locked[target])
                words = {"KILL_AT": operation, "KILL_AFTER": str(after), **environment}
                assert deploy(declared, "--yes", file=KILLING, **words).status == -signal.SIGKILL
                if kind == "host":
                    host.start()
                    host.wait()
                until(lambda: served(host), "something serves", 60)
                assert box.about()["mark"] in locked
                again = deploy(declared)
                assert again.status == 0, again.said[-3000:]
                assert box.about()["mark"] == target
                assert plan(declared).planned == []
    assert red(declared) == LENT_DISK
    locks.write_text(locked["one"])
    assert deploy(box.declare()).status == 0
