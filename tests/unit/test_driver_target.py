"""The driver that a deploy, an upgrade and a rollback bring."""

from dataclasses import replace

import pytest

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.packages.driver_target import (
    describe_unloaded,
    find_missing_driver_parts,
    find_previous_driver,
    find_unheld_driver_packages,
    needs_transaction,
    plan_driver_rollback,
)
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from tests.unit.driver_samples import (
    C3090,
    SERVER,
    UBUNTU,
    debian_packages,
    driver_deb,
    driver_rig,
    driverless_host,
    installed_facts,
    make_driver_plan,
)
from tests.unit.managed_driver_samples import (
    CONVERGED_HOST,
    KERNEL,
    NAMES,
    NEW,
    OLD,
    OTHER,
    UBUNTU_HOST,
    driver_target,
    managed_host,
    managed_rig,
    with_versions,
)
from tests.unit.samples import changed_rig

BARE = driverless_host("debian-13", "10de:2204", kernel_modules=((KERNEL, ""),))
EXACT = dict.fromkeys(NAMES, f"{NEW}-1")
# rig, host, upgrading -> action, version, exact, removed
ROWS: dict[str, tuple[Rig, DriverFacts, bool, tuple[str, str, dict[str, str], tuple[str, ...]]]] = {
    "a bare host gets the locked version": (
        managed_rig(),
        BARE,
        False,
        ("install", NEW, dict.fromkeys(debian_packages(), f"{NEW}-1"), ()),
    ),
    "a driver that hangs together stays, whatever the lock has": (
        managed_rig(),
        managed_host(),
        False,
        ("adopt", "", {}, ()),
    ),
    "a driver that was never ours stays too": (
        managed_rig(),
        replace(managed_host(), recorded=()),
        False,
        ("adopt", "", {}, ()),
    ),
    "an upgrade moves all that is there to the locked version": (
        managed_rig(),
        managed_host(),
        True,
        ("adopt", NEW, EXACT, ()),
    ),
    "an upgrade takes what the new driver has no more": (
        managed_rig(NEW, *(name for name in NAMES if name != "firmware-nvidia-gsp")),
        managed_host(),
        True,
        ("adopt", NEW, {n: v for n, v in EXACT.items() if n != "firmware-nvidia-gsp"}, ("firmware-nvidia-gsp",)),
    ),
    "an upgrade goes to the locked branch, in place where names have none": (
        managed_rig(OTHER),
        managed_host(),
        True,
        ("migrate", OTHER, dict.fromkeys(NAMES, f"{OTHER}-1"), ()),
    ),
    "a deploy stays at its branch, whatever the lock has": (
        managed_rig(OTHER),
        managed_host(),
        False,
        ("adopt", "", {}, ()),
    ),
    "a key that requires the locked branch brings it": (
        managed_rig(OTHER, branch=610),
        managed_host(),
        False,
        ("migrate", OTHER, dict.fromkeys(NAMES, f"{OTHER}-1"), ()),
    ),
    "another flavour takes the modules of the one before": (
        managed_rig(NEW, flavour="proprietary"),
        managed_host(NEW),
        False,
        (
            "migrate",
            NEW,
            dict.fromkeys(("firmware-nvidia-gsp", "libcuda1", *debian_packages("")), f"{NEW}-1"),
            ("nvidia-kernel-open-dkms",),
        ),
    ),
    "a package that has moved away from lock and record is brought back": (
        managed_rig(OLD),
        with_versions(managed_host(), libcuda1=NEW),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a driver that has moved as a whole from lock and record is brought back": (
        managed_rig(OLD),
        managed_host(NEW, recorded=OLD),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a driver that was moved to where the lock has not been deployed yet stays": (
        managed_rig(NEW),
        managed_host(NEW, recorded=OLD),
        False,
        ("adopt", "", {}, ()),
    ),
    "a package that was removed from what lock and record agree on is brought back": (
        managed_rig(OLD),
        with_versions(managed_host(), nvidia_persistenced=""),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "the library itself is brought back, though no package then says which driver is there": (
        managed_rig(OLD),
        with_versions(managed_host(), libcuda1=""),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a mixture is brought back to our record where the lock has gone on": (
        managed_rig(NEW),
        with_versions(managed_host(), libcuda1=NEW),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a mixture of a driver that was never ours is nobody's to choose": (
        managed_rig(OTHER),
        replace(with_versions(managed_host(), libcuda1=NEW), recorded=()),
        False,
        ("adopt", "", {}, ()),
    ),
    "tools that count as the driver does move with it": (
        managed_rig(),
        with_versions(managed_host(), nvidia_modprobe=OLD),
        True,
        ("adopt", NEW, EXACT | {"nvidia-modprobe": f"{NEW}-1"}, ()),
    ),
    "tools that count for themselves stay": (
        managed_rig(NEW, *NAMES),
        replace(
            managed_host(),
            packages=(*managed_host().packages, InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4", "Debian")),
        ),
        True,
        ("adopt", NEW, EXACT, ()),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_files_that_a_run_brings(name: str) -> None:
    one, facts, upgrading, expected = ROWS[name]
    found = driver_target(one, facts, upgrading)
    assert (found.plan.action, found.version, dict(found.exact), found.plan.removed) == expected
    exact = find_locked_driver(one.driver_supply, facts.system)
    assert exact
    rows = exact.packages.items() if found.version == exact.version else ()
    assert found.hashes == {name: row.sha256 for name, row in rows}
    assert set(found.exact) <= set(found.packages)
    assert not set(found.packages) & set(found.plan.removed)
    if found.exact:
        assert needs_transaction(found, facts)


def test_a_record_is_of_the_driver_that_most_of_it_is_of() -> None:
    mixed = with_versions(managed_host(NEW), libcuda1=OLD)
    facts = replace(mixed, recorded=tuple((one.name, one.version) for one in mixed.packages))
    assert driver_target(managed_rig(OTHER), facts).version == NEW


def test_without_a_lock_an_upgrade_brings_the_newest_of_the_branch() -> None:
    one = driver_rig(C3090, managed=True)
    stays, moves = driver_target(one, UBUNTU_HOST), driver_target(one, UBUNTU_HOST, upgrading=True)
    assert set(stays.targets) == set(moves.targets) == set(SERVER)
    assert (stays.newest, moves.newest) == (False, True)
    assert (needs_transaction(stays, UBUNTU_HOST), needs_transaction(moves, UBUNTU_HOST)) == (False, True)
    assert find_missing_driver_parts(stays, UBUNTU_HOST) == []


def test_without_a_lock_what_we_installed_is_brought_back_by_name_and_a_mixture_by_version() -> None:
    one, name = driver_rig(C3090, managed=True), "nvidia-utils-580-server"
    lost = replace(UBUNTU_HOST, packages=tuple(one for one in UBUNTU_HOST.packages if one.name != name))
    assert find_missing_driver_parts(driver_target(one, lost), lost) == [f"{name} is not installed"]
    assert name in driver_target(one, lost).targets
    newer = InstalledPackage(name, "580.178.04-0ubuntu0.24.04.1", "Ubuntu")
    mixed = replace(lost, packages=(*lost.packages, newer))
    found = driver_target(one, mixed)
    assert (found.version, found.exact[name]) == ("580.159.03", UBUNTU)
    assert f"{name} is for 580.178.04, not 580.159.03" in find_missing_driver_parts(found, mixed)
    # the kernel's modules have versions of their own, and are brought back to those
    assert found.exact["linux-modules-nvidia-580-server-open-generic"] == "6.8.0-40.40+1"


@pytest.mark.parametrize("name", ["libnvidia-compute-580-server", "nvidia-utils-580-server"])
def test_without_a_lock_any_package_that_is_gone_is_lacking_and_its_driver_stays_what_it_was(name: str) -> None:
    one, whole = driver_rig(C3090, managed=True), UBUNTU_HOST
    lost = replace(whole, packages=tuple(one for one in whole.packages if one.name != name))
    found = driver_target(one, lost)
    assert (found.plan.action, found.plan.source, found.plan.pin) == (
        "adopt",
        "distribution",
        make_driver_plan(one, whole).pin,
    )
    assert (find_missing_driver_parts(found, lost), found.plan.removed) == ([f"{name} is not installed"], ())
    assert name in found.targets


def test_a_record_of_a_driver_of_which_nothing_is_left_brings_nothing_back() -> None:
    found = driver_target(managed_rig(NEW), replace(BARE, recorded=managed_host(OLD).recorded))
    assert (found.plan.action, found.version, set(found.packages)) == ("install", NEW, set(debian_packages()))


def test_a_driver_that_an_operator_moved_to_another_branch_does_not_need_the_earlier_packages() -> None:
    names = [name.replace("580", "595") for name in SERVER]
    moved = replace(UBUNTU_HOST, **installed_facts("Ubuntu", "595.71.05-0ubuntu0.24.04.1", *names))
    found = driver_target(driver_rig(C3090, managed=True), moved)
    assert (found.plan.action, sorted(found.packages), found.version) == ("adopt", sorted(names), "")


def test_prebuilt_modules_are_no_mixture() -> None:
    # some of them have a version that looks like a driver's
    odd = InstalledPackage("linux-modules-nvidia-580-server-open-6.8.0-40-generic", "600.1.2-1", "Ubuntu")
    facts = replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, odd))
    found = driver_target(driver_rig(C3090, managed=True), facts)
    assert (found.version, found.exact) == ("", {})
    assert not [line for line in find_missing_driver_parts(found, facts) if " is for " in line]


def test_firmware_that_has_its_version_in_its_name_stands_beside_that_of_another() -> None:
    firmware = {version: f"nvidia-firmware-580-server-{version}" for version in ("580.159.03", "580.178.04")}
    names = [one.name for one in UBUNTU_HOST.packages if one.driver]
    before = replace(
        UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, InstalledPackage(firmware["580.159.03"], UBUNTU, "Ubuntu"))
    )
    newer = "580.178.04-0ubuntu0.24.04.1"
    rows = tuple(driver_deb(name, newer) for name in (*names, firmware["580.178.04"]))
    one = changed_rig(driver_rig(C3090, managed=True), driver_packages={"ubuntu-24.04": rows})
    upgrade = driver_target(one, before, upgrading=True)
    assert (upgrade.version, upgrade.plan.removed, set(upgrade.exact)) == ("580.178.04", (), set(names))
    assert not [name for name in upgrade.packages if f"{name}-" in upgrade.targets]
    after = replace(
        UBUNTU_HOST,
        packages=(
            *(replace(one, version=newer) if one.driver else one for one in UBUNTU_HOST.packages),
            *(InstalledPackage(name, f"{version}-0ubuntu0.24.04.1", "Ubuntu") for version, name in firmware.items()),
        ),
        kernel_modules=(("6.8.0-40-generic", "580.178.04"),),
        held=UBUNTU_HOST.held | set(firmware.values()),
    )
    assert (find_missing_driver_parts(upgrade, after), find_unheld_driver_packages(upgrade, after)) == ([], [])
    assert find_missing_driver_parts(driver_target(driver_rig(C3090, managed=True), after), after) == []


def sums(version: str, *names: str) -> list[str]:
    return [f"{number:064x}  {name}_{version}-1_amd64.deb" for number, name in enumerate(names)]


def test_a_rollback_brings_every_package_of_which_a_file_is_kept() -> None:
    facts = with_versions(CONVERGED_HOST, libnvidia_ml1=NEW)
    found = plan_driver_rollback(
        make_driver_plan(managed_rig(), facts),
        facts,
        OLD,
        [*sums(OLD, *NAMES), f"{'f' * 64}  nvidia-modprobe_2%3a{OLD}-1_amd64.deb"],
    )
    assert found.version == OLD
    assert found.exact == {**dict.fromkeys(NAMES, f"{OLD}-1"), "nvidia-modprobe": f"2:{OLD}-1"}
    assert (found.hashes["libcuda1"], found.hashes["nvidia-modprobe"]) == (f"{1:064x}", "f" * 64)
    # packages that only the newer driver has go
    assert found.plan.removed == ("libnvidia-ml1",)
    assert set(found.packages) == set(found.exact)


def test_a_rollback_crosses_branches_and_flavours() -> None:
    now = managed_host(OTHER)
    found = plan_driver_rollback(
        make_driver_plan(managed_rig(OTHER), now), now, OLD, sums(OLD, "libcuda1", *debian_packages(""))
    )
    assert (found.plan.branch, found.plan.flavour) == (595, "proprietary")
    assert set(found.plan.removed) == {"firmware-nvidia-gsp", "nvidia-kernel-open-dkms"}
    loaded = managed_host(OLD, "libcuda1", *debian_packages(""), module_open=False)
    assert (find_missing_driver_parts(found, loaded), describe_unloaded(found, loaded)) == ([], "")


def test_a_rollback_from_a_driver_that_will_not_do_keeps_what_comes_back() -> None:
    now = managed_host(NEW)
    plan = make_driver_plan(managed_rig(OLD, flavour="proprietary"), now)
    assert plan.removed == ("nvidia-kernel-open-dkms",)
    found = plan_driver_rollback(plan, now, OLD, sums(OLD, *NAMES))
    assert found.plan.removed == ()
    assert not set(found.packages) & set(found.plan.removed)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (managed_host(NEW), OLD),
        (managed_host(OLD), NEW),
        # one that ended in the middle goes on, whichever driver the libraries are of
        (with_versions(managed_host(NEW), libcuda1=OLD), OLD),
        (with_versions(managed_host(NEW), nvidia_persistenced=OLD), OLD),
        # and from an upgrade that did
        (with_versions(managed_host(OLD), libcuda1=NEW), OLD),
        (with_versions(managed_host(OLD), nvidia_persistenced=NEW), OLD),
        # nor does one that waits for its reboot turn round
        (managed_host(OLD, module=NEW), OLD),
        (managed_host(NEW, module=OLD), OLD),
        # nor is one gone on with that came from a driver of which no files are kept
        (managed_host(NEW, module="590.48.01"), OLD),
        # moved by hand: whole, and a part
        (managed_host(OTHER, recorded=NEW), OLD),
        (with_versions(managed_host(NEW), libcuda1=OTHER), NEW),
    ],
)
def test_a_rollback_goes_to_the_driver_before(facts: DriverFacts, expected: str) -> None:
    assert find_previous_driver(replace(facts, kept=(OLD, NEW))) == expected


def test_without_kept_files_there_is_no_driver_before() -> None:
    assert (
        find_previous_driver(managed_host(NEW)) == find_previous_driver(replace(managed_host(NEW), kept=(NEW,))) == ""
    )
    # nor before the reboot into the first one that came from us
    assert find_previous_driver(managed_host(NEW, module=OLD, kept=(NEW,))) == ""
