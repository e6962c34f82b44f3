"""The driver's role on hosts whose kernel, cards and archive are stand-ins: real dpkg, apt, DKMS and systemd."""

import os
import signal
import subprocess
import sys

import pytest

from roles.operations.drivers import BOOT
from tests.hosts.driver_box import KERNELS, NEW, OLD, DriverBox, single_release_mark
from tests.hosts.support import deploy, run_deploy, run_plan, wait_until
from tests.stand_ins import card_faults


def test_a_host_comes_out_with_its_driver_held_and_running(undriven: DriverBox) -> None:
    box, old = undriven, OLD[undriven.system]
    box.declare(power_w=280, sysctl={"net.ipv4.tcp_fin_timeout": 61}, module_options={"NVreg_EnableResizableBar": 1})
    predicted = run_plan(box.inventory).planned_operations
    said = box.run_rig("deploy", status=1)
    assert "needs a reboot: nouveau is bound to the cards" in said
    assert (box.installed_driver, box.loaded_module) == (old, "")
    first = deploy(box.inventory, "--yes", "--data", "reboot=true")
    assert "rebooting: nouveau is bound to the cards" in first.said
    assert (box.installed_driver, box.loaded_module) == (old, old)
    assert {"NVIDIA driver | Driver module", "NVIDIA driver | Cards"} <= set(first.changed_operations) <= set(predicted)
    assert "nvidia-driver-cuda" in box.held_packages
    assert box.power_limits == [280.0, 280.0]
    box.assert_unchanged()
    box.host.reboot()
    assert box.red_checks() == set()
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_an_upgrade_moves_the_driver_and_a_rollback_brings_it_back_from_kept_files(driven: DriverBox) -> None:
    box, old, new = driven, OLD[driven.system], NEW[driven.system]
    box.lock(new)
    # a plain deploy leaves a driver that works, and the checks say that the lock has another one
    assert run_deploy(box.inventory).changed_operations == ["NVIDIA driver | Driver settings"]
    box.assert_unchanged()
    assert box.red_checks() == {"N14"}
    assert "needs a reboot: the module" in box.run_rig("deploy", "--upgrade-driver", status=1)
    assert (box.installed_driver, box.loaded_module) == (new, old)
    assert "N02" in box.red_checks()
    box.run_rig("deploy", "--upgrade-driver", "--reboot")
    assert (box.installed_driver, box.loaded_module) == (new, new)
    assert box.red_checks() == set()
    box.assert_unchanged()
    box.publish(new)  # the archive drops the older one
    said = box.run_rig("rollback", "--driver", "--reboot")
    assert f"the archive has dropped {old}: using stored files" in said
    assert (box.installed_driver, box.loaded_module) == (old, old)
    assert box.red_checks() == {"N14", "N20"}
    box.run_rig("deploy", "--upgrade-driver", "--reboot")
    assert (box.installed_driver, box.loaded_module) == (new, new)
    assert box.red_checks() == set()


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_a_reboot_that_comes_back_on_a_kernel_without_the_module_is_reported(driven: DriverBox) -> None:
    box, older = driven, KERNELS[driven.system][0]
    card_faults.boot_with(box.host, older)
    box.host.run(f"rm -rf /lib/modules/{older}/updates && depmod {older}")
    box.lock(NEW[box.system])
    said = box.run_rig("deploy", "--upgrade-driver", "--reboot", status=1)
    assert older in said
    assert "check the boot loader's default kernel" in said
    card_faults.boot_with(box.host, None)
    box.run_rig("deploy", "--upgrade-driver", "--reboot")
    assert box.red_checks() == set()


@pytest.mark.all_only
def test_a_driver_that_is_not_declared_any_more_is_let_go_and_a_removal_takes_it_off(driven: DriverBox) -> None:
    box = driven
    assert box.held_packages
    box.declare(managed=False)
    released = deploy(box.inventory)
    assert released.changed_operations == ["NVIDIA driver | Stop managing the driver"]
    assert box.held_packages == set()
    assert box.host.run("ls /etc/apt/*/*rigwright* 2>/dev/null", check=False) == ""
    assert box.loaded_module == OLD[box.system]
    box.assert_unchanged()
    box.declare()
    box.run_rig("deploy")
    assert "nvidia-driver-cuda" in box.held_packages
    box.run_rig("remove", "--yes")
    assert (box.held_packages, box.installed_driver) == (set(), "")
    assert box.host.run("find / -xdev -name '*rigwright*' -not -path '/proc/*' -not -path '/sys/*' 2>/dev/null") == ""


