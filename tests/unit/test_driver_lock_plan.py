"""A locked driver decides branch and archive, and which parts of the installed one are moved, kept or removed."""

from typing import Any

import pytest

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from tests.unit.driver_samples import (
    C3090,
    DESKTOP,
    LOADED,
    PASCAL,
    SERVER,
    UBUNTU,
    driver_deb,
    driver_rig,
    driverless_host,
    installed_facts,
    make_driver_plan,
    refusal_reasons,
)
from tests.unit.managed_driver_samples import NAMES, NEW, OTHER, managed_host, managed_rig
from tests.unit.samples import changed_rig

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"


def locking(system: str, version: str, key: str = KEY, **keys: Any) -> Rig:
    """A rig with a managed driver that is locked for one system alone."""
    rows = (driver_deb("libcuda1", f"{version}-1"),)
    return changed_rig(
        driver_rig(C3090, managed=True, **keys),
        driver_packages={system: rows},
        driver_keys={system: key} if key else {},
    )


@pytest.mark.parametrize(
    ("one", "facts", "branch", "source", "why"),
    [
        (
            locking("debian-13", OTHER),
            driverless_host("debian-13"),
            610,
            "nvidia",
            f"branch 610 from NVIDIA's archive: {OTHER} is locked for debian-13",
        ),
        (
            locking("debian-13", NEW),
            driverless_host("debian-13"),
            595,
            "nvidia",
            f"branch 595 from NVIDIA's archive: {NEW} is locked for debian-13",
        ),
        (
            locking("debian-13", NEW, branch=595),
            driverless_host("debian-13"),
            595,
            "nvidia",
            "branch 595 from NVIDIA's archive: set by driver.branch",
        ),
        (
            locking("ubuntu-24.04", NEW),
            driverless_host(),
            595,
            "nvidia",
            f"branch 595 from NVIDIA's archive: {NEW} is locked for ubuntu-24.04",
        ),
        (
            locking("ubuntu-24.04", NEW, ""),
            driverless_host(),
            595,
            "distribution",
            f"branch 595 from the distribution's archive: {NEW} is locked for ubuntu-24.04",
        ),
        (
            locking("ubuntu-24.04", "580.159.03", ""),
            driverless_host(),
            580,
            "distribution",
            "branch 580 from the distribution's archive: 580.159.03 is locked for ubuntu-24.04",
        ),
        (
            locking("debian-13", OTHER),
            driverless_host(),
            580,
            "distribution",
            "branch 580 from the distribution's archive: the branch with the longest support",
        ),
        (
            driver_rig(C3090),
            driverless_host("debian-13"),
            595,
            "nvidia",
            "branch 595 from NVIDIA's archive: 580 is not available for debian-13 as inventory and cards require",
        ),
    ],
    ids=[
        "another branch",
        "the first that is published",
        "a key says the same",
        "another archive",
        "without a key it is the distribution's",
        "the one with the longest support",
        "another system's lock",
        "no lock",
    ],
)
def test_the_lock_decides_and_says_so(one: Rig, facts: DriverFacts, branch: int, source: str, why: str) -> None:
    found = make_driver_plan(one, facts)
    assert (found.branch, found.source, found.why[1]) == (branch, source, why)


