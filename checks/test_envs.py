"""Environments: a Python of its own with exactly the locked packages."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from checks import DEPLOY, check, expect
from rigwright.declaration.rig import Rig
from rigwright.envs.env import Environment
from rigwright.envs.told import installed, installed_script, wanted
from rigwright.nvidia.cards.smi import Gpu


@check(
    "V01",
    "an environment has the locked distributions, and no other",
    severity="critical",
    why="one more, or another version, is other code in the same process",
)
def test_distributions(host: Host, rig: Rig, environment: Environment) -> None:
    found = installed(host.check_output("sh -c %s", installed_script(rig, environment)).splitlines())
    expect(sorted(found ^ wanted(environment)), [], again(rig, environment))


@check(
    "V02",
    "the driver can run the CUDA that an environment is for",
    severity="critical",
    why="a newer one than the driver's fails at the first call, whatever is compiled for the cards",
)
def test_cuda(rig: Rig, environment: Environment, gpus: tuple[Gpu, ...]) -> None:
    least = environment.least_driver
    if not least:
        pytest.skip("nothing in it is for CUDA")
    found = sorted({one.driver for one in gpus if int(one.driver.partition(".")[0]) < least})
    expect(found, [], f"install a driver of branch {least} or newer")


def again(rig: Rig, environment: Environment) -> str:
    """A folder with its marker is never installed again by itself."""
    return f"remove {rig.installed(environment.folder)} and {DEPLOY}"
