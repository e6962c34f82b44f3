"""This machine's own NVIDIA cards, lent to a throwaway host: device files, the driver's user space, the CUDA toolkit.

The host finds the result of a driver installation, at other paths: the driver's libraries are a folder of their own
that the dynamic linker knows, as container runtimes arrange it too.
"""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

from lab.machine_requirements import UnsupportedMachine
from lab.network import run_program

DEVICES = Path("/dev")
MODULE_VERSION = Path("/sys/module/nvidia/version")
CUDA_ROOT = Path("/usr/local/cuda")
INSIDE = Path("/usr/local/nvidia")


def has_card() -> bool:
    """Whether this machine has a card, and a driver that is loaded."""
    return (DEVICES / "nvidiactl").exists() and MODULE_VERSION.exists()


def missing_requirements() -> list[str]:
    """The missing parts of a working card and a toolkit on this machine, one line each."""
    found = [] if has_card() else ["no NVIDIA card with a driver on this machine"]
    for program, package in (("nvidia-smi", "the driver's utilities"), ("ldconfig", "libc-bin")):
        if not shutil.which(program):
            found.append(f"{program} is not on this machine's PATH: install {package}")
    if not (CUDA_ROOT / "bin/nvcc").exists():
        found.append(f"no CUDA toolkit at {CUDA_ROOT} on this machine")
    if has_card() and shutil.which("ldconfig"):
        try:
            _driver_libraries()
        except UnsupportedMachine as error:
            found.append(str(error))
    return found


def require_gpu() -> None:
    """Check that this machine has a card that works, and a toolkit.

    Raises:
        UnsupportedMachine: it has not; the text is one line.
    """
    if found := missing_requirements():
        raise UnsupportedMachine("; ".join(found))


def boot_options(upper: Path) -> list[str]:
    """Write what the host needs beside them into its own files; returns systemd-nspawn's options that lend the cards.

    Raises:
        UnsupportedMachine: as `require_gpu`.
    """
    require_gpu()
    devices = [path for path in sorted(DEVICES.glob("nvidia*")) if stat.S_ISCHR(path.stat().st_mode)]
    options = [f"--bind={path}" for path in devices]
    options.append(f"--bind-ro={CUDA_ROOT.resolve()}:{CUDA_ROOT}")
    options.append(f"--bind-ro={shutil.which('nvidia-smi')}:{INSIDE}/bin/nvidia-smi")
    libraries = upper / INSIDE.relative_to("/") / "lib64"
    libraries.mkdir(parents=True)
    # a distribution may lead to the files by links of links, elsewhere
    links = {path.name: path.resolve() for path in _driver_libraries()}
    options += [f"--bind-ro={path}:{INSIDE}/lib64/{path.name}" for path in sorted(set(links.values()))]
    for name, path in links.items():
        if name != path.name:
            (libraries / name).symlink_to(path.name)
    configuration = upper / "etc/ld.so.conf.d/nvidia.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(f"{INSIDE}/lib64\n")
    (upper / "usr/bin").mkdir(parents=True)
    (upper / "usr/bin/nvidia-smi").symlink_to(INSIDE / "bin/nvidia-smi")
    return options


def _driver_libraries() -> list[Path]:
    """The driver's libraries: files next to libcuda with the loaded module's version in their names, and links."""
    version = MODULE_VERSION.read_text().strip()
    listed = re.search(
        r"^\s*libcuda\.so\.1 \([^)]*x86-64[^)]*\) => (\S+)$", run_program("ldconfig", "-p"), re.MULTILINE
    )
    if listed is None:
        raise UnsupportedMachine("the dynamic linker of this machine knows no libcuda.so.1")
    folder = Path(listed[1]).parent
    found = [path for path in sorted(folder.iterdir()) if path.resolve().name.endswith(f".so.{version}")]
    if not found:
        raise UnsupportedMachine(f"{folder} has no libraries of the loaded driver {version}: reboot this machine")
    return found
