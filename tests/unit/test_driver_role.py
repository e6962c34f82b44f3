"""The driver's operations on a host that is a shell of this machine: refusals, actions, kept files and requests."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from roles.operations.drivers import (
    INSTALL,
    LOOK,
    _hold_and_record,
    _hold_driver,
    _install_driver,
    _plan_installation,
)
from roles.operations.reconnecting_shell import HostLost
from tests.unit.driver_operations_host import DriverOperationsHost, capture_output, recorded_commands
from tests.unit.driver_samples import C3090, driver_rig
from tests.unit.managed_driver_samples import (
    CONVERGED_HOST,
    KERNEL,
    LOCKED,
    NAMES,
    NEW,
    NEXT,
    OLD,
    UBUNTU_HOST,
    driver_target,
    managed_host,
    managed_rig,
    with_versions,
)


@pytest.fixture
def output_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    return capture_output(monkeypatch, tmp_path)


def test_a_transaction_that_is_objected_to_does_not_happen(output_lines: list[str], tmp_path: Path) -> None:
    one = DriverOperationsHost(tmp_path, LOCKED, managed_host())
    one.says.append("Remv theirs [1.0]")
    assert _install_driver(one) is False
    assert one.units == [LOOK]
    assert output_lines[0].startswith("[box] refused: apt would remove theirs")
    assert not Path(one.store).exists()


def test_a_driver_is_looked_at_installed_held_and_written_down(output_lines: list[str], tmp_path: Path) -> None:
    one = DriverOperationsHost(
        tmp_path, LOCKED, managed_host(), replace(CONVERGED_HOST, held=frozenset({"theirs"})), CONVERGED_HOST
    )
    assert _install_driver(one) is True
    assert (one.units, output_lines) == ([LOOK, INSTALL], [])
    script = one.jobs_run[1][1]
    for name in NAMES:
        assert f"{name}={NEW}-1" in script
        assert script.count(f'"$work"/{name}_*.deb') == 1
    assert f"{one.store}/{NEW}" in script
    assert f"for kernel in {KERNEL} {NEXT}; do" in script
    assert f"\nnewest={NEXT}\n" in script
    # packages that were there are not ours
    assert "printf 'package" not in script
    assert Path(one.store, "held").read_text().split() == sorted(NAMES)
    assert Path(one.store, "installed").read_text().splitlines() == [f"{name} {NEW}-1" for name in sorted(NAMES)]
    assert recorded_commands(tmp_path) == [f"apt-mark hold {' '.join(sorted(NAMES))}"]


def test_holds_of_the_operator_are_not_ours_and_unneeded_ones_of_ours_are_released(output_lines, tmp_path):
    before = replace(CONVERGED_HOST, recorded=(), held=frozenset({"libcuda1"}))
    one = DriverOperationsHost(tmp_path, LOCKED, before, CONVERGED_HOST)
    Path(one.store).mkdir(parents=True)
    Path(one.store, "held").write_text("linux-image-generic\n")
    assert _install_driver(one) is True
    ours = sorted(set(NAMES) - {"libcuda1"})
    assert Path(one.store, "held").read_text().split() == ours
    assert recorded_commands(tmp_path) == ["apt-mark unhold linux-image-generic", f"apt-mark hold {' '.join(ours)}"]


def test_a_line_of_the_file_of_holds_is_a_package_or_refused(output_lines: list[str], tmp_path: Path) -> None:
    one = DriverOperationsHost(tmp_path, LOCKED, replace(CONVERGED_HOST, recorded=()), CONVERGED_HOST)
    Path(one.store).mkdir(parents=True)
    Path(one.store, "held").write_text("--file=/tmp/x\n")
    with pytest.raises((HostLost, ValueError), match="'held'"):
        _install_driver(one)
    assert recorded_commands(tmp_path) == []


def test_a_hold_that_is_gone_is_put_back_without_apt_get(output_lines: list[str], tmp_path: Path) -> None:
    loose = replace(CONVERGED_HOST, held=CONVERGED_HOST.held - {"libcuda1"})
    one = DriverOperationsHost(tmp_path, LOCKED, loose, CONVERGED_HOST)
    assert _hold_driver(one) is True
    assert (one.jobs_run, recorded_commands(tmp_path)) == ([], ["apt-mark hold libcuda1"])
    assert _hold_driver(DriverOperationsHost(tmp_path, LOCKED, loose)) is False
    assert output_lines == ["[box] the driver is incomplete: libcuda1 is not held"]


def installation_script(one: DriverOperationsHost, facts: DriverFacts) -> str | None:
    """The installing job's script."""
    found = _plan_installation(one, facts)
    return None if found is None else found[0]