REFUSED: dict[str, tuple[Rig, DriverFacts, list[str]]] = {
    "a key asks for another branch": (
        locking("debian-13", NEW, branch=610),
        driverless_host("debian-13"),
        ["with branch 610:", f"{NEW} of NVIDIA's archive, which is locked,", "remove driver.branch or"],
    ),
    "a key asks for another archive": (
        locking("ubuntu-24.04", "580.159.03", source="distribution"),
        driverless_host(),
        ["source distribution", "580.159.03 of NVIDIA's archive, which is locked,"],
    ),
    "a locked branch that is not published": (
        locking("debian-13", "580.178.04"),
        driverless_host("debian-13"),
        ["580.178.04 of NVIDIA's archive, which is locked,", "595 in NVIDIA's archive"],
    ),
    "a locked branch that a card does not work with": (
        locking("ubuntu-24.04", NEW),
        driverless_host("ubuntu-24.04", PASCAL),
        ["at most 580, the last branch for some of the cards", f"{NEW} of NVIDIA's archive, which is locked,"],
    ),
    "a locked branch without proprietary modules": (
        locking("ubuntu-24.04", "615.71.09", flavour="proprietary"),
        driverless_host(),
        ["at most 610, the last branch with proprietary modules", "615.71.09 of NVIDIA's archive"],
    ),
    "nothing is locked": (
        changed_rig(driver_rig(C3090, managed=True), driver_packages={}, driver_keys={}),
        driverless_host("debian-13"),
        [
            "no driver is locked for debian-13",
            "driver-debian-13",
            'sources = ["nvidia:debian13/x86_64"]',
            'version = "595..."',
            "`rigwright lock`",
        ],
    ),
    "nothing is locked for this system": (
        locking("debian-13", NEW),
        driverless_host("debian-12"),
        ["no driver is locked for debian-12", 'sources = ["nvidia:debian12/x86_64"]', 'version = "580..."'],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_that_the_lock_does_not_have_are_refused(name: str) -> None:
    one, facts, essence = REFUSED[name]
    (reason,) = refusal_reasons(one, facts)
    assert [part for part in essence if part not in reason] == [], reason


def test_a_distributions_driver_and_one_that_is_not_managed_need_no_lock() -> None:
    bare = changed_rig(driver_rig(C3090, managed=True), driver_packages={}, driver_keys={})
    assert make_driver_plan(bare, driverless_host()).source == "distribution"
    assert make_driver_plan(driver_rig(C3090), driverless_host("debian-13")).source == "nvidia"


def test_apt_is_held_to_the_locked_driver() -> None:
    assert make_driver_plan(locking("debian-13", NEW), driverless_host("debian-13")).pin == (
        f"Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any\nPin: version {NEW}*\nPin-Priority: 990\n"
    )
    # also where it keeps another one for now
    assert f"Pin: version {NEW}*\n" in make_driver_plan(managed_rig(), managed_host()).pin
    assert (
        "Pin: version 580.159.03*\n"
        in make_driver_plan(locking("ubuntu-24.04", "580.159.03", ""), driverless_host()).pin
    )


def test_apt_is_held_to_the_branch_that_stays_while_another_one_is_locked() -> None:
    stays = make_driver_plan(managed_rig(OTHER), managed_host(NEW))
    assert (stays.action, "Pin: version 595.*\n" in stays.pin) == ("adopt", True)
    box_rig = managed_rig(OTHER)
    moves = plan_driver(
        box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, managed_host(NEW), upgrading=True
    )
    assert isinstance(moves, DriverPlan)
    assert f"Pin: version {OTHER}*\n" in moves.pin


@pytest.mark.parametrize(
    ("one", "facts", "upgrading", "action", "removed", "why"),
    [
        (managed_rig(OTHER), managed_host(), False, "adopt", (), "it stays"),
        (managed_rig(OTHER), managed_host(), True, "migrate", (), f"{OTHER} of NVIDIA's archive is locked"),
        (managed_rig(OTHER, branch=610), managed_host(), False, "migrate", (), "driver.branch is 610"),
        (managed_rig(NEW), managed_host(), True, "adopt", (), "it stays"),
        (
            managed_rig(OTHER, *(name for name in NAMES if name != "firmware-nvidia-gsp")),
            managed_host(),
            True,
            "migrate",
            ("firmware-nvidia-gsp",),
            "is locked",
        ),
        (
            managed_rig(OTHER, flavour="proprietary"),
            managed_host(),
            False,
            "migrate",
            ("nvidia-kernel-open-dkms",),
            "requires proprietary modules",
        ),
        (
            managed_rig(NEW),
            managed_host("550.163.01", "libcuda1", "nvidia-kernel-dkms", "nvidia-smi"),
            False,
            "migrate",
            ("nvidia-kernel-dkms", "nvidia-smi"),
            "branch 550 is older than 580",
        ),
        (
            locking("ubuntu-24.04", NEW),
            driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED),
            True,
            "migrate",
            tuple(sorted(SERVER)),
            f"{NEW} of NVIDIA's archive is locked",
        ),
        (
            locking("ubuntu-24.04", NEW),
            driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED),
            False,
            "adopt",
            (),
            "it stays",
        ),
        (
            # the same branch of another archive, in which some packages have the same names
            changed_rig(
                locking("ubuntu-24.04", "580.159.03"),
                driver_packages={"ubuntu-24.04": tuple(driver_deb(name, "580.159.03-0ubuntu1") for name in DESKTOP)},
            ),
            driverless_host(**installed_facts("Ubuntu", UBUNTU, *DESKTOP), **LOADED),
            True,
            "migrate",
            (),
            "580.159.03 of NVIDIA's archive is locked",
        ),
    ],
    ids=[
        "another branch is locked",
        "and is upgraded to",
        "and is asked for",
        "another version of the branch",
        "what the locked one has not",
        "another flavour",
        "the distribution's own",
        "another archive",
        "which a deploy leaves",
        "another archive with the same names",
    ],
)
def test_installed_packages_are_moved_or_removed_as_the_lock_has_it(
    one: Rig, facts: DriverFacts, upgrading: bool, action: str, removed: tuple[str, ...], why: str
) -> None:
    found = plan_driver(one.cards, one.driver, one.driver_supply, one.toolkit, facts, upgrading=upgrading)
    assert (found.action, found.removed) == (action, removed)  # type: ignore[union-attr]
    assert any(why in reason for reason in found.why), found.why  # type: ignore[union-attr]


def test_an_upgrade_to_a_locked_driver_that_will_not_do_is_refused() -> None:
    found = refusal_reasons(locking("debian-13", "580.178.04"), driverless_host("debian-13"))
    box_rig = locking("debian-13", "580.178.04")
    again = plan_driver(
        box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, managed_host(), upgrading=True
    )
    assert again.reasons == found  # type: ignore[union-attr]
