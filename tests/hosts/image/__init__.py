"""A small image that answers as vLLM does, for real registries and real podman, and a box that serves it.

Its Python is this machine's; its `vllm` is `server.py` next to this file: its launcher, the door before its paths and
its command line are those of the real one.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.model.containers import archive_tables
from rigwright.supply.lock import Artefact, render_lock
from rigwright.supply.lock_inputs import Input
from tests.hosts.hub_models import run_rigwright
from tests.hosts.support import PORT, api_key, run_deploy, run_plan, write_inventory
from tests.stand_ins import oci_images, vllm_model
from tests.stand_ins.nvidia import container_packages
from tests.stand_ins.nvidia.signing_keys import SigningKey
from tests.stand_ins.oci_images import LayerEntry, OCIImage

SERVER = Path(__file__).with_name("server.py")
REGISTRY_PORT = 5000
REGISTRY = "/etc/docker/registry/config.yml"
REPOSITORY = "vllm/stand-in"
# A throwaway host is an overlay, which cannot hold another one: installations lie on this machine's disk.
SHARED_DISK_CHECKS = {"F03", "M05"}
MODEL = vllm_model.NAME
WEIGHTS = Input(kind="weight", version="1", sources=(f"shelf:{MODEL}",), include=("*",))
# Modules of the standard library that are large, and that no server needs.
LEFT = re.compile(
    r"(test|idlelib|ensurepip|lib2to3|tkinter|turtledemo|pydoc_data|config-.*|site-packages|dist-packages)"
)
CATALOG = (
    "".join(
        f"""
[engines.vllm-image{mark}]
kind = "image"
image = "stand-in"
serves = "vllm"
version = "{version}"
"""
        for mark, version in (("", "0.21.0+cpu"), ("-carded", "0.21.0"))
    )
    + f"""
[inputs.stand-in]
kind = "image"
version = "TAG"
sources = ["lan:{REPOSITORY}"]

[models.tiny]
folder = "{MODEL}"
"""
    + "".join(
        f"""
[variants."image/{name}"]
engine = "vllm-image{mark}"
model = "tiny"
max_model_len = {length}
max_num_seqs = 4
shm_size = "1G"
ready_timeout = 60
cards = {cards}
"""
        for name, mark, length, cards in (("tiny", "", 4096, 0), ("other", "", 2048, 0), ("carded", "-carded", 4096, 1))
    )
)
WEIGHTS_CATALOG = f"""
[inputs.{MODEL}]
kind = "weight"
version = "{WEIGHTS.version}"
sources = ["{WEIGHTS.sources[0]}"]
include = ["*"]
"""


TOOLKIT = "1.20.0"
TRUSTED = {"allow": ["locks.container-toolkit"]}
"""Its toolkit is locked beside the inventory."""
TOOLKIT_CATALOG = f"""
[inputs.container-toolkit]
kind = "deb"
version = "{TOOLKIT}"
sources = ["container-toolkit:stable/deb/amd64"]
"""
# The libraries that the driver's are linked against: an image brings them.
LIBC = [f"/lib/x86_64-linux-gnu/{name}" for name in ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6")]


def python_files() -> dict[str, LayerEntry]:
    """This machine's own Python with its library, at the places that it is built for."""
    program = Path(os.path.realpath(sys.executable))
    library = Path(os.__file__).parent
    found = {
        "usr/bin/python3": LayerEntry(link=str(program)),
        "bin": LayerEntry(link="usr/bin"),
        "tmp": LayerEntry(folder=True, mode=0o1777),
    }
    found |= {_image_path(program): LayerEntry(program.read_bytes(), 0o755)}
    modules = [path for path in library.rglob("*") if path.is_file() and path.suffix in (".py", ".so")]
    wanted = [path for path in modules if not LEFT.fullmatch(path.relative_to(library).parts[0])]
    found |= {_image_path(path): LayerEntry(path.read_bytes()) for path in wanted}
    needed = {
        one
        for path in (program, *wanted)
        if path.suffix in ("", ".so") or path == program
        for one in _linked_libraries(path)
    }
    needed |= {Path(path) for path in LIBC if Path(path).exists()}
    return found | {_image_path(path): LayerEntry(path.read_bytes(), 0o755) for path in needed}


def _image_path(path: Path) -> str:
    # where the loader looks, whatever leads there on this machine
    return str(path).lstrip("/")


def _linked_libraries(program: Path) -> set[Path]:
    told = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", told, re.MULTILINE)}


def site_packages() -> str:
    """Where its packages are."""
    if "/usr/lib/python3" in os.__file__:
        return "/usr/lib/python3/dist-packages"
    return str(Path(os.__file__).parent / "site-packages")


def make_server_image(mark: str = "one", layers: int = 0) -> OCIImage:
    """The image; another one for another mark, and with so many layers more."""
    place = site_packages().lstrip("/")
    files = {
        **{f"{place}/vllm/{path}__init__.py": LayerEntry() for path in ("", "entrypoints/", "entrypoints/cli/")},
        f"{place}/vllm/entrypoints/cli/main.py": LayerEntry(SERVER.read_bytes()),
        "etc/mark": LayerEntry(mark.encode()),
        "etc/passwd": LayerEntry(b"root:x:0:0::/:/bin/sh\n"),
        "var/tmp": LayerEntry(folder=True, mode=0o1777),
        "work": LayerEntry(folder=True, mode=0o755),
    }
    env = ["PATH=/usr/bin:/bin", "IMAGE_SAYS=hello"]
    more = [{f"many/{number}": LayerEntry(str(number).encode())} for number in range(layers)]
    return oci_images.build_image(
        python_files(), files, *more, Env=env, WorkingDir="/work", Entrypoint=["/no/such/program"]
    )