def test_packages_that_were_not_there_are_ours(output_lines: list[str], tmp_path: Path) -> None:
    one = DriverOperationsHost(tmp_path, LOCKED, managed_host())
    one.says.append("Inst dkms (3.2.2-1 Debian:13/trixie [all])")
    script = installation_script(one, managed_host())
    assert script is not None
    assert "printf 'package %s\\n' dkms >>" in script


@pytest.mark.parametrize("unit", [LOOK, INSTALL])
def test_a_job_that_fails_ends_it(output_lines: list[str], tmp_path: Path, unit: str) -> None:
    one = DriverOperationsHost(tmp_path, LOCKED, managed_host())
    one.fails = unit
    assert _install_driver(one) is False
    assert (one.units[-1], recorded_commands(tmp_path)) == (unit, [])


def test_work_of_an_earlier_run_is_watched_first(output_lines, tmp_path, monkeypatch):
    monkeypatch.setenv("ACTIVE", "active")
    one = DriverOperationsHost(tmp_path, LOCKED, CONVERGED_HOST)
    assert _install_driver(one) is True
    assert one.jobs_run == [(INSTALL, "")]
    one.fails = INSTALL
    assert _install_driver(one) is False


def test_a_host_that_is_still_not_whole_says_what_it_lacks(output_lines: list[str], tmp_path: Path) -> None:
    one = DriverOperationsHost(
        tmp_path, LOCKED, managed_host(), replace(CONVERGED_HOST, kernel_modules=((KERNEL, NEW), (NEXT, "")))
    )
    assert _install_driver(one) is False
    assert output_lines == [f"[box] the driver is incomplete: kernel {NEXT} has no module, {NEW} is required"]


def test_an_installed_foreign_driver_is_held_and_recorded_without_apt(output_lines, tmp_path):
    facts = replace(CONVERGED_HOST, recorded=())
    one = DriverOperationsHost(tmp_path, driver_target(managed_rig(), facts), facts)
    assert _install_driver(one) is True
    assert one.jobs_run == []
    assert Path(one.store, "installed").read_text().count("\n") == len(NAMES)


def test_modules_alone_need_no_apt(output_lines: list[str], tmp_path: Path) -> None:
    facts = replace(CONVERGED_HOST, kernel_modules=((KERNEL, NEW), (NEXT, "")))
    one = DriverOperationsHost(tmp_path, LOCKED, facts)
    script = installation_script(one, facts)
    assert one.jobs_run == []
    assert script is not None
    assert "dkms autoinstall" in script
    assert "==> installing the driver" not in script


def test_an_upgrade_that_finds_nothing_newer_installs_nothing(output_lines: list[str], tmp_path: Path) -> None:
    newest = replace(driver_target(managed_rig(), CONVERGED_HOST), newest=True)
    one = DriverOperationsHost(tmp_path, newest, CONVERGED_HOST)
    one.says = ["archive"]
    assert _install_driver(one) is True
    assert one.units == [LOOK]


def test_packages_that_the_archive_has_dropped_come_from_kept_files(output_lines: list[str], tmp_path: Path) -> None:
    kept = replace(managed_host(), kept=(NEW, "580.159.03"))
    one = DriverOperationsHost(tmp_path, LOCKED, kept)
    one.says[0] = "kept"
    script = installation_script(one, kept)
    assert script is not None
    assert f"install {one.store}/{NEW}/*.deb\n" in script
    assert output_lines == [f"[box] the archive has dropped {NEW}: using stored files"]
    assert f"cd {one.store}/{NEW} && sha256sum" in one.jobs_run[0][1]
    # and only files of the driver that is wanted
    other_kept = DriverOperationsHost(tmp_path, LOCKED, replace(managed_host(), kept=(OLD,)))
    installation_script(other_kept, replace(managed_host(), kept=(OLD,)))
    assert "sha256sum --quiet" not in other_kept.jobs_run[0][1]


def test_files_are_kept_of_a_whole_driver_alone(output_lines: list[str], tmp_path: Path) -> None:
    """Of a part there is no way back: its missing parts would be removed."""
    one = DriverOperationsHost(tmp_path, LOCKED, managed_host())
    assert "sha256sum -- *.deb > SHA256SUMS" in str(installation_script(one, managed_host()))
    # one package that an operator had removed; the others are there already
    alone = with_versions(CONVERGED_HOST, nvidia_persistenced="")
    part = DriverOperationsHost(tmp_path, driver_target(managed_rig(), alone), alone)
    part.says = ["archive", f"Inst nvidia-persistenced ({NEW}-1 NVIDIA CUDA [amd64])"]
    script = str(installation_script(part, alone))
    assert "installing the driver" in script
    assert "> SHA256SUMS" not in script
    # where it is kept already it counts as the last one used
    assert 'touch "$kept"' in script


