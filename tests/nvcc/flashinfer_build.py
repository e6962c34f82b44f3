"""FlashInfer's own build of one module, with stand-ins for what it imports of PyTorch and TVM: `SITE MODULE`.

Runs alone in the root. FlashInfer's generator asks PyTorch for names of types and for one flag, and TVM's package for
paths; both are compiled for one Python, and neither takes part in the build. Prints the path of the library.
"""

from __future__ import annotations

import importlib
import sys
import types


class StandInModule(types.ModuleType):
    """A module that has every name."""

    __path__ = ()

    def __getattr__(self, name: str) -> StandInModule:
        if name.startswith("__"):
            raise AttributeError(name)
        made = StandInModule(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


def import_package(name: str, folder: str) -> types.ModuleType:
    """A package whose modules are importable, without the imports of its own __init__."""
    made = types.ModuleType(name)
    made.__path__ = [folder]
    sys.modules[name] = made
    return made


def main(site: str, module: str) -> None:
    torch = StandInModule("torch")
    torch._C._GLIBCXX_USE_CXX11_ABI = True
    sys.modules["torch"] = torch
    tvm = import_package("tvm_ffi", f"{site}/tvm_ffi")
    tvm.libinfo = importlib.import_module("tvm_ffi.libinfo")
    import_package("flashinfer", f"{site}/flashinfer")
    jit = importlib.import_module(f"flashinfer.jit.{module}")
    spec = getattr(jit, f"gen_{module}_module")()
    spec.build(verbose=True)
    print(spec.jit_library_path)


if __name__ == "__main__":
    main(*sys.argv[1:])
