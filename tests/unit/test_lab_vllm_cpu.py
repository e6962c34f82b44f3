"""How the lab makes vLLM's packages for the CPU: what is taken of those for cards, wheels written anew, and stubs."""

from __future__ import annotations

import ctypes
import hashlib
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from signal import SIGABRT

import pytest

from lab import vllm_cpu_stubs, wheels
from lab.vllm_cpu import closure
from lab.vllm_cpu_repack import finish, metadata, put, repack
from lab.vllm_cpu_stubs import NUMA, compiled, lacking, read
from lab.wheels import Wheel
from roles.envs.host.lists import of_wheel

CODE = b"answer = 42\n" * 1000
NVIDIA = re.compile(r"lib(cu|nccl)\w*\.so\.\d+")
needs_gcc = pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("readelf"), reason="no compiler here")


def write(path: Path, *needs: str) -> Path:
    """A wheel with a module, and what vendored packages leave."""
    name, version, *_ = path.name.split("-")
    said = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in needs)]
    texts = {
        "METADATA": "\n".join(["Metadata-Version: 2.1", *said, "", "Of it.\n"]).encode(),
        "WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: cp312-cp312-linux_x86_64\n",
        "entry_points.txt": b"[console_scripts]\ndemo = demo:main\n",
    }
    held = {f"{name}/__init__.py": CODE, f"{name}/_vendor/x-1.0.dist-info/RECORD": b""}
    with zipfile.ZipFile(io.BytesIO(), "w") as scratch:
        rows = [put(scratch, file, content) for file, content in held.items()]
    with zipfile.ZipFile(path, "w") as made:
        # its own folder need not be the last
        finish(made, f"{name}-{version}.dist-info", texts, rows)
        for file, content in held.items():
            put(made, file, content)
    return path


def listed(path: Path) -> dict[str, str]:
    """Path -> SHA-256 of a wheel's files, as they are."""
    with zipfile.ZipFile(path) as opened:
        assert opened.testzip() is None
        return {
            name: hashlib.sha256(opened.read(name)).hexdigest()
            for name in opened.namelist()
            if not name.endswith("1.0+cpu.dist-info/RECORD")
        }


def test_a_repacked_wheel_is_another_one_with_the_same_files(tmp_path: Path) -> None:
    old = write(tmp_path / "demo_cpu-1.0-py3-none-any.whl", "torch==2+cpu", "numpy>=1; python_version > '3'", "numba")
    new = tmp_path / "demo-1.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl"
    repack(old, new, lambda one: one.name == "numpy")
    said = metadata(new)
    assert [said["Name"], said["Version"], said.get_payload()] == ["demo", "1.0+cpu", "Of it.\n"]
    assert said.get_all("Requires-Dist") == ['numpy>=1; python_version > "3"']
    # what judges environments on hosts finds each file under its name, with its bytes
    judged = dict(of_wheel(new, ""))
    assert judged == listed(new)
    assert {name for name in judged if ".dist-info/" in name and "_vendor" not in name} == {
        f"demo-1.0+cpu.dist-info/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt")
    }
    with zipfile.ZipFile(new) as opened:
        assert b"\nTag: cp38-abi3-manylinux_2_28_x86_64\n" in opened.read("demo-1.0+cpu.dist-info/WHEEL")
        assert opened.read("demo_cpu/__init__.py") == CODE


def test_a_repacked_wheel_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    old = write(tmp_path / "demo-1.0-py3-none-any.whl", "numpy")
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        new = tmp_path / folder / "demo-1.0-0lab-py3-none-any.whl"
        repack(old, new, lambda one: False)
        found.append(new.read_bytes())
    assert found[0] == found[1]
    assert metadata(new).get_all("Requires-Dist") is None


