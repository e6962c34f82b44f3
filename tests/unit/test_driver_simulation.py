"""apt's own plan is read as it prints it, and nothing surprising is let through."""

from dataclasses import replace

import pytest

from rigwright.nvidia.packages.driver_target import (
    DriverTarget,
    find_driver_transaction_problems,
    parse_driver_simulation,
    plan_driver_target,
    read_driver_simulation,
)
from tests.unit.apt_simulation import simulation_lines
from tests.unit.channel_records import channel_lines
from tests.unit.driver_samples import C3090, driver_rig, driverless_host, make_driver_plan
from tests.unit.managed_driver_samples import LOCKED, NEW, OLD

# Printed by apt 2.6.1 of Debian 12 and 3.0.3 of Debian 13 over archives that stand in for the real ones; shortened
PLAIN = """\
NOTE: This is only a simulation!
Reading package lists...
Building dependency tree...
The following additional packages will be installed:
  dkms libcuda1
The following NEW packages will be installed:
  dkms libcuda1 nvidia-driver-cuda
0 upgraded, 3 newly installed, 0 to remove and 0 not upgraded.
Inst dkms (3.2.2-1 Debian:13/trixie [all])
Inst libcuda1 (595.71.05-1 NVIDIA CUDA:localhost [amd64])
Inst nvidia-driver-cuda (595.71.05-1 NVIDIA CUDA:localhost [amd64])
Conf dkms (3.2.2-1 Debian:13/trixie [all])
Conf libcuda1 (595.71.05-1 NVIDIA CUDA:localhost [amd64])
Conf nvidia-driver-cuda (595.71.05-1 NVIDIA CUDA:localhost [amd64])"""
UPGRADE = """\
The following packages will be upgraded:
  libcuda1 nvidia-driver-cuda
2 upgraded, 0 newly installed, 0 to remove and 1 not upgraded.
Inst nvidia-driver-cuda [595.58.03-1] (595.71.05-1 NVIDIA CUDA:localhost [amd64]) []
Inst libcuda1 [595.58.03-1] (595.71.05-1 NVIDIA CUDA:localhost, local-deb [amd64]) [nvidia-driver-cuda:amd64 ]
Conf libcuda1 (595.71.05-1 NVIDIA CUDA:localhost [amd64])"""
DOWNGRADE = """\
The following packages will be DOWNGRADED:
  libcuda1
0 upgraded, 0 newly installed, 1 downgraded, 0 to remove and 1 not upgraded.
Inst libcuda1 [595.71.05-1] (595.58.03-1 NVIDIA CUDA:localhost [amd64]) []"""
REMOVAL = """\
The following packages will be REMOVED:
  nvidia-kernel-open-dkms theirs
Remv theirs [1.0]
Remv nvidia-kernel-open-dkms:amd64 [595.71.05-1] [nvidia-driver-cuda:amd64 ]
Inst nvidia-kernel-dkms (595.71.05-1 NVIDIA CUDA:localhost [amd64])"""
PURGE = "Purg theirs [1.0]\nPurg nvidia-smi:i386 [535.247.01-1~deb12u1]"
KEPT = "Inst libcuda1 [595.71.05-1] (595.58.03-1 local-deb [amd64])"
UBUNTU = """\
Inst libnvidia-compute-580-server (580.159.03-0ubuntu0.24.04.1 Ubuntu:24.04/noble, Ubuntu:24.04/noble-security [amd64])
Inst libnvidia-compute-580-server:i386 (580.159.03-0ubuntu0.24.04.1 Ubuntu:24.04/noble-updates [i386])
Inst linux-modules-nvidia-580-server-open-generic (6.8.0-40.40+1 Ubuntu:24.04/noble [amd64])"""
# Seen where a package is at a version on which others depend
CLASSIC = """\
Some packages could not be installed. This may mean that you have
requested an impossible situation or if you are using the unstable
distribution that some required packages have not yet been created
or been moved out of Incoming.
The following information may help to resolve the situation:

The following packages have unmet dependencies:
 nvidia-driver-cuda : Depends: libcuda1 (= 595.58.03-1) but 595.71.05-1 is to be installed
                      Depends: libnvidia-ml1 (= 595.58.03-1) but 595.71.05-1 is to be installed
E: Unable to correct problems, you have held broken packages."""
SOLVER = """\
Solving dependencies...
E: The following information from --solver 3.0 may provide additional context:
   Unable to satisfy dependencies. Reached two conflicting decisions:
   1. libcuda1:amd64=595.58.03-1 is not selected for install
   2. libcuda1:amd64=595.58.03-1 is selected for install because:
      1. nvidia-driver-cuda:amd64=595.58.03-1 is selected for install
      2. nvidia-driver-cuda:amd64=595.58.03-1 Depends libcuda1 (= 595.58.03-1)
"""

