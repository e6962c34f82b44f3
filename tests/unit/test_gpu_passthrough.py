"""What a throwaway host is lent of this machine's cards, on stand-ins for a machine that has one."""

import os
import stat
from pathlib import Path

import pytest

from lab import gpu_passthrough
from lab.requirements import UnsupportedMachine
from tests.unit.rendered_scripts import write_stand_in

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device files")
VERSION = "580.159.04"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for a machine with a card: its libraries lie elsewhere, behind two links, as Debian has them."""
    for name in ("dev", "files", "lib", "cuda/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        os.mknod(tmp_path / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (tmp_path / "dev/nvidia-caps").mkdir()
    (tmp_path / "version").write_text(f"{VERSION}\n")
    (tmp_path / "cuda/bin/nvcc").touch()
    for library in ("libcuda", "libnvidia-ml"):
        real = tmp_path / "files" / f"{library}.so.{VERSION}"
        real.write_text(library)
        (tmp_path / "files" / f"alternative-{library}").symlink_to(real)
        (tmp_path / "lib" / f"{library}.so.1").symlink_to(tmp_path / "files" / f"alternative-{library}")
    (tmp_path / "lib" / "libc.so.6").touch()
    monkeypatch.setattr(gpu_passthrough, "DEVICES", tmp_path / "dev")
    monkeypatch.setattr(gpu_passthrough, "MODULE_VERSION", tmp_path / "version")
    monkeypatch.setattr(gpu_passthrough, "CUDA_ROOT", tmp_path / "cuda")
    write_stand_in(tmp_path / "bin", "nvidia-smi", "true")
    write_stand_in(tmp_path / "bin", "ldconfig", f"echo '\tlibcuda.so.1 (libc6,x86-64) => {tmp_path}/lib/libcuda.so.1'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def test_a_host_gets_the_device_files_the_drivers_own_libraries_and_the_toolkit(machine: Path) -> None:
    upper = machine / "upper"
    options = gpu_passthrough.boot_options(upper)
    assert {option for option in options if option.startswith("--bind=")} == {
        f"--bind={machine}/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")
    }
    assert {option for option in options if option.startswith("--bind-ro=")} == {
        f"--bind-ro={machine}/cuda:{machine}/cuda",
        f"--bind-ro={machine}/bin/nvidia-smi:/usr/local/nvidia/bin/nvidia-smi",
        f"--bind-ro={machine}/files/libcuda.so.{VERSION}:/usr/local/nvidia/lib64/libcuda.so.{VERSION}",
        f"--bind-ro={machine}/files/libnvidia-ml.so.{VERSION}:/usr/local/nvidia/lib64/libnvidia-ml.so.{VERSION}",
    }
    inside = upper / "usr/local/nvidia/lib64"
    assert {path.name: str(path.readlink()) for path in inside.iterdir()} == {
        "libcuda.so.1": f"libcuda.so.{VERSION}",
        "libnvidia-ml.so.1": f"libnvidia-ml.so.{VERSION}",
    }
    assert (upper / "etc/ld.so.conf.d/nvidia.conf").read_text() == "/usr/local/nvidia/lib64\n"


@pytest.mark.parametrize(
    ("gone", "words"),
    [("dev/nvidiactl", "no NVIDIA card"), ("version", "no NVIDIA card"), ("cuda/bin/nvcc", "no CUDA toolkit")],
)
def test_a_machine_without_one_of_them_is_told_so_in_one_line(machine: Path, gone: str, words: str) -> None:
    (machine / gone).unlink()
    with pytest.raises(UnsupportedMachine, match=words) as raised:
        gpu_passthrough.require_gpu()
    assert "\n" not in str(raised.value)


def test_libraries_of_another_driver_than_the_loaded_one_are_refused(machine: Path) -> None:
    (machine / "version").write_text("595.10\n")
    with pytest.raises(UnsupportedMachine, match=r"no libraries of the loaded driver .*: reboot"):
        gpu_passthrough.require_gpu()


def test_a_linker_that_knows_no_libcuda_is_refused(machine: Path) -> None:
    write_stand_in(machine / "bin", "ldconfig", "true")
    with pytest.raises(UnsupportedMachine, match="knows no libcuda"):
        gpu_passthrough.require_gpu()
