"""Debian's own driver, really compiled by DKMS: what a kernel that it does not compile for leaves behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from lab.hosts import Host, HostSpec
from lab.labs import Lab
from lab.nvidia import world
from tests.hosts import real_dkms


@pytest.fixture(scope="module")
def own_lab() -> Iterator[Lab]:
    lab = Lab(f"k{os.getpid() % 100_000}")
    lab.down()
    yield lab
    lab.down()


@pytest.fixture
def host(own_lab: Lab, request: pytest.FixtureRequest) -> Iterator[Host]:
    release = request.param
    layer = real_dkms.layer(own_lab, release)
    spec = HostSpec("h1", release, (layer,), ("10de:2204",), kernels=real_dkms.kernels_of(release))
    (made,) = own_lab.up([spec])
    yield made
    made.destroy()


def status(host: Host, *words: str) -> list[str]:
    """`dkms status`, less the driver's version."""
    return re.sub(r"/[0-9.]+", "", host.run(f"dkms status {' '.join(words)}")).splitlines()


@pytest.mark.parametrize("host", sorted(real_dkms.RELEASES), indirect=True)
def test_the_compiled_module_is_loaded_at_boot(host: Host) -> None:
    about = real_dkms.RELEASES[host.spec.release]
    older = about.older[0]
    assert host.run("uname -r").strip() == older
    assert status(host) == [f"{about.module}, {older}, x86_64: installed"]
    version = host.run(f"modinfo -k {older} -F version {about.module}")
    assert host.run("cat /sys/module/nvidia/version") == version
    assert host.run("dkms status nvidia") == ""  # Debian's own has another name


@pytest.mark.parametrize("host", ["debian-13"], indirect=True)
def test_a_kernel_that_it_does_not_compile_for_is_left_half_configured_and_boots_without(host: Host) -> None:
    about = real_dkms.RELEASES[host.spec.release]
    newer = about.newer[0]
    said = real_dkms.install_newer(host)
    assert "apt-get exited with 100" in said
    assert f"Bad return status for module build on kernel: {newer}" in said
    assert status(host) == [f"{about.module}, {about.older[0]}, x86_64: installed"]  # it does not say that one failed
    assert [
        line.split("/")[0] + line[line.index(":") :] for line in host.run(f"dkms status -k {newer}").splitlines()
    ] == [f"{about.module}: added"]
    states = host.run("dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' 'linux-*'").splitlines()
    assert f"iF  linux-image-{newer}" in states
    assert f"iU  linux-headers-{newer}" in states
    host.reboot()
    assert host.run("uname -r").strip() == newer
    assert host.run("cat /sys/module/nvidia/version 2>/dev/null", check=False) == ""
    world.boot_with(host, about.older[0])
    host.reboot()
    assert host.run("cat /sys/module/nvidia/version 2>/dev/null", check=False) != ""


@pytest.mark.parametrize("host", ["debian-12"], indirect=True)
def test_a_kernel_that_it_compiles_for_is_booted_with_it(host: Host) -> None:
    about = real_dkms.RELEASES[host.spec.release]
    assert "apt-get exited with 0" in real_dkms.install_newer(host)
    assert status(host) == [f"{about.module}, {one[0]}, x86_64: installed" for one in (about.older, about.newer)]
    host.reboot()
    assert host.run("uname -r").strip() == about.newer[0]
    assert host.run("cat /sys/module/nvidia/version").startswith("535.")
