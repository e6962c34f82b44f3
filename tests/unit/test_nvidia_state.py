"""What the probe of the driver's state prints becomes a typed value; the probe itself runs in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rigwright.declaration.entry import Driver
from rigwright.nvidia.driver.state import Dkms, Kernel, State, dkms_line, parse, release_key, script
from tests.unit import programs
from tests.unit.samples import rig
from tests.unit.scripts import stand_in
from tests.unit.telling import telling

PROGRAMS = {
    "uname": "echo 6.8.0-40-generic",
    "modinfo": """
case "$2 $4" in
  *-90-generic*) exit 1 ;;
  *version) echo 580.159.03 ;;
  *license) echo 'Dual MIT/GPL' ;;
  *signer) echo 'Canonical Ltd. Kernel Module Signing' ;;
esac""",
    "dkms": """cat <<'END'
nvidia/580.159.03, 6.8.0-40-generic, x86_64: installed
zfs/2.2.2, 6.8.0-40-generic, x86_64: installed
END""",
    "apt-mark": "printf 'linux-image-generic\\nnvidia-utils-580-server\\nlibc6:i386\\n'",
    "dpkg-query": """
case $* in
  *unattended-upgrades) echo installed ;;
  *) printf 'installed nvidia-utils-580-server\\nconfig-files nvidia-old\\n' ;;
esac""",
    "apt-config": """cat <<'END'
Unattended-Upgrade::Package-Blacklist "";
Unattended-Upgrade::Package-Blacklist:: "nvidia-.*";
Unattended-Upgrade::Package-Blacklist:: "linux-image-.*";
END""",
    "apt-cache": """cat <<'END'
libc6:
  Installed: (none)
  Candidate: (none)
  Version table:
linux-image-generic:
  Installed: 6.8.0-40.40
  Candidate: 6.8.0-95.95
  Version table:
     6.8.0-95.95 500
        500 http://a.example/ubuntu noble-updates/main amd64 Packages
     6.8.0-90.91 500
        500 http://a.example/ubuntu noble-updates/main amd64 Packages
        500 http://b.example/ubuntu noble-security/main amd64 Packages
 *** 6.8.0-40.40 100
        100 /var/lib/dpkg/status
     6.8.0-39.39 500
        500 http://b.example/ubuntu noble-security/main amd64 Packages
nvidia-utils-580-server:
  Installed: 580.159.03-0ubuntu0.24.04.1
  Candidate: 580.178.04-0ubuntu0.24.04.1
  Version table:
     580.178.04-0ubuntu0.24.04.1 500 (phased 10%)
        500 http://a.example/ubuntu noble-updates/restricted amd64 Packages
 *** 580.159.03-0ubuntu0.24.04.1 100
        100 /var/lib/dpkg/status
