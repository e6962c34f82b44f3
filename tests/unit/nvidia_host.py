"""A folder that stands in for a host with two H200 and their driver: a real shell runs the checks' commands there."""

import json
import os
import re
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from checks import Drift
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS
from checks.survey.cards import CARDS
from checks.survey.host import boot_settings, cards, dpkg, kernel, systemd_properties
from checks.survey.kernel import KERNEL as KERNELS
from checks.survey.section import SurveyScope
from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_files import render_locked_settings
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.nvidia.driver.kernel_facts import DkmsEntry, KernelFacts, KernelModule
from tests.unit.driver_samples import driverless_host, installed_facts, ubuntu_packages
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_facts, sample_instance, sample_rig

CAPTURE = (Path(__file__).parent / "captures" / "nvidia-smi.txt").read_text()
CAPTURED_OUTPUT = dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", CAPTURE, re.MULTILINE))
ADDRESSES = ("0000:00:06.0", "0000:00:07.0")
H200 = Card(name="NVIDIA H200", pci_ids=("10de:2335",), capability="9.0", vram_mib=143771)
RIG = sample_rig(sample_instance(cards=(0,)), cards=(H200, H200))
FACTS = sample_facts(pci_cards=tuple((address, "10de:2335") for address in ADDRESSES))
VERSION = "580.159.04"
KERNEL = "6.8.0-40-generic"
PACKAGES = ("libnvidia-compute-580-server", *ubuntu_packages("generic"))
PACKAGED = "580.159.04-0ubuntu0.24.04.1"
DRIVER_FACTS = replace(
    driverless_host("ubuntu-24.04", "10de:2335", "10de:2335", module=VERSION, module_open=True),
    **installed_facts("Ubuntu", PACKAGED, *PACKAGES),
    recorded=((PACKAGES[0], PACKAGED),),
)
STATE = KernelFacts(
    KERNEL,
    (KernelModule(KERNEL, True, VERSION, "Dual MIT/GPL", "somebody"),),
    kernel_days=50,
    dkms=(DkmsEntry(VERSION, KERNEL, "installed", ""),),
    holds=frozenset((*PACKAGES, "linux-image-generic")),
    params=(("EnableResizableBar", "1"),),
    sysctl=(("vm.swappiness", "10"),),
)
MANAGED = replace(
    RIG,
    driver=DriverEntry(
        managed=True,
        power_w=700,
        clocks_mhz=(210, 1980),
        nvlinks=((0, 1),),
        module_options={"NVreg_EnableResizableBar": 1},
        sysctl={"vm.swappiness": 10},
    ),
)
RECORD = f'{{"version": "{VERSION}", "kernel": "{KERNEL}", "packages": {{"{PACKAGES[0]}": "{PACKAGED}"}}}}'
GROUP = "/rigwright.slice/rigwright-chat.service"
OURS = f"0::{GROUP}\n"
NVLINK = "".join(f"GPU {index}: NVIDIA H200 (UUID: GPU-{index})\n" + "\t Link 0: 26.562 GB/s\n" for index in (0, 1))
SMI = """
case "$*" in
  *=index,*) what=gpus ;;
  *gpu_recovery_action*) what=recovery ;;
  *--query-compute-apps=*) what=apps ;;
  *MEMORY) what=memory ;;
  *TEMPERATURE) what=temperature ;;
  'nvlink --status') what=nvlink ;;
  'topo -m') what=topology ;;
esac
cd "$(dirname "$0")/../says"
echo "$what" >> asked
cat "$what"
exit "$(cat "$what.status")"
"""
# each line of the log is a message
JOURNALCTL = r"""
cd "$(dirname "$0")/../says"
case "$*" in
  *json*) cat log.json 2>/dev/null || sed 's/["\\]/\\&/g; s/.*/{"__CURSOR" : "s=1", "MESSAGE" : "&"}/' log ;;
  *) cat log ;;
esac
"""


def difference_pairs(differences: list[Drift]) -> list[tuple[str, str]]:
    """The expected and the found state; each names a remedy."""
    assert all(one.cure for one in differences)
    return [(one.expected, one.found) for one in differences]


