"""A plugin's kernels are compiled at its first start by its environment's own toolkit, whatever the system has."""

import json
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock, render_lock
from tests import sample_plugins
from tests.hosts import env_box
from tests.hosts.driver_box import DriverBox, single_release_mark
from tests.hosts.test_patches import rigwright_output
from tests.hosts.test_plugins import NAME, TABLE, shelved
from tests.stand_ins import environment_source
from tests.stand_ins.environment_source import LabEnvironment

pytestmark = [pytest.mark.all_only, single_release_mark("debian-13")]

# an instance's folder is one as long as it serves, and this one's as long as its shell
STARTED = "export XDG_CACHE_HOME=$(mktemp -d); louder-serve; louder-serve; "
STARTED += "$CUDA_HOME/bin/cuobjdump --list-elf $XDG_CACHE_HOME/*"
MODULE = """
import hashlib, os, subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("kernel.cu")


def main():
    made = Path(os.environ["XDG_CACHE_HOME"], f"louder-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}.so")
    if made.exists():
        print(f"there {made}")
        return
    nvcc = os.environ["CUDA_HOME"] + "/bin/nvcc"
    subprocess.run([nvcc, "-arch=sm_75", "-Xcompiler", "-fPIC", "-shared", "-o", str(made), str(SOURCE)], check=True)
    print(f"compiled {made}")
"""
KERNEL = """
__global__ void louder(int *p) { *p = NUMBER; }
extern "C" int run() { int p; louder<<<1, 1>>>(&p); return cudaGetLastError(); }
"""
# another toolkit of the system's, as a box with CUDA 13.3 has one
OTHERS = r"mkdir -p /usr/local/cuda/bin; printf '#!/bin/sh\nexit 9\n' > /usr/local/cuda/bin/nvcc; "
OTHERS += "chmod 755 /usr/local/cuda/bin/nvcc; ln -s /usr/local/cuda/bin/nvcc /usr/local/bin/nvcc"


def test_a_kernel_is_compiled_by_the_environments_own_toolkit_once_a_version(driven: DriverBox, tmp_path: Path) -> None:
    shown: list[list[str]] = []
    driven.host.run(OTHERS)
    with env_box.serve_environment(driven.lab, tmp_path / "channel") as made:
        made.source.add_wheels(Lock.load([ROOT / "locks"]).groups["cuda"])
        shelf = driven.lab.shelf_url
        mirrors = {**made.source.inventory_mirrors, "shelf": [shelf], "nvidia": [f"{shelf}/nvidia"]}
        driven.declare({"envs": ["small"], "mirrors": mirrors})
        modules = ("packaging", "pathspec", "yaml")
        env = LabEnvironment("small", "packaging", modules, plugins=(NAME,), cuda=True)
        environment_source.write_declaration(driven.folder, env, (*made.python_packages, *made.packages))
        (of,) = {one.version for one in made.packages if one.name == "packaging"}
        (driven.folder / "catalog/louder.toml").write_text(TABLE.replace("VERSION", json.dumps(of)))
        for version in ("1.0", "1.1"):
            kernel = KERNEL.replace("NUMBER", version.replace(".", ""))
            files = {f"{sample_plugins.MODULE}/__init__.py": MODULE, f"{sample_plugins.MODULE}/kernel.cu": kernel}
            row = shelved(driven.lab, version, sample_plugins.release_zip(version, files=files))
            (driven.folder / "locks/louder.lock.toml").write_text(render_lock([row], "catalog/louder.toml"))
            driven.run_rig("deploy")
            shown.append(rigwright_output("ssh", "--in", "small", str(driven.inventory), "sh", "-ec", STARTED).split())
        driven.assert_unchanged()
    for first, made_first, second, made_second, *found in shown:
        assert (first, second) == ("compiled", "there")
        assert made_first == made_second
        assert "sm_75" in " ".join(found)
    assert shown[0][1].rpartition("/")[2] != shown[1][1].rpartition("/")[2]