@dataclass
class ImageBox:
    """A host with a registry on it, and its inventory."""

    lab: ThrowawayLab
    host: LabHost
    folder: Path
    tag: str = "v1"

    @property
    def registry(self) -> str:
        """The registry's base address."""
        return f"http://{self.host.address}:{REGISTRY_PORT}"

    def install_registry(self) -> None:
        """Have the distribution's own registry, for everybody."""
        self.host.run(
            "apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "
            "docker-registry skopeo"
        )
        self.host.run(f"sed -i '/^auth:/,/^[a-z]/{{/^auth:/d;/^  /d}}' {REGISTRY} && systemctl restart docker-registry")

    def push_image(self, one: OCIImage, tag: str = "v1") -> None:
        """Have an image in the registry."""
        layout = self.folder / "layout"
        shutil.rmtree(layout, ignore_errors=True)
        one.write_layout(layout, tag)
        self.host.run("rm -rf /root/layout && mkdir /root/layout")
        packed = subprocess.run(["tar", "-C", str(layout), "-cf", "-", "."], capture_output=True, check=True).stdout
        subprocess.run(self.host.ssh_command("tar -C /root/layout -xf -"), input=packed, check=True)
        self.push_layout("/root/layout", tag)

    def push_layout(self, layout: str, tag: str = "v1") -> None:
        """Have a layout that lies on the host in its registry."""
        to = f"docker://127.0.0.1:{REGISTRY_PORT}/{REPOSITORY}:{tag}"
        self.host.run(f"skopeo copy --preserve-digests --dest-tls-verify=false oci:{layout}:{tag} {to}")

    def lock_declared(self, *options: str) -> Path:
        """Lock what is declared; returns the inventory."""
        inventory = self.declare()
        done = run_rigwright("lock", *options, str(inventory))
        assert done.returncode == 0, done.stdout + done.stderr
        return inventory

    def deploy_first(self) -> Path:
        """Deploy what is declared, for the first time; returns the inventory."""
        declared = self.declare()
        assert {"Engines | Fetch layers of vllm-image", "Engines | Install vllm-image"} <= set(
            run_plan(declared).planned_operations
        )
        done = run_deploy(declared)
        assert done.status == 0, done.said[-3000:]
        return declared

    def publish_toolkit(self, key: SigningKey) -> None:
        """Have a stand-in for the container toolkit's archive, signed by a key that its tables then name."""
        container_packages.write_toolkit(self.lab.shelf_folder, container_packages.toolkit_packages(TOOLKIT), key)
        own = self.folder / archive_tables.PLACE
        own.parent.mkdir(parents=True)
        shipped = archive_tables.load_container_tables(archive_tables.SHIPPED.parents[2]).toolkit.fingerprint
        own.write_text(archive_tables.SHIPPED.read_text().replace(shipped, key.fingerprint))
        (self.folder / "catalog/toolkit.toml").write_text(TOOLKIT_CATALOG)

    def declare(self, variant: str = "image/tiny", **rig: Any) -> Path:
        """Write inventory and catalogue, and the lock of the weights."""
        mirrors = {"shelf": [self.lab.shelf_url], "lan": [self.registry]}
        mirrors["container-toolkit"] = [f"{self.lab.shelf_url}/{container_packages.TOOLKIT}"]
        instances = {"chat": {"variant": variant, "port": PORT}}
        declared = {"instances": instances, "mirrors": mirrors, **TRUSTED, **rig}
        path = write_inventory(self.folder, self.lab, self.host, **declared)
        for noun in ("catalog", "locks"):
            (self.folder / noun).mkdir(exist_ok=True)
        (self.folder / "catalog/box.toml").write_text(CATALOG.replace("TAG", self.tag))
        (self.folder / "catalog/weights.toml").write_text(WEIGHTS_CATALOG)
        vllm_model.write_checkpoint(self.lab.shelf_folder / MODEL)
        rows = [_weight_row(one) for one in sorted((self.lab.shelf_folder / MODEL).iterdir())]
        (self.folder / "locks/weights.lock.toml").write_text(render_lock(rows, "catalog/weights.toml"))
        return path

    def declare_with_cards(self, index: int, **rig: Any) -> Path:
        """As `declare`, an instance with one of the host's cards."""
        instances = {"chat": {"variant": "image/carded", "port": PORT, "cards": [index]}}
        contained = {"driver": {"managed": False}, "containers": {"engines": ["podman"]}}
        return self.declare(**{"instances": instances, **contained, **rig})

    def server_facts(self) -> dict[str, Any]:
        """The server's own report, with its view of the host."""
        asked = f'curl -s -H "Authorization: Bearer {api_key(self.host)}" http://127.0.0.1:{PORT}/about'
        said: dict[str, Any] = json.loads(self.host.run(asked))
        return said


@contextmanager
def serve_image(lab: ThrowawayLab, spec: HostSpec, folder: Path) -> Iterator[ImageBox]:
    """A host with an image in its registry, which is locked, while the block runs.

    Args:
        lab: Where.
        spec: The host's.
        folder: For its inventory.
    """
    (host,) = lab.up([spec])
    try:
        made = ImageBox(lab, host, folder)
        made.install_registry()
        made.push_image(make_server_image("one"))
        made.lock_declared()
        yield made
    finally:
        host.destroy()


def _weight_row(path: Path) -> Artefact:
    content = path.read_bytes()
    return Artefact.model_validate(
        {
            **{"kind": "weight", "name": MODEL, "group": MODEL, "version": WEIGHTS.version, "file": path.name},
            **{"selection": WEIGHTS.selection, "sources": WEIGHTS.sources_of(path.name), "size": len(content)},
            "sha256": hashlib.sha256(content).hexdigest(),
            "text": content.decode() if path.name == "config.json" else None,
        }
    )
