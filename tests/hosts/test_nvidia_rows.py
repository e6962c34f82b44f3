"""The table of drivers on hosts: each way in which an archive brings one, and what becomes of a driver that is there.

Hosts that run Ubuntu are stand-ins (tests.stand_ins.stand_in_ubuntu). Cases that differ only in a name are left to the
plan's own tests.
"""

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from lab.throwaway_lab import ThrowawayLab
from tests.hosts import driver_box, ubuntu_box
from tests.hosts.driver_box import C22G, C2080, C3090, C5090, OLD, DriverBox
from tests.hosts.support import run_deploy
from tests.hosts.ubuntu_box import LTS, PRODUCTION, UbuntuBox
from tests.stand_ins import card_faults, stand_in_ubuntu
from tests.stand_ins.nvidia import apt_archive, kernel_packages, nvidia_driver_packages, ubuntu_driver_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.package_contents import render_smi
from tests.stand_ins.nvidia.served_archives import ServedArchives
from tests.stand_ins.nvidia.signing_keys import SigningKey

ALL = "main restricted universe multiverse"
MINE = "/etc/apt/sources.list.d/cuda.list"
OURS = "/etc/apt/sources.list.d/rigwright-nvidia.sources"
COMPONENT = "/etc/apt/sources.list.d/rigwright-component.sources"
INSTALLED = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' | grep '^installed'"
NEWER, NEWEST = "580.190.02", "580.200.01"
Boot = Callable[..., DriverBox]


def on(*systems: str) -> pytest.MarkDecorator:
    """Hosts whose trees are of one release of Debian's."""
    (tree,) = {stand_in_ubuntu.RELEASES[one].tree if one in stand_in_ubuntu.RELEASES else one for one in systems}
    return pytest.mark.parametrize("release", [tree], indirect=True)


@pytest.fixture
def up(
    lab: ThrowawayLab, release: str, key: SigningKey, layers: Path, undriven_layer: str, tmp_path: Path
) -> Iterator[Boot]:
    """Boot a host with all but a driver: `up(system, *cards)`."""
    booted: list[DriverBox] = []

    def boot(system: str, *cards: str, components: str = ALL) -> DriverBox:
        if system == release:
            box = driver_box.boot_driver_box(lab, release, tmp_path / "box", key, undriven_layer, cards=cards)
        else:
            over = ubuntu_box.make_ubuntu_layer(lab, system, tmp_path, key, undriven_layer, layers)
            box = ubuntu_box.boot_ubuntu_box(
                lab, system, tmp_path / "box", key, over, undriven_layer, cards=cards, components=components
            )
        booted.append(box)
        return box

    yield boot
    for box in booted:
        box.host.destroy()


@dataclass(frozen=True)
class ExpectedDriver:
    """The target state of a row of the table."""

    version: str
    flavour: str
    packages: tuple[str, ...]
    also_held: tuple[str, ...] = ()


def server(version: str, kernel: str, suffix: str = "-open") -> ExpectedDriver:
    """Of Ubuntu's own archive: modules that are built for each kernel, which is held with them."""
    b = f"{nvidia_driver_packages.driver_branch(version)}-server"
    packages = (f"linux-modules-nvidia-{b}{suffix}-{kernel}", f"nvidia-headless-no-dkms-{b}{suffix}")
    flavour = "open" if suffix else "proprietary"
    return ExpectedDriver(version, flavour, (*packages, f"nvidia-utils-{b}"), (f"linux-image-{kernel}",))


def packages(box: DriverBox) -> dict[str, str]:
    """Package -> version of all that is installed."""
    return dict(line.split()[1:] for line in box.host.run(INSTALLED).splitlines())


