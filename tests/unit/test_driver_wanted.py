"""What a deploy, an upgrade and a rollback bring of a driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.found import DriverFacts, Package
from rigwright.nvidia.packages.locked import locked
from rigwright.nvidia.packages.wanted import earlier, lacking, returned, transaction, unheld, unloaded
from tests.unit.driver_hosts import C3090, SERVER, UBUNTU, box, deb, debian, host, installed, made
from tests.unit.driver_ours import KERNEL, NAMES, NEW, OLD, OTHER, UBUNTU_HOST, WHOLE, asked, other, rig, there

BARE = host("debian-13", "10de:2204", kernel_modules=((KERNEL, ""),))
EXACT = dict.fromkeys(NAMES, f"{NEW}-1")
# rig, host, upgrading -> action, version, exact, removed
ROWS: dict[str, tuple[Rig, DriverFacts, bool, tuple[str, str, dict[str, str], tuple[str, ...]]]] = {
    "a bare host gets the locked version": (
        rig(),
        BARE,
        False,
        ("install", NEW, dict.fromkeys(debian(), f"{NEW}-1"), ()),
    ),
    "a driver that hangs together stays, whatever the lock has": (rig(), there(), False, ("adopt", "", {}, ())),
    "a driver that was never ours stays too": (rig(), replace(there(), recorded=()), False, ("adopt", "", {}, ())),
    "an upgrade moves all that is there to the locked version": (rig(), there(), True, ("adopt", NEW, EXACT, ())),
    "an upgrade takes what the new driver has no more": (
        rig(NEW, *(name for name in NAMES if name != "firmware-nvidia-gsp")),
        there(),
        True,
        ("adopt", NEW, {n: v for n, v in EXACT.items() if n != "firmware-nvidia-gsp"}, ("firmware-nvidia-gsp",)),
    ),
    "an upgrade goes to the locked branch, in place where names have none": (
        rig(OTHER),
        there(),
        True,
        ("migrate", OTHER, dict.fromkeys(NAMES, f"{OTHER}-1"), ()),
    ),
    "a deploy stays at its branch, whatever the lock has": (rig(OTHER), there(), False, ("adopt", "", {}, ())),
    "a key that requires the locked branch brings it": (
        rig(OTHER, branch=610),
        there(),
        False,
        ("migrate", OTHER, dict.fromkeys(NAMES, f"{OTHER}-1"), ()),
    ),
    "another flavour takes the modules of the one before": (
        rig(NEW, flavour="proprietary"),
        there(NEW),
        False,
        (
            "migrate",
            NEW,
            dict.fromkeys(("firmware-nvidia-gsp", "libcuda1", *debian("")), f"{NEW}-1"),
            ("nvidia-kernel-open-dkms",),
        ),
    ),
    "a package that has moved away from lock and record is brought back": (
        rig(OLD),
        other(there(), libcuda1=NEW),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a driver that has moved as a whole from lock and record is brought back": (
        rig(OLD),
        there(NEW, recorded=OLD),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a driver that was moved to where the lock has not been deployed yet stays": (
        rig(NEW),
        there(NEW, recorded=OLD),
        False,
        ("adopt", "", {}, ()),
    ),
    "a package that was removed from what lock and record agree on is brought back": (
        rig(OLD),
        other(there(), nvidia_persistenced=""),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "the library itself is brought back, though no package then says which driver is there": (
        rig(OLD),
        other(there(), libcuda1=""),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a mixture is brought back to our record where the lock has gone on": (
        rig(NEW),
        other(there(), libcuda1=NEW),
        False,
        ("adopt", OLD, dict.fromkeys(NAMES, f"{OLD}-1"), ()),
    ),
    "a mixture of a driver that was never ours is nobody's to choose": (
        rig(OTHER),
        replace(other(there(), libcuda1=NEW), recorded=()),
        False,
        ("adopt", "", {}, ()),
    ),
    "tools that count as the driver does move with it": (
        rig(),
        other(there(), nvidia_modprobe=OLD),
        True,
        ("adopt", NEW, EXACT | {"nvidia-modprobe": f"{NEW}-1"}, ()),
    ),
    "tools that count for themselves stay": (
        rig(NEW, *NAMES),
        replace(there(), packages=(*there().packages, Package("nvidia-settings", "510.47.03-0ubuntu4", "Debian"))),
        True,
        ("adopt", NEW, EXACT, ()),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_a_run_brings(name: str) -> None:
    one, facts, upgrading, expected = ROWS[name]
    found = asked(one, facts, upgrading)
    assert (found.plan.action, found.version, dict(found.exact), found.plan.removed) == expected
    exact = locked(one, facts.system)
    assert exact
    rows = exact.packages.items() if found.version == exact.version else ()
    assert found.hashes == {name: row.sha256 for name, row in rows}
    assert set(found.exact) <= set(found.packages)
    assert not set(found.packages) & set(found.plan.removed)
    if found.exact:
        assert transaction(found, facts)


def test_a_record_is_of_the_driver_that_most_of_it_is_of() -> None:
    mixed = other(there(NEW), libcuda1=OLD)
    facts = replace(mixed, recorded=tuple((one.name, one.version) for one in mixed.packages))
    assert asked(rig(OTHER), facts).version == NEW


def test_without_a_lock_an_upgrade_brings_the_newest_of_the_branch() -> None:
    one = box(C3090, managed=True)
    stays, moves = asked(one, UBUNTU_HOST), asked(one, UBUNTU_HOST, upgrading=True)
    assert set(stays.targets) == set(moves.targets) == set(SERVER)
    assert (stays.newest, moves.newest) == (False, True)
    assert (transaction(stays, UBUNTU_HOST), transaction(moves, UBUNTU_HOST)) == (False, True)
    assert lacking(stays, UBUNTU_HOST) == []


def test_without_a_lock_what_we_installed_is_brought_back_by_name_and_a_mixture_by_version() -> None:
    one, name = box(C3090, managed=True), "nvidia-utils-580-server"
    lost = replace(UBUNTU_HOST, packages=tuple(one for one in UBUNTU_HOST.packages if one.name != name))
    assert lacking(asked(one, lost), lost) == [f"{name} is not installed"]
    assert name in asked(one, lost).targets
    newer = Package(name, "580.178.04-0ubuntu0.24.04.1", "Ubuntu")
    mixed = replace(lost, packages=(*lost.packages, newer))
    found = asked(one, mixed)
    assert (found.version, found.exact[name]) == ("580.159.03", UBUNTU)
    assert f"{name} is for 580.178.04, not 580.159.03" in lacking(found, mixed)
    # the kernel's modules have versions of their own, and are brought back to those
    assert found.exact["linux-modules-nvidia-580-server-open-generic"] == "6.8.0-40.40+1"


@pytest.mark.parametrize("name", ["libnvidia-compute-580-server", "nvidia-utils-580-server"])
def test_without_a_lock_any_package_that_is_gone_is_lacking_and_its_driver_stays_what_it_was(name: str) -> None:
    one, whole = box(C3090, managed=True), UBUNTU_HOST
    lost = replace(whole, packages=tuple(one for one in whole.packages if one.name != name))
    found = asked(one, lost)
    assert (found.plan.action, found.plan.source, found.plan.pin) == ("adopt", "distribution", made(one, whole).pin)
    assert (lacking(found, lost), found.plan.removed) == ([f"{name} is not installed"], ())
    assert name in found.targets


def test_a_record_of_a_driver_of_which_nothing_is_left_brings_nothing_back() -> None:
    found = asked(rig(NEW), replace(BARE, recorded=there(OLD).recorded))
    assert (found.plan.action, found.version, set(found.packages)) == ("install", NEW, set(debian()))


def test_a_driver_that_somebody_has_moved_to_another_branch_does_not_need_what_the_one_before_had() -> None:
    names = [name.replace("580", "595") for name in SERVER]
    moved = replace(UBUNTU_HOST, **installed("Ubuntu", "595.71.05-0ubuntu0.24.04.1", *names))
    found = asked(box(C3090, managed=True), moved)
    assert (found.plan.action, sorted(found.packages), found.version) == ("adopt", sorted(names), "")


def test_prebuilt_modules_are_no_mixture() -> None:
    # some of them have a version that looks like a driver's
    odd = Package("linux-modules-nvidia-580-server-open-6.8.0-40-generic", "600.1.2-1", "Ubuntu")
    facts = replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, odd))
    found = asked(box(C3090, managed=True), facts)
    assert (found.version, found.exact) == ("", {})
    assert not [line for line in lacking(found, facts) if " is for " in line]


def test_firmware_that_has_its_version_in_its_name_stands_beside_that_of_another() -> None:
    firmware = {version: f"nvidia-firmware-580-server-{version}" for version in ("580.159.03", "580.178.04")}
    names = [one.name for one in UBUNTU_HOST.packages if one.driver]
    before = replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, Package(firmware["580.159.03"], UBUNTU, "Ubuntu")))
    newer = "580.178.04-0ubuntu0.24.04.1"
    rows = tuple(deb(name, newer) for name in (*names, firmware["580.178.04"]))
    one = replace(box(C3090, managed=True), driver_packages={"ubuntu-24.04": rows})
    upgrade = asked(one, before, upgrading=True)
    assert (upgrade.version, upgrade.plan.removed, set(upgrade.exact)) == ("580.178.04", (), set(names))
    assert not [name for name in upgrade.packages if f"{name}-" in upgrade.targets]
    after = replace(
        UBUNTU_HOST,
        packages=(
            *(replace(one, version=newer) if one.driver else one for one in UBUNTU_HOST.packages),
            *(Package(name, f"{version}-0ubuntu0.24.04.1", "Ubuntu") for version, name in firmware.items()),
        ),
        kernel_modules=(("6.8.0-40-generic", "580.178.04"),),
        held=UBUNTU_HOST.held | set(firmware.values()),
    )
    assert (lacking(upgrade, after), unheld(upgrade, after)) == ([], [])
    assert lacking(asked(box(C3090, managed=True), after), after) == []


def sums(version: str, *names: str) -> list[str]:
    return [f"{number:064x}  {name}_{version}-1_amd64.deb" for number, name in enumerate(names)]


def test_a_rollback_brings_every_package_of_which_a_file_is_kept() -> None:
    facts = other(WHOLE, libnvidia_ml1=NEW)
    found = returned(
        made(rig(), facts), facts, OLD, [*sums(OLD, *NAMES), f"{'f' * 64}  nvidia-modprobe_2%3a{OLD}-1_amd64.deb"]
    )
    assert found.version == OLD
    assert found.exact == {**dict.fromkeys(NAMES, f"{OLD}-1"), "nvidia-modprobe": f"2:{OLD}-1"}
    assert (found.hashes["libcuda1"], found.hashes["nvidia-modprobe"]) == (f"{1:064x}", "f" * 64)
    # what only the newer driver has goes
    assert found.plan.removed == ("libnvidia-ml1",)
    assert set(found.packages) == set(found.exact)


def test_a_rollback_crosses_branches_and_flavours() -> None:
    now = there(OTHER)
    found = returned(made(rig(OTHER), now), now, OLD, sums(OLD, "libcuda1", *debian("")))
    assert (found.plan.branch, found.plan.flavour) == (595, "proprietary")
    assert set(found.plan.removed) == {"firmware-nvidia-gsp", "nvidia-kernel-open-dkms"}
    loaded = there(OLD, "libcuda1", *debian(""), module_open=False)
    assert (lacking(found, loaded), unloaded(found, loaded)) == ([], "")


def test_a_rollback_from_a_driver_that_will_not_do_keeps_what_comes_back() -> None:
    now = there(NEW)
    plan = made(rig(OLD, flavour="proprietary"), now)
    assert plan.removed == ("nvidia-kernel-open-dkms",)
    found = returned(plan, now, OLD, sums(OLD, *NAMES))
    assert found.plan.removed == ()
    assert not set(found.packages) & set(found.plan.removed)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (there(NEW), OLD),
        (there(OLD), NEW),
        # one that ended in the middle goes on, whichever driver the libraries are of
        (other(there(NEW), libcuda1=OLD), OLD),
        (other(there(NEW), nvidia_persistenced=OLD), OLD),
        # and from an upgrade that did
        (other(there(OLD), libcuda1=NEW), OLD),
        (other(there(OLD), nvidia_persistenced=NEW), OLD),
        # nor does one that waits for its reboot turn round
        (there(OLD, module=NEW), OLD),
        (there(NEW, module=OLD), OLD),
        # nor is one gone on with that came from a driver of which no files are kept
        (there(NEW, module="590.48.01"), OLD),
        # moved by hand: whole, and a part
        (there(OTHER, recorded=NEW), OLD),
        (other(there(NEW), libcuda1=OTHER), NEW),
    ],
)
def test_a_rollback_goes_to_the_driver_before(facts: DriverFacts, expected: str) -> None:
    assert earlier(replace(facts, kept=(OLD, NEW))) == expected


def test_without_kept_files_there_is_no_driver_before() -> None:
    assert earlier(there(NEW)) == earlier(replace(there(NEW), kept=(NEW,))) == ""
    # nor before the reboot into the first one that came from us
    assert earlier(there(NEW, module=OLD, kept=(NEW,))) == ""
