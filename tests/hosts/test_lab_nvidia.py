"""The lab's stand-ins for a kernel and its modules: what a boot makes of what is installed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import card_faults
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab

KERNELS = {
    "debian-12": ("6.1.0-40-amd64", "6.1.0-41-amd64"),
    "debian-13": ("6.12.94+deb13-amd64", "6.12.107+deb13-amd64"),
}
VERSION = "595.71.05"
BLACKLIST = "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/mine.conf"
FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
DEVICES = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
Boot = Callable[..., LabHost]

# of stand-ins: what stands on them fails with them
pytestmark = pytest.mark.all_only


@pytest.fixture(scope="module")
def own_lab() -> Iterator[ThrowawayLab]:
    lab = ThrowawayLab(f"n{os.getpid() % 100_000}")
    lab.down()
    yield lab
    lab.down()


@pytest.fixture(params=[pytest.param("debian-12", marks=pytest.mark.all_only), "debian-13"])
def boot(own_lab: ThrowawayLab, request: pytest.FixtureRequest) -> Iterator[Boot]:
    def up(*cards: str, layers: tuple[str, ...] = ()) -> LabHost:
        (host,) = own_lab.up([HostSpec("h1", request.param, layers, cards, kernels=KERNELS[request.param])])
        return host

    yield up
    own_lab.host("h1").destroy()


def loaded(host: LabHost) -> str:
    """The version of the module that is loaded; empty without one."""
    return host.run("cat /sys/module/nvidia/version 2>/dev/null", check=False).strip()


def drivers(host: LabHost) -> list[str]:
    """What each card is bound to; empty for nothing."""
    return [
        host.run(f"basename $(readlink /sys/bus/pci/devices/{card}/driver) 2>/dev/null", check=False).strip()
        for card in host.run("ls /sys/bus/pci/devices").split()
    ]


def devices(host: LabHost) -> set[str]:
    return set(host.run("for file in /dev/nvidia*; do test ! -c $file || basename $file; done").split())


def test_the_newest_kernel_is_booted_or_the_one_that_is_asked_for(boot: Boot) -> None:
    host = boot("10de:2204")
    older, newer = host.spec.kernels
    assert host.run("uname -r").strip() == newer
    assert host.run("uname -m").strip() == "x86_64"
    assert f" {newer} " in host.run("uname -a")
    card_faults.boot_with(host, older)
    assert host.run("uname -r").strip() == newer
    for _ in range(2):
        host.reboot()
        assert host.run("uname -r").strip() == older
    card_faults.boot_with(host, None)
    host.reboot()
    assert host.run("uname -r").strip() == newer
    assert host.run("systemctl is-system-running --wait", check=False).strip() == "running"
    listed = host.run("dpkg-query -W -f '${db:Status-Status} ${Package} ${Depends}\\n' 'linux-image-*'").splitlines()
    assert {f"installed linux-image-{kernel} kmod" for kernel in (older, newer)} < set(listed)
    assert [line.split()[:3] for line in listed][-1] == ["installed", "linux-image-amd64", f"linux-image-{newer}"]


def test_a_setting_of_the_kernels_is_each_hosts_own_and_comes_again_with_a_boot(boot: Boot) -> None:
    host, place = boot("10de:2204"), Path("/proc/sys/vm/swappiness")
    here = place.read_text()
    wanted = "7" if here.strip() != "7" else "8"
    host.run(f"echo vm.swappiness={wanted} > /etc/sysctl.d/60-mine.conf && sysctl -q -p /etc/sysctl.d/60-mine.conf")
    for _ in range(2):
        assert host.run(f"cat {place}").strip() == wanted
        host.reboot()
    assert place.read_text() == here


def test_nouveau_has_the_cards_until_a_blacklist_is_packed(boot: Boot) -> None:
    host = boot("10de:2204")
    kernel = host.spec.kernels[-1]
    assert drivers(host) == ["nouveau"]
    card_faults.install_module(host, VERSION, kernel)
    host.reboot()  # nouveau is first
    assert (drivers(host), loaded(host), devices(host)) == (["nouveau"], "", set())
    host.run(BLACKLIST)
    host.reboot()  # the initramfs does not know
    assert (drivers(host), loaded(host)) == (["nouveau"], "")
    host.run("update-initramfs -u -k all")
    for _ in range(2):
        host.reboot()
        assert (drivers(host), loaded(host), devices(host)) == (["nvidia"], VERSION, set(DEVICES))
        assert host.run("ls -d /sys/module/nouveau 2>/dev/null", check=False) == ""
    assert host.run("systemctl is-system-running --wait", check=False).strip() == "running"
    assert "Open Kernel Module for x86_64  595.71.05 " in host.run("cat /proc/driver/nvidia/version")
    about = host.run(f"cat /proc/driver/nvidia/gpus/{FIRST}/information")
    assert "Model: \t\t NVIDIA GeForce RTX 3090\n" in about
    assert "Device Minor: \t\t 0\n" in about


def ready(boot: Boot, *cards: str, version: str = VERSION, flavour: str = "open") -> LabHost:
    """A host with a module for its newest kernel, booted with it."""
    host = boot(*cards)
    card_faults.install_module(host, version, host.spec.kernels[-1], flavour)
    host.run(f"{BLACKLIST}; update-initramfs -u -k all")
    host.reboot()
    return host


def test_a_kernel_without_a_module_has_none(boot: Boot) -> None:
    host = ready(boot, "10de:2204")
    older, newer = host.spec.kernels
    assert loaded(host) == VERSION
    card_faults.boot_with(host, older)
    host.reboot()
    assert (drivers(host), loaded(host), devices(host)) == ([""], "", set())
    refused = host.run("modprobe nvidia 2>&1", check=False)
    assert "nvidia not found in directory" in refused
    host.run(f"cp -r /lib/modules/{newer}/updates /lib/modules/{older}/; depmod {older}")
    assert "Exec format error" in host.run("modprobe nvidia 2>&1", check=False)


def test_modules_are_loaded_and_unloaded_by_hand_with_their_options(boot: Boot) -> None:
    host = boot("10de:2204")
    card_faults.install_module(host, VERSION, host.spec.kernels[-1])
    assert "could not insert 'nvidia': No such device" in host.run("modprobe nvidia 2>&1", check=False)
    host.run("modprobe -r nouveau")
    host.run("echo options nvidia NVreg_EnableResizableBar=1 > /etc/modprobe.d/mine.conf; modprobe nvidia-uvm")
    assert (drivers(host), loaded(host), devices(host)) == (["nvidia"], VERSION, set(DEVICES))
    assert host.run("cat /proc/driver/nvidia/params").strip() == "EnableResizableBar: 1"
    assert "in use" in host.run("modprobe -r nvidia 2>&1", check=False)
    host.run("modprobe -r nvidia-uvm; modprobe -r nvidia")
    assert (drivers(host), loaded(host), devices(host)) == ([""], "", set())


@pytest.mark.parametrize("boot", ["debian-13"], indirect=True)
@pytest.mark.parametrize(
    ("flavour", "version", "bound"),
    [
        ("open", VERSION, ["nvidia", "nvidia", ""]),
        ("proprietary", VERSION, ["nvidia", "", ""]),
        ("proprietary", "580.178.04", ["nvidia", "", "nvidia"]),
    ],
)
def test_each_flavour_and_branch_has_its_cards(boot: Boot, flavour: str, version: str, bound: list[str]) -> None:
    host = ready(boot, "10de:2204", "10de:2b85", "10de:1b06", version=version, flavour=flavour)
    assert drivers(host) == bound
    assert len(host.run("ls /proc/driver/nvidia/gpus").split()) == len([one for one in bound if one])
    assert ("Open" in host.run("cat /proc/driver/nvidia/version")) == (flavour == "open")


@pytest.mark.parametrize("boot", ["debian-13"], indirect=True)
def test_a_module_that_has_no_card_is_not_loaded(boot: Boot) -> None:
    host = ready(boot, "10de:2b85", flavour="proprietary")
    assert (drivers(host), loaded(host), devices(host)) == ([""], "", set())


def test_what_breaks_can_be_broken(boot: Boot) -> None:
    host = ready(boot, "10de:2204", "10de:2b85")
    card_faults.narrow_link(host, SECOND, 4)
    width = f"cat /sys/bus/pci/devices/{SECOND}/current_link_width"
    assert host.run(width).strip() == "4"
    card_faults.load_version(host, "580.1")
    assert (loaded(host), "  580.1  Release" in host.run("cat /proc/driver/nvidia/version")) == ("580.1", True)
    card_faults.without_device_files(host, "nvidia-uvm")
    card_faults.remove_from_bus(host, FIRST)
    assert host.run("ls /proc/driver/nvidia/gpus").split() == [SECOND]
    xids = "journalctl -k -b -o cat --no-pager | grep 'NVRM: Xid'"
    assert "(PCI:0000:01:00): 79," in host.run(xids)
    for number in range(8):
        card_faults.log_kernel_line(host, f"NVRM: GPU at PCI:0000:02:00, it's line {number}")
    assert host.run("journalctl -k -b -o cat --no-pager").splitlines()[-1].endswith("it's line 7")
    host.reboot()
    assert host.run("ls /sys/bus/pci/devices").split() == [SECOND]
    assert host.run(width).strip() == "4"
    assert (loaded(host), devices(host)) == (VERSION, {"nvidia0", "nvidiactl", "nvidia-uvm-tools"})
    assert host.run(xids, check=False) == ""
    card_faults.return_at_boot(host, FIRST)
    card_faults.bind_nouveau(host)
    host.reboot()
    assert drivers(host) == ["nouveau", "nouveau"]


@pytest.mark.parametrize("boot", ["debian-13"], indirect=True)
def test_the_cards_and_kernels_of_a_layer_go_on_in_the_next_host(own_lab: ThrowawayLab, boot: Boot) -> None:
    host = ready(boot, "10de:2204", "10de:2b85")
    layer = host.freeze_layer(own_lab.folder / "frozen")
    again = boot("10de:2204", layers=(layer,))
    assert (drivers(again), loaded(again)) == (["nvidia"], VERSION)
    assert own_lab.host("h1").spec == again.spec
