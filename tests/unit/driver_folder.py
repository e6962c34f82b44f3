"""A folder that stands in for a host that the driver probe looks at."""

import os
from dataclasses import dataclass
from pathlib import Path

from rigwright.model.roots import Roots
from rigwright.nvidia.driver.driver_facts import MODPROBE, DriverFacts, parse, render_probe
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig

DPKG_QUERY = """
case $* in
  -S*) exit 1 ;;
  *nvidia*) cat <<'END'
installed linux-image-generic 6.8.0-40.40 linux-image-6.8.0-40-generic, linux-modules-extra-6.8.0-40-generic;
installed linux-image-amd64 6.1.153-1 linux-image-6.1.0-40-amd64 (= 6.1.153-1);
installed linux-image-6.8.0-40-generic 6.8.0-40.40 kmod, linux-base (>= 4.5);
not-installed linux-image-lowlatency  linux-image-6.8.0-40-lowlatency;
installed nvidia-utils-580-server 580.159.03-0ubuntu0.24.04.1 libnvidia-compute-580-server;
installed libnvidia-compute-580-server 580.159.03-0ubuntu0.24.04.1 libc6 (>= 2.17);
installed nvidia-local 1.0 ;
installed nvidia-ppa 580.1-1 ;
config-files nvidia-old 470.1-1 ;
END
    ;;
esac
"""
APT_CACHE = """
if [ $# = 1 ]; then cat <<'END'
Package files:
 100 /var/lib/dpkg/status
     release a=now
 500 http://a.example/ubuntu noble-updates/restricted amd64 Packages
     release v=24.04,o=Ubuntu,a=noble-updates,n=noble,l=Ubuntu,c=restricted,b=amd64
     origin a.example
 600 https://b.example/repo  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
     origin b.example
 -10 https://c.example/ppa noble/main amd64 Packages
     release o=LP PPA,a=noble
     origin c.example
Pinned packages:
END
else cat <<'END'
libnvidia-compute-580-server:
  Installed: 580.159.03-0ubuntu0.24.04.1
  Candidate: 580.178.04-0ubuntu0.24.04.1
  Version table:
     580.178.04-0ubuntu0.24.04.1 500 (phased 10%)
        500 http://a.example/ubuntu noble-updates/restricted amd64 Packages
 *** 580.159.03-0ubuntu0.24.04.1 100
        100 /var/lib/dpkg/status
nvidia-utils-580-server:
  Installed: 580.159.03-0ubuntu0.24.04.1
  Candidate: 580.159.03-0ubuntu0.24.04.1
  Version table:
     610.1-1 500
        500 http://a.example/ubuntu noble-updates/restricted amd64 Packages
 *** 580.159.03-0ubuntu0.24.04.1 600
        600 https://b.example/repo  Packages
        100 /var/lib/dpkg/status
nvidia-local:
  Installed: 1.0
  Candidate: 1.0
  Version table:
 *** 1.0 100
        100 /var/lib/dpkg/status
nvidia-ppa:
  Installed: 580.1-1
  Candidate: 580.1-1
  Version table:
 *** 580.1-1 500
        -10 https://c.example/ppa noble/main amd64 Packages
        100 /var/lib/dpkg/status
END
fi
"""
SECURE_BOOT = "efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@dataclass
class DriverProbeHost:
    """A folder that stands in for a host."""

    root: Path

    def __post_init__(self) -> None:
        self.write("etc/os-release", "ID=ubuntu\nVERSION_ID=24.04\n")
        programs = {"dpkg-query": DPKG_QUERY, "apt-cache": APT_CACHE, "modinfo": "exit 1"}
        for name, text in {**programs, "mokutil": "exit 1"}.items():
            write_stand_in(self.root / "bin", name, text)
        (self.root / "sys").mkdir()

    def write(self, name: str, text: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def add_card(
        self, address: str, pci_id: str, bound: str = "", kind: str = "0x030000", vendor: str = "0x10de"
    ) -> None:
        device = f"sys/bus/pci/devices/{address}"
        for name, text in {"class": kind, "vendor": vendor, "device": f"0x{pci_id}"}.items():
            self.write(f"{device}/{name}", f"{text}\n")
        if bound:
            (self.root / device / "driver").symlink_to(f"/nowhere/drivers/{bound}")

    def run_probe(self, modprobe: str = MODPROBE, state: str = Roots().state) -> DriverFacts:
        roots = Roots.model_construct(**Roots().model_dump() | {"state": state})
        box_rig = sample_rig(cuda_root=f"{self.root}/cuda", roots=roots)
        text = render_probe(box_rig.roots, box_rig.toolkit).replace(MODPROBE, modprobe)
        for place in (
            "/etc/os-release",
            "/etc/apt",
            "/sys/",
            "/proc/driver",
            "/usr/bin/nvidia",
            "/var/lib/",
            "/boot/",
            "/dev/nvidiactl",
            "/dev/nvidia-uvm",
        ):
            assert place in text
            text = text.replace(place, f"{self.root}{place}")
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        done = short_programs.run_program(["sh", "-c", text], env={"PATH": path}, check=True)
        assert done.stderr == ""
        return parse(done.stdout.splitlines())
