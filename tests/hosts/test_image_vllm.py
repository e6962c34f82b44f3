"""The real vLLM for the CPU as an image, beside the same environment as a unit of the same host."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from lab import base_images
from lab.hosts import HostSpec
from lab.ssh_tunnel import forward_port
from lab.throwaway_lab import ThrowawayLab
from tests.hosts import vllm_box
from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import REPOSITORY, SHARED_DISK_CHECKS, ImageBox
from tests.hosts.support import PORT, api_key, check_verdicts, main_pid, red_checks, run_deploy
from tests.hosts.vllm_box import VllmServers
from tests.stand_ins import oci_images
from tests.stand_ins.vllm_model import ANSWER

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
IMAGE = "vllm-image"
# Folders of a whole system that a container has of its own, or has no use for.
LEFT = (*("boot", "dev", "proc", "run", "sys", "tmp", "root"), "var/cache", "var/lib/apt", "var/log", "usr/share/doc")
_, _VARIANT = vllm_box.CATALOG.split('[variants."vllm/tiny"]')
_VARIANT = _VARIANT.partition('[variants."vllm/tiny-2"]')[0].replace("vllm/tiny", "image/tiny")
CATALOG = f"""
[engines.{IMAGE}]
kind = "image"
image = "itself"
serves = "vllm"
version = "0.21.0+cpu"

[inputs.itself]
kind = "image"
version = "v1"
sources = ["lan:{REPOSITORY}"]

[variants."image/tiny"]
{_VARIANT.replace('engine = "vllm"', f'engine = "{IMAGE}"')}
"""
BOTH = {**vllm_box.INSTANCES, "boxed": {"variant": "image/tiny", "port": PORT + 1}}


@pytest.fixture(scope="module")
def box(lab: ThrowawayLab, vllm: VllmServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBox]:
    """A host that serves vLLM from an environment, which is in an image of its registry, too."""
    (host,) = lab.up([HostSpec("ivllm", "debian-13", disks=("/opt",))])
    try:
        made = ImageBox(lab, host, tmp_path_factory.mktemp("image"))
        run = run_deploy(vllm_box.write_vllm_inventory(made.folder, host, vllm))
        assert run.status == 0, run.said[-4000:]
        made.install_registry()
        disk = host.folder / "disks/opt"
        (env,) = disk.glob("rigwright/engines/vllm-*/env")
        place = Path("opt") / env.relative_to(disk)
        layout = disk / "layout"
        trees = [(base_images.build_base(base_images.RELEASES["debian-13"]), "."), (env, str(place))]
        oci_images.write_tree_image(layout, "v1", trees, LEFT, Env=[f"PATH=/{place}/bin:/usr/bin:/bin"])
        made.push_layout("/opt/layout")
        shutil.rmtree(layout)
        yield made
    finally:
        host.destroy()


def answers(box: ImageBox, instance: str, port: int) -> str:
    """Its answers to the model's one question."""
    with (
        forward_port(box.host, port) as local,
        OpenAI(base_url=f"http://127.0.0.1:{local}/v1", api_key=api_key(box.host, instance)) as client,
    ):
        asked = [{"role": "user", "content": "Hello?"}]
        said = client.chat.completions.create(model="tiny", messages=asked, temperature=0)  # type: ignore[arg-type]
        return (said.choices[0].message.content or "").strip()


def test_vllm_itself_is_served_from_an_image_as_from_its_environment(
    box: ImageBox, vllm: VllmServers, release: str
) -> None:
    mirrors = {"shelf": [box.lab.shelf_url], **vllm.source.inventory_mirrors, "lan": [box.registry]}
    inventory = vllm_box.write_vllm_inventory(box.folder, box.host, vllm, instances=BOTH, mirrors=mirrors)
    # the packages of the environment are on no index: its lock is the lab's
    theirs = {path: path.read_bytes() for path in (box.folder / "locks").iterdir()}
    (box.folder / "catalog/boxed.toml").write_text(CATALOG)
    locked = run_rigwright("lock", str(inventory))
    assert locked.returncode == 0, locked.stdout + locked.stderr
    for path, content in theirs.items():
        path.write_bytes(content)
    chat = main_pid(box.host)
    run = run_deploy(inventory)
    assert run.status == 0, run.said[-4000:]
    # the one beside it has gone on
    assert main_pid(box.host) == chat
    assert answers(box, "chat", PORT) == answers(box, "boxed", PORT + 1) == "".join(ANSWER)
    assert red_checks(inventory) <= SHARED_DISK_CHECKS
    assert check_verdicts(inventory)["I01"] == "ok"
    assert run_deploy(inventory).changed_operations == []
