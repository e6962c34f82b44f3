"""The NVIDIA driver's kernel module, now and at the next boot."""

import pytest

from checks import check
from checks.nvidia import no, with_cards
from rigwright.declaration.rig import Rig
from rigwright.nvidia.driver.found import DriverFacts
from rigwright.nvidia.driver.state import State
from rigwright.nvidia.modules import kernels as nvidia_modules


@check(
    "N08",
    "the kernel module is of the flavour that the cards need",
    severity="critical",
    why="a Blackwell card does not exist for proprietary modules, and some boards fail with open ones",
)
def test_flavour(rig: Rig, driver_facts: DriverFacts, state: State) -> None:
    no(nvidia_modules.flavour(rig, driver_facts, state))


@check(
    "N09",
    "the module that is loaded lies there for this kernel and for the next",
    severity="high",
    why="a new kernel without a module of the driver boots into a box without cards",
)
def test_next_boot(driver_facts: DriverFacts, state: State) -> None:
    if not state.boots:
        pytest.skip("no kernel boots from this system's own disk")
    library = driver_facts.library
    no(nvidia_modules.on_disk(driver_facts.module, state, library.driver if library else ""))


@check(
    "N10",
    "DKMS has built the module for this kernel and for the next",
    severity="high",
    why="its packages call a build that was left out or failed a success, and the next boot has no cards",
)
def test_dkms(rig: Rig, state: State) -> None:
    with_cards(rig)
    if not state.dkms:
        pytest.skip("DKMS has no module of the driver")
    no(nvidia_modules.dkms(state))


@check(
    "N11",
    "where Secure Boot is on, the module is signed",
    severity="high",
    why="the kernel refuses a module without a signature",
)
def test_signed(driver_facts: DriverFacts, state: State) -> None:
    if driver_facts.secure_boot == "unknown":
        pytest.skip("the firmware does not say whether Secure Boot is on")
    no(nvidia_modules.signed(driver_facts.secure_boot, state))


@check(
    "N12",
    "module options and kernel settings are the declared ones",
    severity="low",
    why="an option that is not in force does nothing, and nobody notices",
)
def test_settings(rig: Rig, state: State) -> None:
    if not rig.driver.module_options and not rig.driver.sysctl:
        pytest.skip("none are declared")
    no(nvidia_modules.settings(rig, state))