def test_installers_take_a_repacked_wheel(tmp_path: Path) -> None:
    old = write(tmp_path / "demo-1.0-py3-none-any.whl", "nothing-that-is-there")
    new = tmp_path / "demo-1.0-0lab-py3-none-any.whl"
    repack(old, new, lambda one: False)
    uv = [str(Path(sys.executable).with_name("uv")), "pip"]
    asked, target = tmp_path / "requirements.txt", tmp_path / "target"
    asked.write_text(f"{new} --hash=sha256:{hashlib.sha256(new.read_bytes()).hexdigest()}\n")
    options = ["--offline", "--no-config", "--no-deps", f"--cache-dir={tmp_path / 'cache'}", f"--target={target}"]
    subprocess.run([*uv, "install", "-q", "--require-hashes", *options, "-r", asked], check=True)
    assert (target / "demo/__init__.py").read_bytes() == CODE
    assert (target / "demo-1.0.dist-info/METADATA").exists()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Wheel]:
    """Wheels that are kept, by name."""
    monkeypatch.setattr(wheels, "CACHE", tmp_path)
    needs = {
        "vllm-cpu": ("torch==2+cpu", "web[fast]", "numba; platform_machine != 's390x'", "old; python_version < '3.10'"),
        "torch": ("nvidia-nccl-cu13; platform_system == 'Linux'", "cuda-toolkit[cublas]", "numpy"),
        "web": ("quick; extra == 'fast'", "slow; extra == 'all'", "numpy"),
        "quick": ("web",),
        "numpy": (),
    }
    found = {}
    for name, asked in needs.items():
        file = f"{name.replace('-', '_')}-1.0-py3-none-any.whl"
        path = write(tmp_path / file, *asked)
        content = path.read_bytes()
        found[name] = Wheel(name, "1.0", file, hashlib.sha256(content).hexdigest(), len(content))
        found[name].place.parent.mkdir()
        path.rename(found[name].place)
    return found


def test_what_only_cards_need_is_not_asked_for(kept: dict[str, Wheel]) -> None:
    offered = {name: one for name, one in kept.items() if name != "vllm-cpu"}
    assert closure(kept["vllm-cpu"], offered) == kept


def test_what_is_asked_for_and_not_offered_is_named(kept: dict[str, Wheel]) -> None:
    with pytest.raises(KeyError, match="quick"):
        closure(kept["vllm-cpu"], {name: one for name, one in kept.items() if name != "quick"})


def built(folder: Path, name: str, code: str, *options: str) -> Path:
    """A library of real code."""
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), "-x", "c", "-"]
    command += ["-x", "none", *options]
    subprocess.run(command, input=code, text=True, check=True)
    return folder / name


@needs_gcc
def test_stubs_have_what_a_library_asks_for(tmp_path: Path) -> None:
    real, stubs = tmp_path / "real", tmp_path / "stubs"
    real.mkdir()
    stubs.mkdir()
    (real / "map").write_text("libcublas.so.13 { global: cublasCreate; };\n")
    script = f"-Wl,--version-script={real / 'map'}"
    cublas = built(real, "libcublas.so.13", "int cublasCreate(void) { return 1; }", script)
    nccl = built(real, "libnccl.so.2", "int ncclSend(void) { return 2; }")
    code = (
        "int cublasCreate(void); int ncclSend(void); int here(void) { return 7; }"
        "int called(void) { return cublasCreate() + ncclSend() + here(); }"
    )
    user = built(tmp_path, "libuser.so", code, str(cublas), str(nccl), f"-Wl,-rpath,{stubs}")
    found = lacking([read(user)], NVIDIA)
    assert sorted(found) == ["libcublas.so.13", "libnccl.so.2"]
    assert found["libcublas.so.13"]["cublasCreate"] == "libcublas.so.13"
    for name, symbols in found.items():
        compiled(stubs, name, symbols)
    loaded = f"import ctypes; library = ctypes.CDLL({str(user)!r}, ctypes.RTLD_GLOBAL); print(library.here())"
    said = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert (said.stdout, said.returncode) == ("7\n", 0), said.stderr
    assert subprocess.run([sys.executable, "-c", f"{loaded}; library.called()"], check=False).returncode == -SIGABRT


@needs_gcc
def test_a_stub_brings_the_one_that_says_there_are_no_nodes(tmp_path: Path) -> None:
    compiled(tmp_path, NUMA, {"numa_available": "libnuma_1.1", "numa_bitmask_free": "libnuma_1.2"})
    stub = compiled(tmp_path, "libcufft.so.12", {"cufftPlan": ""}, [NUMA])
    assert read(stub).needed == {NUMA}
    assert ctypes.CDLL(str(stub)).numa_available() == -1


@needs_gcc
def test_what_needs_the_drivers_own_library_is_loaded_by_nobody(tmp_path: Path) -> None:
    driver = built(tmp_path, vllm_cpu_stubs.DRIVER, "int cuInit(void) { return 0; }")
    compiler = built(tmp_path, "libcunvrtc.so.13", "int cunvrtc(void) { return 0; }")
    code = "int cuInit(void); int cunvrtc(void); int f(void) { return cuInit() + cunvrtc(); }"
    user = built(tmp_path, "libuser.so", code, str(driver), str(compiler))
    assert lacking([read(user)], NVIDIA) == {}
