"""An engine that comes as an image: a disk that fills up, deploys cut off anywhere, and a gateway before it."""

import json
import shlex
import signal
from pathlib import Path

import pytest

from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import REPOSITORY, SHARED_DISK_CHECKS, ImageBox, make_server_image
from tests.hosts.image.image_fixtures import box as box
from tests.hosts.image.image_fixtures import inventory as inventory
from tests.hosts.support import deploy, is_serving, main_pid, red_checks, run_deploy, run_plan, wait_until
from tests.unit.file_server import run_file_server, slow_file
from tests.unit.registry_server import LoopbackRegistry

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
UNIT = "rigwright-chat.service"


def test_a_disk_that_fills_up_while_layers_come_leaves_what_serves(
    box: ImageBox, inventory: Path, release: str
) -> None:
    locks = box.folder / "locks/box.lock.toml"
    old, before, three = locks.read_text(), main_pid(box.host), make_server_image("three")
    with run_file_server(address=box.lab.gateway) as files:
        LoopbackRegistry(files).push_image(three, "v1", repository=REPOSITORY)
        python = max(three.blobs, key=lambda one: len(three.blobs[one]))
        files.serve(f"v2/{REPOSITORY}/blobs/sha256:{python}", slow_file(three.blobs[python], 1_000_000))
        there = box.declare(mirrors={"shelf": [box.lab.shelf_url], "lan": [files.url]})
        assert run_rigwright("lock", "--refresh", str(there)).returncode == 0
        # room enough when it is looked at, and gone when it is written to
        box.host.run(
            "mount -t tmpfs -o size=1500m none /srv/models; "
            "systemd-run -q --unit=filler sh -c 'until [ -d /srv/models/_packages ]; do sleep 0.01; done; "
            "dd if=/dev/zero of=/srv/models/full bs=1M 2>/dev/null; dd if=/dev/zero of=/srv/models/more bs=1 2>&1'"
        )
        run = run_deploy(there)
        assert run.status == 1
        assert "the disk of /srv/models is full" in run.said, run.said[-3000:]
        assert "Traceback" not in run.said
        assert (main_pid(box.host), box.server_facts()["mark"]) == (before, "one")
        box.host.run("systemctl stop filler; rm -f /srv/models/full /srv/models/more")
        run = run_deploy(there)
        assert run.status == 0, run.said[-3000:]
        assert box.server_facts()["mark"] == "three"
    locks.write_text(old)
    box.host.run("umount --lazy /srv/models")
    deploy(box.declare())
    assert box.server_facts()["mark"] == "one"


LAN = 8000
GATEWAY = {"listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}}}  # a throwaway host


def test_a_gateway_leads_to_it_by_its_models_name(box: ImageBox, inventory: Path, release: str) -> None:
    declared = box.declare(gateway=GATEWAY)
    done = run_deploy(declared)
    assert done.status == 0, done.said[-3000:]
    asked = f"curl -s http://127.0.0.1:{LAN}/v1"
    (model,) = [one["id"] for one in json.loads(box.host.run(f"{asked}/models"))["data"]]
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "?"}]})
    said = box.host.run(f"{asked}/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(body)}")
    assert json.loads(said)["choices"][0]["message"]["content"] == "alive"
    assert red_checks(declared) == SHARED_DISK_CHECKS
    assert run_deploy(declared).changed_operations == []
    # a restart of the container is one of a backend: it is gone, and found again
    box.host.run(f"systemctl kill --signal=KILL {UNIT}")
    wait_until(lambda: f'"{model}"' in box.host.run(f"{asked}/models"), "the model is there again")
    wait_until(lambda: "alive" in box.host.run(f"{asked}/chat/completions -d {shlex.quote(body)}"), "answered again")
    deploy(box.declare())


KILLING = Path(__file__).with_name("interrupted_deploy.py")
# Seconds into an operation, beside its beginning: while layers come, are unpacked, and an instance starts.
MOMENTS = {
    "Engines | Fetch layers of vllm-image": (0.0, 1.0),
    "Engines | Install vllm-image": (0.0, 0.5, 2.0),
    "Serving | Activate generation": (0.0, 1.0),
}


@pytest.mark.parametrize("kind", ["controller", "host"])
def test_a_deploy_that_is_cut_off_at_any_operation_is_finished_by_the_next_run(
    box: ImageBox, inventory: Path, kind: str, subtests: pytest.Subtests, release: str
) -> None:
    locks, host = box.folder / "locks/box.lock.toml", box.host
    locked = {"one": locks.read_text()}
    # of what is not served nothing stays, so that each deploy fetches and unpacks
    deploy(box.declare(keep_generations=1))
    box.push_image(make_server_image("three"))
    box.lock_declared("--refresh")
    locked["three"] = locks.read_text()
    declared = box.declare(keep_generations=1)
    first = run_deploy(declared)
    assert first.status == 0, first.said[-3000:]
    assert {*MOMENTS} <= {*first.changed_operations}
    environment = {"KILL_HOST": host.namespace} if kind == "host" else {}
    for operation in first.changed_operations:
        for after in MOMENTS.get(operation, (0.0,)):
            with subtests.test(f"{operation} after {after} s"):
                now = box.server_facts()["mark"]
                target = "one" if now == "three" else "three"
                locks.write_text(locked[target])
                words = {"KILL_AT": operation, "KILL_AFTER": str(after), **environment}
                assert run_deploy(declared, "--yes", file=KILLING, **words).status == -signal.SIGKILL
                if kind == "host":
                    host.start()
                    host.wait()
                wait_until(lambda: is_serving(host), "something serves", 60)
                assert box.server_facts()["mark"] in locked
                again = run_deploy(declared)
                assert again.status == 0, again.said[-3000:]
                assert box.server_facts()["mark"] == target
                assert run_plan(declared).planned_operations == []
    assert red_checks(declared) == SHARED_DISK_CHECKS
    locks.write_text(locked["one"])
    deploy(box.declare())