class NvidiaFolderHost:
    """One host, sound as it is made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        write_stand_in(root / "bin", "nvidia-smi", SMI)
        write_stand_in(root / "bin", "journalctl", JOURNALCTL)
        write_stand_in(root / "bin", "uname", f"echo {KERNEL}")
        write_stand_in(
            root / "sbin", "ldconfig", f'cd {root}/says; echo "$(wc -l < ldconfig) libs found in cache"; cat ldconfig'
        )
        self.write("run/log/journal/0/system.journal", "")
        self.set_smi_answers(
            gpus=CAPTURED_OUTPUT["busy"], recovery=CAPTURED_OUTPUT["recovery"], apps=CAPTURED_OUTPUT["apps"]
        )
        self.set_smi_answers(
            **{name: CAPTURED_OUTPUT[name] for name in ("memory", "temperature", "topology")}, nvlink=NVLINK
        )
        self.write("says/log", "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04\n")
        self.write("says/ldconfig", CAPTURED_OUTPUT["ldconfig"])
        self.write("says/enabled", "enabled\n")
        plan = plan_driver(MANAGED.cards, MANAGED.driver, MANAGED.driver_supply, MANAGED.toolkit, DRIVER_FACTS)
        assert isinstance(plan, DriverPlan)
        for one in render_locked_settings(
            MANAGED.roots, MANAGED.cards, MANAGED.driver, MANAGED.driver_supply, MANAGED.network, plan, DRIVER_FACTS
        ):
            self.write(one.path[1:], one.text)
            (root / one.path[1:]).chmod(int(one.mode, 8))
        self.write("etc/rigwright/driver.json", RECORD)
        self.write("sys/module/nvidia/version", f"{VERSION}\n")
        self.write(f"usr/local/nvidia/lib64/libcuda.so.{VERSION}", "")
        (root / "usr/local/nvidia/lib64/libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
        (root / "lib").mkdir()
        (root / "lib/libcuda.so.1").symlink_to("../usr/local/nvidia/lib64/libcuda.so.1")
        (root / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            (root / "dev" / name).symlink_to("/dev/null")  # a character device
        for minor, address in enumerate(ADDRESSES):
            text = CAPTURED_OUTPUT["information"].replace("Minor: \t 0", f"Minor: \t {minor}")
            self.write(f"proc/driver/nvidia/gpus/{address}/information", text)
            for name, value in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
                self.write(f"sys/bus/pci/devices/{address}/{name}", f"{value}\n")
        self.add_process(493, "llama-server", OURS)

    def write(self, name: str, text: str) -> None:
        """Write a file of the host."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def set_smi_answers(self, status: int = 0, **answers: str) -> None:
        """Set what nvidia-smi prints, and what it ends with."""
        for name, text in answers.items():
            self.write(f"says/{name}", text)
            self.write(f"says/{name}.status", str(status))

    def add_process(self, pid: int, name: str, cgroup: str) -> None:
        """Start a process."""
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cgroup", cgroup)

    def remove(self, name: str) -> None:
        """Remove a file or a folder of the host."""
        path = self.root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def run_survey(self, made: Rig = RIG) -> SurveyAnswers:
        """The findings of the survey's own modules in the folder for a rig."""
        scene, answers = SurveyScope(made, None), {}  # type: ignore[arg-type] # nothing here is asked by what comes of it
        with ExitStack() as stack:
            stack.enter_context(patch.dict(os.environ, {"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}"}))
            for module in (dpkg, kernel, boot_settings, cards):
                stack.enter_context(patch.object(module, "ROOT", str(self.root)))
            stack.enter_context(patch.object(systemd_properties, "read_properties", self._unit_properties))
            for section, module in ((KERNELS, kernel), (SETTINGS, boot_settings), (CARDS, cards)):
                asked = section.asks(scene)
                if asked is not None:
                    answers[section.name] = {"told": json.loads(json.dumps(module.look(asked)))}
        for row in answers["boot_settings"]["told"]["files"]:
            row.update(uid=0, gid=0)
        return SurveyAnswers(answers)

    def _unit_properties(self, names: list[str], *_: object) -> dict[str, dict[str, str]]:
        return {name: {"UnitFileState": (self.root / "says/enabled").read_text().strip()} for name in names}
