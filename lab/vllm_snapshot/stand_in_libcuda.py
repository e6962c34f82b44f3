"""A stand-in for CUDA's driver library, where there is none: vLLM's own libraries do not load without it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

_NAME = "libcuda.so.1"
# of the driver alone: cudaMalloc, cublasCreate and the like are in libraries of the environment
_SYMBOL = re.compile(r"\bU (cu[A-Z]\w*)")
NO_DEVICE = 100
"""The result of each of its functions: CUDA_ERROR_NO_DEVICE (cuda.h)."""


def load_stand_in() -> None:
    """Have a libcuda.so.1 in this process; the loader takes it for all that need one by that name.

    Raises:
        subprocess.CalledProcessError, FileNotFoundError: there is no cc or nm here.
    """
    try:
        ctypes.CDLL(_NAME, ctypes.RTLD_GLOBAL)
    except OSError:
        with tempfile.TemporaryDirectory() as folder:
            ctypes.CDLL(str(_compile_library(Path(folder))), ctypes.RTLD_GLOBAL)


def _compile_library(folder: Path) -> Path:
    spec = find_spec("vllm")
    installed = Path(spec.origin).parent if spec and spec.origin else folder
    listed = ["nm", "-D", "--undefined-only", *map(str, installed.glob("*.so"))]
    needed = sorted({*_SYMBOL.findall(subprocess.run(listed, capture_output=True, text=True, check=True).stdout)})
    source = "".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in needed)
    made = folder / _NAME
    compiling = ["cc", "-shared", "-fPIC", "-o", str(made), f"-Wl,-soname,{_NAME}", "-x", "c", "-"]
    subprocess.run(compiling, input=source, text=True, check=True)
    return made
