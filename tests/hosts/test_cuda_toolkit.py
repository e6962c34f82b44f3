"""The CUDA toolkit from wheels: it compiles for every card of the catalogue, and nothing of the system's is needed."""

import json
import shlex
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.engines import unprivileged_steps
from rigwright.model.roots import Roots
from roles.trees import render_tree_program
from tests.hosts.conftest import BootHost
from tests.hosts.support import check_verdicts, deploy, run_deploy, write_inventory

# the compiler differs between releases, and the newer one is the harder case
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
ROLE = Path(__file__).with_name("cuda_deploy.py")
CARD = "10de:2204"
# as llama.cpp is built: a shared library that uses cuBLAS and the driver, and a program that uses the library
PROGRAM = r"""
set -e
cat > CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(t LANGUAGES C CXX CUDA)
find_package(CUDAToolkit REQUIRED)
add_library(kernels SHARED kernels.cu)
target_link_libraries(kernels PRIVATE CUDA::cudart CUDA::cublas CUDA::cuda_driver)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE kernels)
CMAKE
cat > kernels.cu <<'CUDA'
#include <cublas_v2.h>
#include <cuda.h>
__global__ void kernel(int *p) { *p = 1; }
int kernels() { int p; kernel<<<1, 1>>>(&p); cublasHandle_t h; return cublasCreate(&h); }
CUDA
echo 'int kernels(); int main(int count, char **) { return count > 1 ? kernels() : 0; }' > program.cpp
root=$(echo /opt/rigwright/cuda-13.0-*/site/nvidia/cu13)
cmake -S . -B build -G Ninja -DCMAKE_CUDA_ARCHITECTURES='75-real;86-real;120a-real' \
  -DCMAKE_CUDA_COMPILER=$root/bin/nvcc -DCUDAToolkit_ROOT=$root -DCMAKE_BUILD_RPATH=$root/lib64
ninja -C build
build/program
$root/bin/cuobjdump --list-elf build/libkernels.so | grep -o 'sm_[0-9a-z]*'
"""


def record_trees(host: LabHost) -> None:
    """The end of a whole deploy; this one has only the role."""
    places = {"software": "/opt/rigwright", "engines": "/opt/rigwright/engines"}
    places |= {"generations": "/etc/rigwright/generations", "records": "/var/lib/rigwright/trees"}
    asked = {**places, "ledger": "/var/lib/rigwright/owned", "wanted": [], "sealed": "", "texts": {}}
    host.run(shlex.join(["/usr/bin/python3", "-I", "-S", "-c", render_tree_program("reconcile"), json.dumps(asked)]))


def test_a_blank_host_compiles_for_cards_with_what_the_lock_names(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot(cards=(CARD,))
    instances = {"chat": {"variant": "llamacpp/metal", "cards": [0], "port": 8020}}
    inventory = write_inventory(tmp_path, lab, host, cards=["rtx-3090"], instances=instances)
    deploy(inventory, file=ROLE)
    again = run_deploy(inventory, file=ROLE)
    assert (again.status, again.changed_operations) == (0, [])

    # as an engine is compiled: as user `nobody`, without devices and without the network
    host.run("mkdir -m 0700 /var/tmp/t && mkdir /var/tmp/t/t && chmod 0777 /var/tmp/t/t")
    compiling = unprivileged_steps.unprivileged_command(Roots(), ("/bin/sh", "-c", PROGRAM), "/var/tmp/t/t")
    assert host.run(shlex.join(compiling)).split()[-3:] == ["sm_75", "sm_86", "sm_120a"]
    assert host.run("ls /usr/local | grep -c cuda || true").strip() == "0"

    record_trees(host)
    assert check_verdicts(inventory)["K01"] == "ok"
    nvcc = host.run("ls /opt/rigwright/cuda-*/site/nvidia/cu13/bin/nvcc").strip()
    host.run(f"printf x >> {nvcc}")
    assert check_verdicts(inventory)["K01"] == "FAIL"
    # the cure that the check names
    host.run("rm -r /opt/rigwright/cuda-*")
    deploy(inventory, file=ROLE)
    record_trees(host)
    assert check_verdicts(inventory)["K01"] == "ok"
