"""A root of Debian testing, which has the newest C library, with the locked CUDA toolkit as its role installs it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.fetch_job_spec import render_requirements
from rigwright.model.nvidia_tables import Toolkit
from rigwright.patches.patch import APPLY_PROGRAM_TEXT, load_patches
from rigwright.project_root import ROOT
from rigwright.render import render
from rigwright.supply.lock import Artefact, Lock
from tests.nvcc.system_root import NVCC, PATCH, SITE, TOOLKIT, SystemRoot
from tests.stand_ins import wheel_cache
from tests.stand_ins.wheel_cache import CachedWheel

# nvcc 13.0 refuses a newer g++ than this, and Ubuntu 26.04 has this one
COMPILER = "15"
# Python modules of FlashInfer's generator
MODULES = ("packaging", "jinja2", "filelock", "tqdm", "requests")
PACKAGES = (f"g++-{COMPILER}", "cmake", "ninja-build", "python3-dev", *(f"python3-{name}" for name in MODULES))


@pytest.fixture(scope="session")
def root() -> Iterator[SystemRoot]:
    """The root, with a patched toolkit."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root of Debian testing")
    missing = [program for program in ("debootstrap", "chroot", "gcc") if not shutil.which(program)]
    if missing:
        pytest.skip(f"{' and '.join(missing)} must be installed to make a root of Debian testing")
    with tempfile.TemporaryDirectory(prefix="rigwright-nvcc-", dir="/var/tmp") as folder:
        made = SystemRoot(Path(folder))
        _run_debootstrap(made.top)
        for name in ("gcc", "g++", "cc", "c++"):
            compiler = {"cc": "gcc", "c++": "g++"}.get(name, name)
            (made.top / "usr/local/bin" / name).symlink_to(f"/usr/bin/{compiler}-{COMPILER}")
        _install_compiler(made.top)
        made.write("/root/kernel.cu", "__global__ void kernel(int *p) { *p = 1; }\n")
        said = made.run(NVCC, "-arch=sm_75", "-c", "-o", "/root/kernel.o", "/root/kernel.cu").stdout
        _arrange_toolkit(made.top)
        yield replace(made, unpatched=said)


def _run_debootstrap(top: Path) -> None:
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "testing", str(top)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).splitlines()[-1:]
        pytest.skip(f"debootstrap of Debian testing failed: {' '.join(last)}")


def cached_wheels(rows: list[Artefact]) -> list[Path]:
    """Locked wheels, kept on this machine."""
    found = [CachedWheel(one.name, one.version, one.file, one.sha256, one.size) for one in rows]
    wheel_cache.fetch_wheels(found, "3.10")
    return [one.cache_path for one in found]


def _install_compiler(top: Path) -> None:
    rows = list(Lock.load([ROOT / "locks"]).groups["cuda"])
    files = [str(path) for path in cached_wheels(rows)]
    text = top / "requirements.txt"
    text.write_text(render_requirements(rows))
    links = [word for path in files for word in ("--find-links", str(Path(path).parent))]
    pip = [sys.executable, "-m", "pip", "install", "--no-index", *links, "--no-deps", "--require-hashes", "--quiet"]
    subprocess.run([*pip, "--no-compile", "--target", f"{top}{SITE}", "-r", str(text)], check=True)


def _arrange_toolkit(top: Path) -> None:
    """Run the part of the role's job that turns the wheels' files into a toolkit, the patch included."""
    patch = load_patches([ROOT / "patches"])[PATCH]
    toolkit = Toolkit(f"{top}{TOOLKIT}", "13.0", f"{top}{SITE}".removesuffix("/site"), patches=(patch,))
    script = render(
        "cuda_toolkit/arrange.sh.j2",
        toolkit=toolkit,
        patching=APPLY_PROGRAM_TEXT,
        patches=json.dumps({"patches": [patch.plan]}),
    )
    words = {**os.environ, "folder": toolkit.folder, "root": toolkit.root}
    subprocess.run(["sh", "-eu", "-c", script], env=words, check=True)