def holds(box: DriverBox, driver: ExpectedDriver) -> None:
    """Assert that a host has a driver, whole, running and held, and that there is nothing left to do."""
    there = packages(box)
    assert set(driver.packages) <= set(there)
    assert (box.installed_driver, box.loaded_module) == (driver.version, driver.version)
    said = box.host.run("cat /proc/driver/nvidia/version")
    assert ("Open Kernel Module" in said) == (driver.flavour == "open")
    assert box.host.run("nvidia-smi -L").count("GPU-") == len(box.host.spec.cards)
    assert {*driver.packages, *driver.also_held} <= box.held_packages
    assert box.red_checks() == set()
    assert run_deploy(box.inventory).changed_operations == []


def converge(box: DriverBox, driver: ExpectedDriver) -> str:
    """Deploy once, and assert that the driver is there; returns the output."""
    said = box.run_rig("deploy", "--reboot")
    holds(box, driver)
    return said


def runs(box: DriverBox, *names: str) -> None:
    """Have a driver on a host before us: install packages, and load what they bring."""
    box.host.run(f"apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y {' '.join(names)}")
    box.host.run("modprobe -r nouveau && modprobe nvidia-uvm")


def put(box: DriverBox, path: str, text: str) -> None:
    """Write a file of the operator's."""
    box.host.run(f"printf %s {shlex.quote(text)} > {path}")


@pytest.mark.all_only
@on("ubuntu-22.04")
def test_a_component_that_is_off_is_switched_on_and_goes_with_a_removal(up: Boot) -> None:
    box = up("ubuntu-22.04", C2080, C3090, components="main")
    before = packages(box)
    box.declare()
    said = converge(box, server(LTS, "generic-hwe-22.04"))
    assert "switching on the component restricted" in said
    assert "dkms" not in packages(box)
    box.run_rig("remove", "--yes")
    assert box.host.run("ls /etc/apt/*/*rigwright* 2>/dev/null", check=False) == ""
    left = packages(box)
    assert {name for name in left if "nvidia" in name} == set()
    assert set(left) <= set(before)


@pytest.mark.all_only
@on("ubuntu-26.04")
def test_a_key_asks_for_a_newer_branch_of_ubuntus_own(up: Boot) -> None:
    box = up("ubuntu-26.04", C2080, C5090)
    box.declare(branch=595)
    converge(box, server(PRODUCTION, "generic"))


@pytest.mark.all_only
@on("ubuntu-26.04")
def test_nvidias_newer_packages_for_ubuntu_have_no_branch_in_their_names_and_are_built_here(up: Boot) -> None:
    box = up("ubuntu-26.04", C3090, C5090)
    box.publish(PRODUCTION, "615.71.09")
    box.declare(source="nvidia", branch=595)
    box.lock(PRODUCTION)
    converge(box, ExpectedDriver(PRODUCTION, "open", ("nvidia-dkms-open", "libnvidia-compute", "nvidia-utils")))


@pytest.mark.all_only
@on("ubuntu-24.04")
def test_conflicting_packages_are_refused_untouched_and_a_mixed_box_then_runs_nvidias_own(up: Boot) -> None:
    box = up("ubuntu-24.04", C2080, C5090)
    box.publish(LTS)
    box.declare(source="nvidia")
    box.lock(LTS)
    put(box, "/usr/bin/nvidia-uninstall", "#!/bin/sh\n")
    put(box, MINE, "deb https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /\n")
    before = time.time_ns()
    for verb in (("plan",), ("deploy", "--reboot")):
        said = box.run_rig(*verb, status=1)
        assert "refused: /usr/bin/nvidia-uninstall comes from a .run file" in said
        assert f"refused: {MINE} names NVIDIA's archive for debian12, but this is ubuntu-24.04" in said
    caches = ("/var/log/", "/var/lib/systemd/", "/var/cache/apt/")
    assert [path for path in box.host.changed_paths(before) if not path.startswith(caches)] == []
    box.host.run(f"rm /usr/bin/nvidia-uninstall {MINE}")
    built = ("nvidia-dkms-580-open", "libnvidia-compute-580", "nvidia-utils-580", "nvidia-compute-utils-580")
    converge(box, ExpectedDriver(LTS, "open", built))