@pytest.mark.all_only
@single_release_mark("debian-13")
@pytest.mark.parametrize("what", ["powered off", pytest.param("controller killed", marks=pytest.mark.all_only)])
def test_a_transaction_that_ends_in_the_middle_is_finished_by_the_next_run(undriven: DriverBox, what: str) -> None:
    box = undriven
    box.interrupt(what, "==> installing the driver")
    box.run_rig("deploy", "--reboot")
    assert (box.installed_driver, box.loaded_module) == (OLD[box.system],) * 2
    assert box.red_checks() == set()
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_cards_of_an_operators_own_driver_are_set_too_and_let_go_when_no_longer_declared(driven: DriverBox) -> None:
    box = driven
    box.declare(managed=False, power_w=280, clocks_mhz=(210, 1695), sysctl={"net.ipv4.tcp_fin_timeout": 61})
    deploy(box.inventory)
    assert (box.power_limits, box.held_packages) == ([280.0, 280.0], set())
    assert box.host.run("sysctl -n net.ipv4.tcp_fin_timeout").strip() == "61"
    box.assert_unchanged()
    # N03: device files that nothing of ours makes at boot any more, and this box's operator neither
    box.host.reboot()
    wait_until(lambda: box.power_limits == [280.0, 280.0], "limits that are set again at boot")
    assert box.red_checks() == {"N03"}
    box.assert_unchanged()
    box.host.run("nvidia-smi -pl 350 && sysctl -w net.ipv4.tcp_fin_timeout=60")
    assert box.red_checks() == {"N03", "N12", "N21"}
    assert run_deploy(box.inventory).changed_operations == ["NVIDIA cards | Cards"]
    assert (box.power_limits, box.red_checks()) == ([280.0, 280.0], {"N03"})
    box.declare(managed=False)
    last = run_deploy(box.inventory)
    gone = ["NVIDIA cards | Undeclared settings", "Self check | Program and declaration"]
    assert last.changed_operations == gone, last.said
    assert box.power_limits == [350.0, 350.0]
    ours = "/etc/sysctl.d/60-rigwright.conf /etc/systemd/system/rigwright-power.service /etc/rigwright/driver.json"
    assert box.host.run(f"find /etc/rigwright/cards {ours} -type f 2>/dev/null", check=False) == ""
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_a_rollout_reboots_a_box_once_though_its_controller_is_killed(driven: DriverBox) -> None:
    box, old, new = driven, OLD[driven.system], NEW[driven.system]
    refused = box.run_rig("rollout", "--rollback", "--driver", "--reboot", status=2)
    assert "box: refused: no files of an earlier driver are stored" in refused
    box.lock(new)
    assert "--upgrade-driver needs --reboot" in box.run_rig("rollout", "--upgrade-driver", status=2)
    kill_after_reboot(box, "--upgrade-driver", "--reboot")
    assert (box.installed_driver, box.loaded_module) == (new, new)
    # back, from a driver that the lock has: its checks do not count in the gate
    planned = box.run_rig("rollout", "--rollback", "--driver", "--reboot", "--dry")
    assert f"box: driver {new} -> {old}, by a reboot" in planned
    kill_after_reboot(box, "--rollback", "--driver", "--reboot")
    assert (box.installed_driver, box.loaded_module) == (old, old)
    assert box.red_checks() == {"N14", "N20"}
    refused = box.run_rig("rollout", "--rollback", "--driver", "--reboot", status=2)
    assert f"box: refused: driver {new} is stored and newer than the installed {old}" in refused
    assert (box.installed_driver, box.loaded_module) == (old, old)


def kill_after_reboot(box: DriverBox, *options: str) -> None:
    """Kill the controller of a rollout as soon as its host has rebooted, and have another one finish it."""
    before = box.host.run(BOOT)
    words = [sys.executable, "-m", "cli", "rollout", str(box.inventory), *options]
    with subprocess.Popen(words, cwd="/", stdout=subprocess.DEVNULL, start_new_session=True) as controller:
        wait_until(lambda: box.host.run(BOOT, check=False) not in (before, ""), "the reboot", 300)
        os.killpg(controller.pid, signal.SIGKILL)
    box.host.wait()
    after = box.host.run(BOOT)
    said = box.run_rig("rollout", "--resume")
    assert "box: has rebooted in this rollout: no second reboot" in said
    assert "box: done" in said
    assert box.host.run(BOOT) == after