def ubuntus(*kernels: str) -> DriverFacts:
    """A host with Ubuntu's own driver, and modules for these kernels."""
    modules = (
        InstalledPackage(f"linux-modules-nvidia-580-server-open-{kernel}", "6.8.0-40.40+1") for kernel in kernels
    )
    return replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, *modules))


@pytest.mark.parametrize(
    ("kernel", "how", "upgrading", "asked_for", "installed"),
    [
        ("6.8.0-40-generic", "archive", True, False, False),
        ("6.8.0-40-generic", "kernel", True, False, True),
        ("6.8.0-45-generic", "archive", True, True, True),
        ("6.8.0-45-generic", "archive", False, False, False),
    ],
    ids=["it stays", "it comes", "an earlier run has left it behind", "and this is no upgrade"],
)
def test_a_kernel_that_moves_brings_its_metapackage(
    output_lines: list[str], tmp_path: Path, kernel: str, how: str, upgrading: bool, asked_for: bool, installed: bool
) -> None:
    facts = replace(ubuntus(kernel), half=("nvidia-utils-580-server",))
    one = DriverOperationsHost(tmp_path, driver_target(driver_rig(C3090, managed=True), facts, upgrading), facts)
    one.says = [how, "Inst nvidia-utils-580-server [1] (580.178.04-0ubuntu0.24.04.1 Ubuntu [amd64])"]
    script = installation_script(one, facts)
    assert script is not None
    simulated = next(line for line in one.jobs_run[0][1].splitlines() if line.startswith("said=$(simulate"))
    assert simulated.count(" linux-image-generic") == int(asked_for)
    line = next(line for line in script.splitlines() if "force-confold" in line)
    assert line.count(" linux-image-generic") == int(installed)


@pytest.mark.parametrize("there_", [True, False], ids=["there", "not there"])
def test_headers_come_first_where_they_are_not_there(output_lines: list[str], tmp_path: Path, there_: bool) -> None:
    wanted = replace(LOCKED, plan=replace(LOCKED.plan, before=("linux-headers-amd64",)))
    facts = managed_host() if there_ else replace(managed_host(), headers=frozenset())
    one = DriverOperationsHost(tmp_path, wanted, facts)
    installation_script(one, facts)
    assert ("headers linux-headers-amd64" in one.jobs_run[0][1]) is not there_


def folders(store: Path, *names: str) -> None:
    """Folders that were made in this order."""
    for number, name in enumerate(names, 1):
        (store / name).mkdir(parents=True)
        (store / name / "SHA256SUMS").touch()
        os.utime(store / name, (number, number))


@pytest.mark.parametrize(
    ("there_", "left"),
    [
        (("a",), {"a"}),
        (("a", "b"), {"a", "b"}),
        (("a", "b", "c"), {"b", "c"}),
        (("c", "b", "a"), {"a", "b"}),
        (("a", "fetched.x8Zq2p", "b"), {"a", "b"}),
        (("a", "b", "c.new", "fetched.1"), {"a", "b"}),
        ((), set()),
    ],
    ids=["one", "two", "three", "by age, not by name", "what a job has left", "what it was keeping", "none"],
)
def test_two_drivers_are_kept_the_one_before_among_them(output_lines, tmp_path, there_, left):
    one = DriverOperationsHost(tmp_path, LOCKED, CONVERGED_HOST)
    folders(Path(one.store), *there_)
    _hold_and_record(one, CONVERGED_HOST)
    assert {path.name for path in Path(one.store).iterdir()} == left | {"held", "installed"}


def test_headers_that_are_missing_do_not_move_the_driver(output_lines: list[str], tmp_path: Path) -> None:
    """apt-get would take a name without a version for the newest one."""
    facts = replace(managed_host(OLD, recorded=OLD), headers=frozenset(), held=frozenset())
    one = DriverOperationsHost(tmp_path, driver_target(managed_rig(), facts), facts)
    one.says = ["archive"]
    script = installation_script(one, facts)
    look = one.jobs_run[0][1]
    assert "headers linux-headers-amd64" in look
    assert "dkms autoinstall" in str(script)
    for text in (look, str(script)):
        assert not re.search(r"(simulate|install) .*\blibcuda1\b", text)
