"""The locked CUDA toolkit compiles with the newest C library, for every card of the catalogue: `./rig test nvcc`."""

import hashlib
import re
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from cli.lock_resolver import downloads
from cli.lock_resolver.package_index import PackageIndex, index_url
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.build import cuda_architecture
from rigwright.engines.llama_cpp.catalog_keys import LlamaEngine
from rigwright.nvidia.cuda_toolkit import SPECIFIED_SINCE, dotted_numbers
from rigwright.project_root import ROOT
from rigwright.supply.lock import Lock
from tests.nvcc.conftest import cached_wheels
from tests.nvcc.system_root import NVCC, TOOLKIT, SystemRoot

CATALOG = load_catalog([ROOT / "catalog"])
CAPABILITIES = sorted({card.capability for card in CATALOG.cards.values()}, key=dotted_numbers)
KERNEL = """
__global__ void kernel(float *p, double *q) { *p = rsqrtf(*p) + rsqrt(*q); }
int main() { kernel<<<1, 1>>>(nullptr, nullptr); return cudaGetLastError(); }
"""
OBJECT = "ggml/src/ggml-cuda/CMakeFiles/ggml-cuda.dir/norm.cu.o"


def architecture(capability: str) -> str:
    return f"sm_{cuda_architecture(capability).removesuffix('-real')}"


def machine_code(root: SystemRoot, path: str) -> set[str]:
    return set(re.findall(r"sm_[0-9]+a?", root.output(f"{TOOLKIT}/bin/cuobjdump", "--list-elf", path)))


def test_without_its_patch_no_file_compiles(root: SystemRoot) -> None:
    glibc = root.output("getconf", "GNU_LIBC_VERSION").split()[1]
    assert dotted_numbers(glibc) >= SPECIFIED_SINCE["rsqrt"], f"Debian testing has glibc {glibc}"
    assert 'exception specification is incompatible with that of previous function "rsqrt"' in root.unpatched


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_kernel_compiles_for_each_card(root: SystemRoot, capability: str) -> None:
    root.write("/root/kernel.cu", KERNEL)
    root.output(NVCC, f"-arch={architecture(capability)}", "-o", "/root/kernel", "/root/kernel.cu")
    assert machine_code(root, "/root/kernel") == {architecture(capability)}


def test_llama_cpp_finds_the_toolkit_and_one_of_its_files_compiles(root: SystemRoot) -> None:
    engine = CATALOG.engines["llama.cpp"]
    assert isinstance(engine, LlamaEngine)
    top = _source(root, engine)
    architectures = ";".join(map(cuda_architecture, CAPABILITIES))
    options = {**engine.options, "GGML_CUDA": "ON", "GGML_CUDA_NCCL": "OFF", "CMAKE_CUDA_ARCHITECTURES": architectures}
    options |= {"CMAKE_CUDA_COMPILER": NVCC, "CUDAToolkit_ROOT": TOOLKIT, "GGML_CUDA_FA_QUANTS": "f16-f16"}
    words = [f"-D{name}={value}" for name, value in options.items()]
    said = root.output("cmake", "-S", f"{top}/{engine.subtree}", "-B", "/root/build", "-G", "Ninja", *words)
    assert "Including CUDA backend" in said
    root.output("ninja", "-C", "/root/build", OBJECT)
    assert machine_code(root, f"/root/build/{OBJECT}") == set(map(architecture, CAPABILITIES))


def _source(root: SystemRoot, engine: LlamaEngine) -> str:
    """Unpack the locked source of llama.cpp; the folder at its top, in the root."""
    row = Lock.load([ROOT / "locks"]).artefacts[engine.source]
    content = BytesIO()
    session = downloads.open_session()
    (project,) = (one.removeprefix("index:") for one in row.sources)
    url = PackageIndex(session, index_url()).source_distribution(project, row.version).url
    downloads.fetch_file(session, url, lambda *_: None, content, row.size)
    assert hashlib.sha256(content.getvalue()).hexdigest() == row.sha256
    content.seek(0)
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(root.top / "root/source", filter="tar")
    (top,) = (root.top / "root/source").iterdir()
    return f"/root/source/{top.name}"


def test_flashinfer_builds_one_of_its_modules(root: SystemRoot) -> None:
    """As an environment's FlashInfer does it at its first start: CUDA_HOME leads to the toolkit."""
    rows = Lock.load([ROOT / "locks"]).groups["vllm-0.21.0"]
    for path in cached_wheels([one for one in rows if one.name in ("flashinfer-python", "apache-tvm-ffi")]):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(root.top / "root/site")
    root.write("/root/build.py", Path(__file__).with_name("flashinfer_build.py").read_text())
    cards = " ".join(f"{one}a" if one.startswith("12.") else one for one in CAPABILITIES)
    variables = {"CUDA_HOME": TOOLKIT, "FLASHINFER_CUDA_ARCH_LIST": cards, "MAX_JOBS": "1"}
    said = root.output("python3", "/root/build.py", "/root/site", "page", **variables)
    assert machine_code(root, said.split()[-1]) == set(map(architecture, CAPABILITIES))