END
echo "$*" >&2""",
    "sysctl": "[ $2 = vm.swappiness ] && echo 60",
}
SEEN = State(
    running="6.8.0-40-generic",
    kernels=(
        Kernel("6.8.0-40-generic", True, "580.159.03", "Dual MIT/GPL", "Canonical Ltd. Kernel Module Signing"),
        Kernel("6.8.0-90-generic", True, "", "", ""),
    ),
    kernel_days=50,
    dkms=(Dkms("580.159.03", "6.8.0-40-generic", "installed", ""),),
    holds=frozenset({"libc6", "linux-image-generic", "nvidia-utils-580-server"}),
    unattended=True,
    blacklist=("nvidia-.*", "linux-image-.*"),
    candidates=(
        ("linux-image-generic", "6.8.0-95.95"),
        ("nvidia-utils-580-server", "580.178.04-0ubuntu0.24.04.1"),
    ),
    security=(("linux-image-generic", "6.8.0-90.91"),),
    reboot=True,
    reboot_for=("libc6", "linux-image-6.8.0-90-generic"),
    params=(("RmProfilingAdminOnly", "1"), ("EnableGpuFirmware", "18"), ("RegistryDwords", '""')),
    sysctl=(("kernel.numa_balancing", ""), ("vm.swappiness", "60")),
    p2p=(("chat", 100),),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    for name, body in PROGRAMS.items():
        stand_in(root / "bin", name, body)
    for release, days in {"6.8.0-40-generic": 50, "6.8.0-90-generic": 3}.items():
        image = write(root, f"boot/vmlinuz-{release}")
        stamp = image.stat().st_mtime - days * 86400 - 60
        os.utime(image, (stamp, stamp))
    write(root, "run/reboot-required")
    write(root, "run/reboot-required.pkgs", "linux-image-6.8.0-90-generic\nlibc6\nlibc6\n")
    write(root, "proc/driver/nvidia/params", 'RmProfilingAdminOnly: 1\nEnableGpuFirmware: 18\nRegistryDwords: ""\n')
    ours = "0::/rigwright.slice/rigwright-{}.service\n"
    process(root, 100, ours.format("chat"), b"A=1\0GGML_CUDA_P2P=0\0B=2\0")
    process(root, 101, ours.format("code"), b"NOT_GGML_CUDA_P2P=0\0")
    process(root, 102, "0::/system.slice/ollama.service\n", b"GGML_CUDA_P2P=1\0")
    return root


def write(root: Path, name: str, text: str | bytes = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def process(root: Path, pid: int, cgroup: str, environment: bytes) -> None:
    write(root, f"proc/{pid}/cgroup", cgroup)
    write(root, f"proc/{pid}/environ", environment)


def look(root: Path, **keys: Any) -> State:
    made = rig(driver=Driver.model_construct(**Driver().model_dump() | keys))
    text = script(made)
    for place in ("/boot/", "/run/reboot-required", "/proc/"):
        assert place in text
        text = text.replace(place, f"{root}{place}")
    # what is looked for behind the host's own path must be found in the folder, or nowhere
    text = text.replace("PATH=$PATH:/usr/sbin:/sbin", "")
    path = f"{root / 'bin'}:/usr/bin:/bin"
    done = programs.run(["sh", "-c", text], env={"PATH": path}, check=True)
    assert done.stderr == ""
    return parse(done.stdout.splitlines())


def test_a_host_is_seen_in_one_look(root: Path) -> None:
    assert look(root, sysctl={"vm.swappiness": 10, "kernel.numa_balancing": 0}) == SEEN
    assert SEEN.boots


def test_what_a_host_does_not_have_is_not_there(root: Path) -> None:
    for name in ("dkms", "apt-mark", "apt-cache", "apt-config", "dpkg-query", "modinfo"):
        stand_in(root / "bin", name, "exit 127")
    for path in (*(root / "boot").iterdir(), *(root / "run").iterdir(), root / "proc/driver/nvidia/params"):
        path.unlink()
    process(root, 100, "0::/\n", b"")
    found = look(root)
    assert found == State("6.8.0-40-generic", (Kernel("6.8.0-40-generic", False, "", "", ""),))
    assert found.newest.release == "6.8.0-40-generic"
    assert not found.boots


@pytest.mark.parametrize(
    "output", [[], telling(("running", "")), telling(("running", "6.1"), ("module", "6.1", "yes"))]
)
def test_a_look_that_was_cut_short_is_refused(output: list[str]) -> None:
    with pytest.raises(ValueError, match="told"):
        parse(output)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.1.0-9-amd64", "6.1.0-40-amd64"),
        ("6.12.94+deb13-amd64", "6.12.100+deb13-amd64"),
        ("6.12~rc5-amd64", "6.12-amd64"),
        ("6.12-amd64", "6.12.1-amd64"),
        ("6.8.0-117-generic", "6.14.0-29-generic"),
        ("6.18.44-fc-v657-gpu", "7.0.0-34-generic"),
    ],
)
def test_the_kernel_that_boots_next_is_the_newest(older: str, newer: str) -> None:
    assert release_key(older) < release_key(newer)
    kernels = tuple(Kernel(release, True, "", "", "") for release in (newer, older))
    assert State(older, kernels).newest.release == newer
    # one that is not in /boot does not boot
    assert State(older, (Kernel(newer, False, "", "", ""), kernels[1])).newest.release == older


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        # dkms 2.8, Ubuntu 22.04
        (
            "nvidia, 580.95.05, 5.15.0-91-generic, x86_64: installed",
            ("580.95.05", "5.15.0-91-generic", "installed", ""),
        ),
        ("nvidia, 580.95.05: added", ("580.95.05", "", "added", "")),
        # dkms 3.0, Debian 12 and Ubuntu 24.04
        (
            "nvidia-srv/580.159.03, 6.8.0-31-generic, x86_64: installed "
            "(WARNING! Diff between built and installed module!)",
            (
                "580.159.03",
                "6.8.0-31-generic",
                "installed",
                "(WARNING! Diff between built and installed module!)",
            ),
        ),
        ("nvidia-current/535.247.01, 6.1.0-40-amd64, x86_64: built", ("535.247.01", "6.1.0-40-amd64", "built", "")),
        ("nvidia/595.71.05: broken", ("595.71.05", "", "broken", "")),
        # dkms 3.1 and 3.2, Debian 13 and Ubuntu 26.04
        (
            "nvidia/595.91.07, 6.12.94+deb13-amd64, x86_64: installed (Original modules exist) "
            "(Differences between built and installed modules)",
            (
                "595.91.07",
                "6.12.94+deb13-amd64",
                "installed",
                "(Original modules exist) (Differences between built and installed modules)",
            ),
        ),
        # somebody else's
        ("nvidia-fs/2.25.7, 6.8.0-31-generic, x86_64: installed", None),
        ("zfs/2.2.2, 6.8.0-31-generic, x86_64: installed", None),
        (" - Missing module source directory, or the symbolic link pointing to it", None),
        ("", None),
    ],
)
def test_each_dkms_says_it_in_its_own_way(line: str, seen: tuple[str, str, str, str] | None) -> None:
    assert dkms_line(line) == (Dkms(*seen) if seen else None)