@pytest.mark.all_only
@on("ubuntu-24.04")
def test_a_driver_of_a_ppa_is_replaced_and_cards_that_fail_with_open_modules_get_proprietary_ones(up: Boot) -> None:
    box = up("ubuntu-24.04", C22G, C3090)
    card_faults.change_card(box.host, "0000:01:00.0", vram_mib=22528)
    debs = ubuntu_driver_packages.stack_packages("590.48.01", "24.04", ubuntu_driver_packages.DESKTOP)
    suite = apt_archive.SuiteLayout("noble", "noble", "24.04", "LP-PPA-graphics-drivers", "Proprietary GPU Drivers")
    apt_archive.write_archive(box.lab.shelf_folder / "ppa", debs, box.key, suite)
    put(box, MINE, f"deb [signed-by={stand_in_ubuntu.ARMOURED}] {box.lab.shelf_url}/ppa noble restricted\n")
    runs(box, "linux-headers-generic", "nvidia-driver-590-open")
    assert box.loaded_module == "590.48.01"
    box.declare()
    lines = box.run_rig("plan").splitlines()
    lead = "  nvidia_driver: "
    steps = [(one.removeprefix(lead), why) for one, why in pairwise(lines) if one.startswith(lead)]
    assert [step.partition(" ")[0] for step, _ in steps] == ["install", "reboot"]
    assert "580 with proprietary modules from the distribution's archive" in steps[0][0]
    assert "why: installed: 590.48.01 with open" in steps[0][1]
    said = converge(box, server(LTS, "generic", ""))
    assert "nvidia_driver" not in box.run_rig("plan")
    assert "rebooting: the module 590.48.01 is loaded" in said
    assert [name for name in packages(box) if "590" in name] == []


@pytest.mark.all_only
@on("ubuntu-24.04")
def test_a_desktops_driver_of_the_distribution_is_adopted_as_it_is(up: Boot) -> None:
    box = up("ubuntu-24.04", C3090, C5090)
    desktop = ("linux-modules-nvidia-580-open-generic", "nvidia-driver-580-open")
    runs(box, *desktop)
    before = packages(box)
    box.declare()
    box.run_rig("deploy")
    assert packages(box) == before
    holds(box, ExpectedDriver(LTS, "open", desktop, ("linux-image-generic",)))
    box.host.run("rm -rf /var/lib/apt/lists/*")
    assert run_deploy(box.inventory).changed_operations == []
    box.host.reboot()
    assert (box.loaded_module, box.red_checks()) == (LTS, set())


@pytest.mark.all_only
@on("ubuntu-24.04")
def test_an_upgrade_of_ubuntus_own_waits_for_modules_and_then_moves_the_kernel_with_all_of_it(up: Boot) -> None:
    box, old, new = up("ubuntu-24.04", C3090), "6.8.0-40-generic", "6.8.0-45-generic"
    assert isinstance(box, UbuntuBox)
    box.host.run("apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install -y linux-generic")
    box.declare()
    converge(box, server(LTS, "generic"))
    try:
        # a newer driver for the kernel that is there, and a newer kernel that has none
        box.distribute(NEWER, new, without=1, respin=2)
        box.run_rig("deploy", "--upgrade-driver", "--reboot")
        holds(box, server(NEWER, "generic"))
        assert packages(box)["linux-image-generic"] == "6.8.0-40.40"
        box.distribute(NEWEST, new, respin=3)
        assert "rebooting: the module" in box.run_rig("deploy", "--upgrade-driver", "--reboot")
        holds(box, server(NEWEST, "generic"))
        assert box.host.run("uname -r").strip() == new
        there = packages(box)
        assert {there[f"linux-{name}generic"] for name in ("", "image-", "headers-")} == {"6.8.0-45.45"}
        assert {f"linux-image-{old}", f"linux-image-{new}", f"linux-modules-extra-{new}"} <= set(there)
        said = box.run_rig("rollback", "--driver", "--reboot", status=1)
        assert "refused: the previous driver has modules only for the previous kernel" in said
    finally:
        box.distribute()


