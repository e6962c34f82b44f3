"""Debian's own driver, brought by the role and really compiled by DKMS, and a kernel that it does not compile for."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.dkms import debian_driver
from tests.hosts.support import check_verdicts, run_deploy
from tests.stand_ins import card_faults
from tests.stand_ins.nvidia.kernel_layer import prepare_kernel_host


class DkmsBox:
    """A host with a card, and its inventory."""

    def __init__(self, host: LabHost, folder: Path) -> None:
        self.host, self.about = host, debian_driver.RELEASES[host.spec.release]
        self.inventory = folder / "rig.py"
        tables = folder / "catalog/driver/driver.toml"
        tables.parent.mkdir(parents=True)
        tables.write_text(debian_driver.driver_tables(host.spec.release))
        flavour = "open" if "open" in self.about.package else "proprietary"
        rig = {**host.inventory_keys, "cards": ["rtx-3090"], "driver": {"managed": True, "flavour": flavour}}
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {rig!r}}})\n")

    @property
    def loaded(self) -> str:
        return self.host.run("cat /sys/module/nvidia/version 2>/dev/null", check=False).strip()

    def module(self, kernel: str) -> str:
        return self.host.run(f"modinfo -k {kernel} -F version {self.about.module} 2>/dev/null", check=False).strip()

    def deploy(self) -> str:
        """The output of a deploy; it ends where Debian's nvidia-persistenced finds no true card."""
        return run_deploy(self.inventory, "--yes", "--data", "reboot=true").said


@pytest.fixture(params=sorted(debian_driver.RELEASES))
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DkmsBox]:
    lab = ThrowawayLab(f"k{os.getpid() % 100_000}")
    lab.down()
    release = str(request.param)
    (host,) = lab.up([prepare_kernel_host("h1", release, debian_driver.kernels_of(release), ("10de:2204",))])
    debian_driver.prepare_host(host)
    yield DkmsBox(host, tmp_path)
    lab.down()


def test_a_driver_is_compiled_and_a_kernel_that_it_does_not_compile_for_is_seen_before_it_boots(box: DkmsBox) -> None:
    older, newer = box.about.older[0], box.about.newer[0]
    said = box.deploy()
    assert "rebooting: nouveau is bound to the cards" in said
    assert (box.host.run("uname -r").strip(), box.loaded) == (older, box.module(older))
    assert box.loaded.startswith(("535.", "550."))
    verdicts = check_verdicts(box.inventory)
    assert {verdicts[name] for name in ("N08", "N09", "N10", "N13")} == {"ok"}

    said = debian_driver.install_newer(box.host)
    verdicts = check_verdicts(box.inventory)
    if box.about.newer_compiles:
        assert "apt-get exited with 0" in said
        assert box.module(newer) == box.loaded
        assert (verdicts["N09"], verdicts["N10"]) == ("ok", "ok")
        box.host.reboot()
        # without a persistence daemon that starts here, nothing but a deploy loads it
        assert "does not build" not in box.deploy()
        assert (box.host.run("uname -r").strip(), box.loaded) == (newer, box.module(newer))
        return
    assert f"Bad return status for module build on kernel: {newer}" in said
    assert (verdicts["N09"], verdicts["N10"]) == ("FAIL", "FAIL")
    assert f"does not build for {newer}, which boots next" in box.deploy()
    # the cure: that kernel goes, and no other comes by itself
    box.host.run(
        f"{debian_driver.APT} purge linux-image-{newer} linux-headers-{newer}; apt-mark hold linux-image-amd64"
    )
    card_faults.boot_with(box.host, older)
    box.host.reboot()
    verdicts = check_verdicts(box.inventory)
    assert (verdicts["N09"], verdicts["N10"], verdicts["B03"]) == ("ok", "ok", "ok")
    assert "does not build" not in box.deploy()
    assert box.loaded == box.module(older)