Rows = tuple[tuple[str, str, str], ...]
# text -> (name, before, after) of what comes, what goes, complaints
PRINTED: dict[str, tuple[str, Rows, tuple[str, ...], tuple[str, ...]]] = {
    "nothing": ("0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.", (), (), ()),
    "an installation": (
        PLAIN,
        (("dkms", "", "3.2.2-1"), ("libcuda1", "", "595.71.05-1"), ("nvidia-driver-cuda", "", "595.71.05-1")),
        (),
        (),
    ),
    "an upgrade": (
        UPGRADE,
        (("nvidia-driver-cuda", "595.58.03-1", "595.71.05-1"), ("libcuda1", "595.58.03-1", "595.71.05-1")),
        (),
        (),
    ),
    "a downgrade": (DOWNGRADE, (("libcuda1", "595.71.05-1", "595.58.03-1"),), (), ()),
    "removals": (REMOVAL, (("nvidia-kernel-dkms", "", "595.71.05-1"),), ("theirs", "nvidia-kernel-open-dkms"), ()),
    "removals where apt purges": (PURGE, (), ("theirs", "nvidia-smi"), ()),
    "a file": (KEPT, (("libcuda1", "595.71.05-1", "595.58.03-1"),), (), ()),
    "several archives and architectures": (
        UBUNTU,
        (
            ("libnvidia-compute-580-server", "", "580.159.03-0ubuntu0.24.04.1"),
            ("libnvidia-compute-580-server", "", "580.159.03-0ubuntu0.24.04.1"),
            ("linux-modules-nvidia-580-server-open-generic", "", "6.8.0-40.40+1"),
        ),
        (),
        (),
    ),
    "no way": (CLASSIC, (), (), ("Unable to correct problems, you have held broken packages.",)),
    "no such package": ("E: Unable to locate package no-such", (), (), ("Unable to locate package no-such",)),
    "a solver's reasons": (
        f"{CLASSIC}\n{SOLVER}",
        (),
        (),
        (
            "Unable to correct problems, you have held broken packages.",
            "The following information from --solver 3.0 may provide additional context: Unable to satisfy "
            "dependencies. Reached two conflicting decisions: 1. libcuda1:amd64=595.58.03-1 is not selected for "
            "install 2. libcuda1:amd64=595.58.03-1 is selected for install because: 1. "
            "nvidia-driver-cuda:amd64=595.58.03-1 is selected for install 2. nvidia-driver-cuda:amd64=595.58.03-1 "
            "Depends libcuda1 (= 595.58.03-1)",
        ),
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_apt_would_do(name: str) -> None:
    text, installed, removed, complaints = PRINTED[name]
    found = parse_driver_simulation(simulation_lines(text.splitlines()))
    assert (found.installed, found.removed, found.complaints) == (installed, removed, complaints)


def test_the_drivers_packages_are_distinguished_from_what_comes_along() -> None:
    lines = [
        *PLAIN.splitlines(),
        "Inst nvidia-modprobe (595.71.05-1 NVIDIA CUDA:localhost [amd64])",
        "Inst nvidia-settings (510.47.03-0ubuntu4 Ubuntu:24.04/noble [amd64])",
        "Inst nvidia-container-toolkit (1.20.0-1 NVIDIA [amd64])",
        "Inst cuda-drivers-595 (595.71.05-1 NVIDIA CUDA:localhost [amd64])",
        "Inst theirs (595.71.05-1 Debian [amd64])",
    ]
    found = [(one.name, one.version) for one in parse_driver_simulation(simulation_lines(lines)).drivers]
    assert found == [
        (name, "595.71.05-1") for name in ("libcuda1", "nvidia-driver-cuda", "nvidia-modprobe", "cuda-drivers-595")
    ]
    assert parse_driver_simulation(simulation_lines(lines[:1])).drivers == ()


def parse_line(line: str) -> list[str]:
    return find_driver_transaction_problems(parse_driver_simulation(simulation_lines(line.splitlines())), LOCKED)


REPLACES = replace(LOCKED, plan=replace(LOCKED.plan, removed=("nvidia-kernel-open-dkms",)))
OF_THE_LOCK = PLAIN, UPGRADE, "Inst nvidia-kernel-dkms (595.71.05-1 NVIDIA [amd64])"


@pytest.mark.parametrize("text", [*OF_THE_LOCK, "", "Inst dkms (1 Debian [all])", "Inst nvidia-settings (510.1.2-1 X)"])
def test_requested_changes_may_happen(text: str) -> None:
    assert parse_line(text) == []


ELSE = "it is a transitional package, or an archive dropped the locked one; see `apt-cache policy`"
OBJECTIONS: dict[str, tuple[str, list[str]]] = {
    "no way": (
        f"{PLAIN}\n{CLASSIC}",
        ["apt cannot resolve it: Unable to correct problems, you have held broken packages."],
    ),
    "several reasons": ("E: one\nE: two", ["apt cannot resolve it: one; two"]),
    "a surplus removal": (
        REMOVAL,
        [
            "apt would remove theirs, nvidia-kernel-open-dkms: remove or update them yourself if you do not need them, "
            "then re-run deploy"
        ],
    ),
    "a removal where apt purges": (PURGE, ["apt would remove theirs, nvidia-smi: remove or update"]),
    "another version": (DOWNGRADE, [f"libcuda1 would be installed as {OLD} instead of {NEW}: {ELSE}"]),
    "a package that the lock has not": (
        "Inst libnvidia-ml1 (595.71.05-1 NVIDIA [amd64])",
        ["libnvidia-ml1 595.71.05-1 is not in the lock: run `rigwright lock --refresh`"],
    ),
    "all at once": (
        f"{DOWNGRADE}\nInst libnvidia-ml1 (595.71.05-1 NVIDIA [amd64])\nRemv theirs [1.0]",
        ["apt would remove theirs", "libcuda1 would be i", "libnvidia-ml1 595.71.05-1 is not in the lock"],
    ),
}


@pytest.mark.parametrize("name", OBJECTIONS)
def test_it_is_objected_to(name: str) -> None:
    text, expected = OBJECTIONS[name]
    found = parse_line(text)
    assert [reason[: len(begin)] for reason, begin in zip(found, expected, strict=True)] == expected


def test_a_removal_that_the_plan_says_is_no_surplus() -> None:
    assert (
        find_driver_transaction_problems(
            parse_driver_simulation(simulation_lines(["Remv nvidia-kernel-open-dkms [595.71.05-1]"])), REPLACES
        )
        == []
    )
    (reason,) = find_driver_transaction_problems(
        parse_driver_simulation(simulation_lines(REMOVAL.splitlines())), REPLACES
    )
    assert reason.startswith("apt would remove theirs:")


def unlocked() -> DriverTarget:
    facts = driverless_host("ubuntu-24.04", "10de:2204")
    return plan_driver_target(make_driver_plan(driver_rig(C3090, managed=True), facts), facts, None)


@pytest.mark.parametrize(
    ("version", "objected"), [("580.159.03", False), ("580.178.04", False), ("595.71.05", True), ("570.211.01", True)]
)
def test_a_name_that_hides_another_branch_is_not_followed(version: str, objected: bool) -> None:
    line = f"Inst nvidia-utils-580-server ({version}-0ubuntu0.24.04.1 Ubuntu:24.04/noble [amd64])"
    found = find_driver_transaction_problems(parse_driver_simulation(simulation_lines([line])), unlocked())
    branch = version.partition(".")[0]
    begin = f"nvidia-utils-580-server would be installed as {version} of branch {branch} instead of 580: it is"
    assert [reason.startswith(begin) for reason in found] == [True] * objected


def test_without_a_lock_no_package_is_missing_from_it() -> None:
    assert (
        find_driver_transaction_problems(parse_driver_simulation(simulation_lines(UBUNTU.splitlines())), unlocked())
        == []
    )


def test_where_the_wanted_driver_is_gone_those_that_are_there_whole_are_named() -> None:
    one = DriverTarget(
        make_driver_plan(driver_rig(C3090), driverless_host()),
        "595.58.03",
        ("a", "b"),
        {"a": "595.58.03-1", "b": "595.58.03-1"},
    )
    said = ["E: Version '595.58.03-1' for 'a' was not found"]
    older = [("a", "595.45.04-1"), ("b", "595.45.04-1"), ("b", "550.9-1")]
    (reason,) = find_driver_transaction_problems(parse_driver_simulation(simulation_lines(said), older), one)
    assert reason.startswith("595.58.03 is not available: the archive has 595.45.04; set one of those in catalog/")
    for there in ([("a", "595.58.03-1"), ("b", "595.58.03-1")], [], [("a", "595.45.04-1")]):
        (reason,) = find_driver_transaction_problems(parse_driver_simulation(simulation_lines(said), there), one)
        assert reason.startswith("apt cannot resolve it: Version '595.58.03-1'")


KERNEL = "6.8.0-45-generic"
MODULES = f"Inst linux-modules-nvidia-580-server-open-{KERNEL} (6.8.0-45.45+1 Ubuntu:24.04/noble [amd64])"


@pytest.mark.parametrize("image", ["linux-image-", "linux-image-unsigned-"])
@pytest.mark.parametrize(
    ("lines", "objected"),
    [([], True), ([MODULES], False), ([MODULES.replace("-45-", "-44-")], True)],
    ids=["no modules", "modules", "another kernel's"],
)
def test_a_kernel_does_not_come_without_modules(image: str, lines: list[str], objected: bool) -> None:
    kernel = f"Inst {image}{KERNEL} (6.8.0-45.45 Ubuntu:24.04/noble [amd64])"
    found = find_driver_transaction_problems(parse_driver_simulation(simulation_lines([kernel, *lines])), unlocked())
    why = f"linux-image-generic would bring kernel {KERNEL}, for which the archive has no modules yet: try again"
    assert [reason.startswith(why) for reason in found] == [True] * objected
    # where the host builds modules, that is seen when it has
    assert find_driver_transaction_problems(parse_driver_simulation(simulation_lines([kernel])), LOCKED) == []


@pytest.mark.parametrize(
    ("records", "refused"),
    [
        ((("how", "magic"), ("said", "")), "one of archive, kernel, kept"),
        ((("how", "kept"),), "'said'"),
        ((("how", "kept"), ("said", ""), ("offered", "a;reboot", "1")), "a word"),
        ((("how", "kept"), ("said", ""), ("offered", "a")), "offered"),
    ],
)
def test_output_of_the_looking_job_is_typed(records: tuple[tuple[str, ...], ...], refused: str) -> None:
    with pytest.raises(ValueError, match=refused):
        read_driver_simulation(channel_lines(*records))


def test_output_of_the_looking_job_is_read_whole() -> None:
    how, seen = read_driver_simulation(
        channel_lines(("how", "kept"), ("said", "E: no\n   way\nRemv b [1]"), ("offered", "a", "1:2~3+4"))
    )
    assert (how, seen.complaints, seen.removed, seen.offered) == ("kept", ("no way",), ("b",), (("a", "1:2~3+4"),))
