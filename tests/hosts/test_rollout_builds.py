"""A rollout in which a host copies the engine that two others have compiled, and refuses it if they differ."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine_cache import ENGINES
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BASE
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.host_layers import install_engine
from tests.hosts.support import CHAT, deploy, is_serving, run_deploy

NAMES = ("one", "two", "three")


@pytest.fixture
def boxes(lab: ThrowawayLab, release: str) -> Iterator[dict[str, LabHost]]:
    """Three blank hosts."""
    hosts = lab.up([HostSpec(f"rb{number}{release[-2:]}", release) for number in (1, 2, 3)])
    yield dict(zip(NAMES, hosts, strict=True))
    for host in hosts:
        host.destroy()


@pytest.mark.all_only
@pytest.mark.parametrize("release", ["debian-13"], indirect=True)
def test_a_host_copies_an_engine_of_which_two_others_have_equal_digests(
    lab: ThrowawayLab, boxes: dict[str, LabHost], engine_layer: str, tmp_path: Path
) -> None:
    shelf = {"mirrors": {"shelf": [lab.shelf_url]}, "instances": CHAT}
    inventory = tmp_path / "fleet.py"
    entries = {name: {**host.inventory_keys, **shelf} for name, host in boxes.items()}
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    deploy(inventory, file=BASE)
    for name in ("one", "two"):
        install_engine(boxes[name], engine_layer)
    (tree,) = (path.name for path in (Path(engine_layer) / ENGINES).iterdir())

    boxes["two"].run(f"echo >> /{ENGINES}/{tree}/bin/llama-server")
    said = run_until_refusal(inventory)
    assert f"three: no copy of {tree}: its builders disagree: one has " in said
    assert ", two has " in said
    aborted = run_rigwright("rollout", str(inventory), "--abort")
    assert aborted.returncode == 0, aborted.stderr
    assert boxes["three"].run(f"ls -d /{ENGINES}/{tree}", check=False) == ""
    boxes["two"].run(f"truncate -s -1 /{ENGINES}/{tree}/bin/llama-server")

    done = run_rigwright("rollout", str(inventory), "--share-builds")
    assert done.returncode == 0, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert f"{tree}: compiled by one, two, copied by three if both have equal digests" in told
    assert f"three: copied {tree} of one, as compiled by two" in told
    assert all(is_serving(host) for host in boxes.values())
    marker = json.loads(boxes["three"].run(f"cat /{ENGINES}/{tree}/build.json"))
    assert marker["copied_from"] == ["one", "two"]
    assert marker["inputs"] == json.loads(boxes["one"].run(f"cat /{ENGINES}/{tree}/build.json"))["inputs"]
    left = f"ls -d /var/lib/rigwright/build/* /var/lib/rigwright/jobs/rw-job-{tree}"
    assert boxes["three"].run(left, check=False) == ""
    assert run_deploy(inventory).changed_operations == []


def run_until_refusal(inventory: Path) -> str:
    """Run a rollout of the third host until it says that it copies nothing, and kill its controller."""
    words = [sys.executable, "-m", "cli", "rollout", str(inventory), "--share-builds", "--limit", "three"]
    lines: list[str] = []
    with subprocess.Popen(
        words, cwd="/", text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as controller:
        assert controller.stdout
        for line in controller.stdout:
            lines.append(line)
            if ", two has " in " ".join("".join(lines).split()):
                break
        os.killpg(controller.pid, signal.SIGKILL)
    return " ".join("".join(lines).split())
