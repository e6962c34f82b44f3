"""The real vLLM for this machine's processor, as an environment of throwaway hosts that have no card.

    interpreter = conda.find()
    with Source(lab.gateway, vllm_cpu_kept.channel(interpreter), interpreter) as source:
        packages = source.packages(vllm_cpu.rows())
        declare(inventory.parent, vllm_cpu.ENVIRONMENT, (*source.python, *packages))

It is a build for the CPU of the same sources (vllm-cpu, which only its kernels and the name differ from), with the
packages that are locked for the build for cards. Wheels that ask for omitted packages are repacked: the installer of an
environment on hosts takes it as any other, and finds that nothing is lacking.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rigwright.file_lock import file_lock
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from tests.stand_ins import conda_python, vllm_cpu_repack, vllm_cpu_stubs, wheel_cache
from tests.stand_ins.environment_source import PACKAGES, LabEnvironment
from tests.stand_ins.vllm_cpu_repack import parse_requirements, read_metadata, repack_wheel
from tests.stand_ins.wheel_cache import CACHE, CachedWheel

GROUP = "vllm-0.21.0"
"""The packages that are locked for cards."""
VLLM = CachedWheel(
    "vllm-cpu",
    "0.21.0",
    "vllm_cpu-0.21.0-cp38-abi3-manylinux_2_28_x86_64.whl",
    "b3517d55b9a18d984d24e946fef5fc07410e27e96508343433de188904e0c428",
    101_043_314,
)
AS = "vllm-0.21.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl"
"""By the version that it has then, vLLM knows what it was built for."""
STUBS = "lab_cuda_stubs-1.0-py3-none-linux_x86_64.whl"
ENVIRONMENT = LabEnvironment("vllm", "vllm", ("vllm",))
# The requirements of cards only, by name; with their own 2 GB. numba is for speculative decoding by n-grams.
LEFT_OUT = re.compile(r"(cuda|nvidia)-.+|triton|numba|llvmlite|intel-openmp")
RUNTIME = "nvidia-cuda-runtime"
_HOST = {
    **{"platform_system": "Linux", "sys_platform": "linux", "platform_machine": "x86_64", "os_name": "posix"},
    **{"implementation_name": "cpython", "platform_python_implementation": "CPython"},
    **{"python_version": conda_python.DEFAULT_SERIES, "python_full_version": f"{conda_python.DEFAULT_SERIES}.0"},
}


def environment_rows() -> tuple[Artefact, ...]:
    """The environment's wheels, kept on this machine: fetched, repacked and compiled once, which takes minutes.

    Raises:
        subprocess.CalledProcessError: one cannot be fetched, or a stub library cannot be compiled.
        lab.machine_requirements.UnsupportedMachine: there is no compiler, and none can be installed.
    """
    locked: dict[str, Artefact] = {
        canonicalize_name(row.name): row for row in Lock.load([ROOT / "locks"]).groups[GROUP]
    }
    CACHE.mkdir(parents=True, exist_ok=True)
    record = CACHE / f"vllm-cpu-{_inputs_digest(locked.values())}.json"
    with file_lock(record.with_suffix(".lock"), "compiling the CPU build of vLLM"):
        if record.exists():
            found = [Artefact.model_validate(row) for row in json.loads(record.read_text())]
            if all(_locked_wheel(row).is_cached for row in found):
                return tuple(found)
        found = list(_build_wheels(locked))
        new = record.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps([row.model_dump(mode="json", exclude_none=True) for row in found]))
        new.rename(record)
    return tuple(found)


def _locked_wheel(row: Artefact) -> CachedWheel:
    return CachedWheel(row.name, row.version, row.file, row.sha256, row.size)


def _inputs_digest(locked: Iterable[Artefact]) -> str:
    """Of all that decides what is made."""
    sources = [Path(str(one.__file__)).read_bytes() for one in (vllm_cpu_repack, vllm_cpu_stubs)]
    inputs = [VLLM.sha256, *sorted(row.sha256 for row in locked), *(hashlib.sha256(one).hexdigest() for one in sources)]
    inputs.append(hashlib.sha256(Path(__file__).read_bytes()).hexdigest())
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:12]


def _build_wheels(locked: Mapping[str, Artefact]) -> list[Artefact]:
    """The wheels that vLLM needs, and beside those that are locked the repacked ones and the stubs."""
    found = wheel_closure(VLLM, {name: _locked_wheel(row) for name, row in locked.items()})

    def there(one: Requirement) -> bool:
        kept = found.get(canonicalize_name(one.name))
        return not _is_required(one) or (kept is not None and one.specifier.contains(kept.version, prereleases=True))

    made = []
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for name, wheel in sorted(found.items()):
            if wheel is not VLLM and all(map(there, parse_requirements(read_metadata(wheel.cache_path)))):
                made.append(locked[name])
                continue
            # a build number says that it is not the one of that name
            built = wheel.file.replace(wheel.version, f"{wheel.version}-0lab", 1)
            target = Path(folder, AS if wheel is VLLM else built)
            repack_wheel(wheel.cache_path, target, there)
            made.append(_cache_wheel(target, "vllm" if wheel is VLLM else wheel.project))
        stubs, runtime = Path(folder, STUBS), _locked_wheel(locked[RUNTIME])
        wheel_cache.fetch_wheels([runtime], conda_python.DEFAULT_SERIES)
        vllm_cpu_stubs.write_stub_wheel(stubs, found["torch"].cache_path, VLLM.cache_path, runtime.cache_path)
        made.append(_cache_wheel(stubs, "lab-cuda-stubs"))
    return made


def wheel_closure(top: CachedWheel, offered: Mapping[str, CachedWheel]) -> dict[str, CachedWheel]:
    """A wheel and all that it asks for but LEFT_OUT, by names as an index spells them, each kept on this machine.

    Versions are not compared.

    Raises:
        KeyError: something is not offered.
        subprocess.CalledProcessError: something cannot be fetched.
    """
    found: dict[str, CachedWheel] = {}
    seen: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {top.project_name: {""}}
    while asked:
        found |= {name: offered[name] if name != top.project_name else top for name in asked}
        wheel_cache.fetch_wheels([found[name] for name in asked], conda_python.DEFAULT_SERIES)
        needed: dict[str, set[str]] = {}
        for name, extras in asked.items():
            seen[name] = seen.get(name, set()) | extras
            for one in parse_requirements(read_metadata(found[name].cache_path)):
                other = canonicalize_name(one.name)
                if not LEFT_OUT.fullmatch(other) and _is_required(one, seen[name]):
                    needed.setdefault(other, {""}).update(one.extras)
        asked = {name: extras for name, extras in needed.items() if not extras <= seen.get(name, set())}
    return found


def _is_required(one: Requirement, extras: Iterable[str] = ("",)) -> bool:
    return one.marker is None or any(one.marker.evaluate({**_HOST, "extra": extra}) for extra in extras)


def _cache_wheel(file: Path, name: str) -> Artefact:
    """Put a wheel that was made where fetched ones are kept; returns its row."""
    digest = hashlib.sha256()
    with file.open("rb") as read:
        while part := read.read(1 << 20):
            digest.update(part)
    row = Artefact.model_validate(
        {
            **{"kind": "wheel", "name": name, "version": file.name.split("-")[1], "group": PACKAGES},
            **{"file": file.name, "sha256": digest.hexdigest(), "size": file.stat().st_size},
            "sources": [f"index:{name}"],
        }
    )
    place = _locked_wheel(row).cache_path
    place.parent.mkdir(exist_ok=True)
    shutil.move(file, place)
    return row