@pytest.mark.all_only
@on("debian-12")
def test_an_archive_that_the_operator_has_named_is_not_named_twice(up: Boot) -> None:
    box, version = up("debian-12", C2080, C3090, C5090), OLD["debian-12"]
    box.publish(version)
    cuda = box.lab.shelf_folder / "cuda"
    cuda.mkdir(exist_ok=True)
    (cuda / "repos").symlink_to("../nvidia")
    key = "/usr/share/keyrings/cuda-archive-keyring.asc"
    put(box, key, box.key.public)
    mine = f"deb [signed-by={key}] {box.lab.shelf_url}/cuda/repos/debian12/x86_64/ /\n"
    put(box, MINE, mine)
    box.declare()
    box.inventory.write_text(box.inventory.read_text().replace("/nvidia'", "/cuda/repos'"))
    box.lock(version)
    converge(
        box, ExpectedDriver(version, "open", ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"))
    )
    assert MINE in box.host.run("ls /etc/apt/sources.list.d/*").split()
    assert OURS not in box.host.run("ls /etc/apt/sources.list.d/*").split()
    box.host.run("apt-get update --error-on=any")
    box.host.run(f"rm {MINE}")
    assert run_deploy(box.inventory).changed_operations == ["NVIDIA driver | Driver settings"]
    box.host.run("apt-get update --error-on=any")
    put(box, MINE, mine)
    assert "Conflicting values set for option Signed-By" in box.host.run("apt-get update 2>&1", check=False)
    assert "NVIDIA driver | Undeclared settings" in run_deploy(box.inventory).changed_operations
    box.host.run("apt-get update --error-on=any")
    assert run_deploy(box.inventory).changed_operations == []


def debians_own() -> list[StandInDeb]:
    """Debian's driver: as NVIDIA's packages, with its own ones for the tools and for all of it."""
    version, deb = "550.163.01", "550.163.01-2"
    nvidias = ("nvidia-driver-cuda", "nvidia-driver", "nvidia-open", "cuda-drivers")
    found = [one for one in nvidia_driver_packages.nvidia_debian_debs(version, revision="2") if one.name not in nvidias]
    source = "nvidia-graphics-drivers"
    tool = StandInDeb(
        "nvidia-smi", deb, source, (f"libnvidia-ml1 (= {deb})",), files={"usr/bin/nvidia-smi": render_smi(version)}
    )
    needs = tuple(
        f"{name} (= {deb})" for name in ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "nvidia-alternative")
    )
    headers = [
        deb
        for deb in kernel_packages.kernel_packages(driver_box.KERNELS["debian-13"], "amd64")
        if "headers" in deb.name
    ]
    return [
        *found,
        *headers,
        tool,
        StandInDeb("nvidia-alternative", deb, source),
        StandInDeb("nvidia-driver", deb, source, needs),
    ]


@pytest.mark.all_only
@on("debian-13")
def test_debians_own_driver_is_too_old_and_gives_way_to_nvidias(up: Boot) -> None:
    box, version = up("debian-13", C2080, C3090, C5090), OLD["debian-13"]
    archives = ServedArchives(box.lab.shelf_folder, box.lab.shelf_url, box.key)
    archives.write_distribution("debian-13", debians_own(), name="older")
    put(box, "/etc/apt/sources.list.d/older.sources", archives.distribution_source("debian-13", name="older"))
    box.publish(version)
    runs(box, "linux-headers-amd64", "nvidia-driver")
    box.declare()
    box.lock(version)
    said = converge(
        box, ExpectedDriver(version, "open", ("nvidia-kernel-open-dkms", "nvidia-driver-cuda", "nvidia-persistenced"))
    )
    assert "rebooting: the module 550.163.01 is loaded" in said
    assert [name for name, text in packages(box).items() if text.startswith("550")] == []
