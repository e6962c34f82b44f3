"""An installed driver stays or is replaced in the open; the words of the choice; and that it never surprises."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigwright.host.pci_cards import PciCard
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.driver_plan import DriverRefusal, plan_driver
from rigwright.nvidia.driver.driver_summary import describe_driver_plan, driver_plan_record
from tests.unit.driver_samples import (
    C22G,
    C2080,
    C3090,
    C5090,
    DESKTOP,
    KERNELS,
    LOADED,
    PASCAL,
    SERVER,
    UBUNTU,
    debian_packages,
    driver_deb,
    driver_rig,
    driverless_host,
    installed_facts,
    make_driver_plan,
    refusal_reasons,
    ubuntu_packages,
)
from tests.unit.example_counts import example_count
from tests.unit.samples import changed_rig

MANAGED = driver_rig(C3090, managed=True)
BOTH = tuple(driver_deb(name, "595.71.05-1") for name in ("libcuda1", "nvidia-kernel-dkms"))
APT_FAILURE = "apt-cache ended with status 100: E: x"
# rig, host, action, removed, what the reason or the reboot says
THERE: dict[str, tuple[Rig, DriverFacts, str, tuple[str, ...], str]] = {
    "the desktop's driver is kept": (
        driver_rig(C5090),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *DESKTOP), **LOADED),
        "adopt",
        (),
        "it stays",
    ),
    "the server's driver is kept": (
        driver_rig(C3090),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER)),
        "adopt",
        (),
        "it stays",
    ),
    "NVIDIA's own driver is kept": (
        driver_rig(C3090),
        driverless_host(
            "debian-12", **installed_facts("NVIDIA", "580.95.05-1", "libcuda1", *debian_packages()), module="580.95.05"
        ),
        "adopt",
        (),
        "it stays",
    ),
    "proprietary modules are kept where all cards work with them": (
        driver_rig(C3090),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, "libnvidia-compute-580", "nvidia-dkms-580")),
        "adopt",
        (),
        "it stays",
    ),
    "proprietary modules give way to open ones for a 5090": (
        driver_rig(C5090),
        driverless_host(
            **installed_facts("Ubuntu", UBUNTU, "libnvidia-compute-580-server", *ubuntu_packages("generic", 580, ""))
        ),
        "migrate",
        ("linux-modules-nvidia-580-server-generic", "nvidia-headless-no-dkms-580-server"),
        "(Blackwell) requires open modules",
    ),
    "the desktop's driver gives way as a whole to the server's of its own branch": (
        driver_rig(C5090),
        driverless_host(
            **installed_facts("Ubuntu", UBUNTU, "libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580")
        ),
        "migrate",
        ("libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580"),
        "(Blackwell) requires open modules",
    ),
    "open modules give way to proprietary ones for a 2080 Ti with exchanged memory": (
        driver_rig(C22G),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED),
        "migrate",
        ("linux-modules-nvidia-580-server-open-generic", "nvidia-headless-no-dkms-580-server-open"),
        "requires proprietary modules",
    ),
    "a branch that is too old is replaced": (
        driver_rig(C3090),
        driverless_host(
            "debian-12",
            **installed_facts("Debian", "535.247.01-1", "libcuda1", "nvidia-kernel-dkms"),
            module="535.247.01",
        ),
        "migrate",
        ("libcuda1", "nvidia-kernel-dkms"),
        "branch 535 is older than 580",
    ),
    "what the lock has too is moved, and only the rest removed": (
        changed_rig(MANAGED, driver_packages={"debian-13": BOTH}),
        driverless_host(
            "debian-13", **installed_facts("Debian", "550.163.01-2", "libcuda1", "nvidia-kernel-dkms", "nvidia-smi")
        ),
        "migrate",
        ("nvidia-kernel-dkms", "nvidia-smi"),
        "branch 550 is older than 580",
    ),
    "a stranger's driver is replaced": (
        driver_rig(C3090),
        driverless_host(**installed_facts("LP-PPA-graphics-drivers", "580.159.03-0ubuntu0~gpu24.04.1", *DESKTOP)),
        "migrate",
        DESKTOP,
        "not come from an accepted archive",
    ),
    "what we have installed is kept where apt has no lists": (
        driver_rig(C3090),
        driverless_host(**installed_facts("", UBUNTU, *SERVER), recorded=tuple((name, UBUNTU) for name in SERVER)),
        "adopt",
        (),
        "it stays",
    ),
    "a driver of nobody's is replaced": (
        driver_rig(C3090),
        driverless_host(**installed_facts("", "580.1.1-1", *DESKTOP)),
        "migrate",
        DESKTOP,
        "no archive known to apt",
    ),
    "a key asks for another branch": (
        driver_rig(C3090, branch=595),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER)),
        "migrate",
        tuple(sorted(SERVER)),
        "driver.branch is 595",
    ),
    "a key asks for another archive": (
        driver_rig(C3090, source="nvidia"),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, *DESKTOP)),
        "migrate",
        ("nvidia-driver-580-open",),
        'driver.source is "nvidia"',
    ),
    "libraries without modules get them": (
        driver_rig(C3090),
        driverless_host(**installed_facts("Ubuntu", UBUNTU, "libnvidia-compute-580-server")),
        "migrate",
        (),
        "it has no kernel modules",
    ),
}


@pytest.mark.parametrize("name", THERE)
def test_a_driver_that_is_there(name: str) -> None:
    one, facts, action, removed, said = THERE[name]
    found = make_driver_plan(one, facts)
    assert found.action == action
    assert any(said in reason for reason in found.why), found.why
    if action == "adopt":
        assert found.packages == tuple(package.name for package in facts.packages)
        assert set(found.packages) <= set(found.holds)
    assert found.removed == removed
    assert not set(found.removed) & set(found.packages)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (driverless_host(nouveau=True), "nouveau is bound to the cards"),
        (driverless_host(cards=(PciCard("0000:01:00.0", "10de:2204", "nouveau"),)), "nouveau is bound to the cards"),
        (driverless_host(module="570.1"), "the proprietary module 570.1 stays loaded"),
        (
            driverless_host(kernel="6.8.0-39-generic"),
            "for kernel 6.8.0-40-generic or later, the running one is 6.8.0-39-generic",
        ),
        (driverless_host("debian-12", kernel="6.1.0-39-amd64"), ""),
        (driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED), ""),
        (
            driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED | {"module": "580.95.05"}),
            "580.95.05 stays",
        ),
        (
            driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER), **LOADED | {"module_open": False}),
            "the proprietary module",
        ),
    ],
    ids=str,
)
def test_a_reboot_is_needed_where_something_else_is_loaded(facts: DriverFacts, said: str) -> None:
    found = make_driver_plan(driver_rig(C3090), facts).reboot
    assert said in found
    assert bool(found) is bool(said)


@pytest.mark.parametrize(
    ("one", "facts", "said"),
    [
        (driver_rig(C3090), driverless_host("debian-12", secure_boot="unknown"), "Secure Boot"),
        (driver_rig(C3090), driverless_host(secure_boot="unknown"), ""),
        (driver_rig(C2080, branch=595), driverless_host("ubuntu-26.04"), "RTX 2080 failed with branch 595"),
        (driver_rig(C2080), driverless_host("ubuntu-26.04"), ""),
        (driver_rig(C2080), driverless_host("debian-13"), ""),
    ],
    ids=str,
)
def test_harmless_facts_are_notes(one: Rig, facts: DriverFacts, said: str) -> None:
    found = make_driver_plan(one, facts).warnings
    assert [said in text for text in found] == ([True] if said else [])


def test_an_adopted_driver_that_is_not_loaded_needs_its_key_too() -> None:
    facts = driverless_host(**installed_facts("Ubuntu", UBUNTU, *DESKTOP), secure_boot="on")
    assert "Secure Boot is on" in refusal_reasons(driver_rig(C3090), facts)[0]
    assert make_driver_plan(driver_rig(C3090), replace(facts, **LOADED)).action == "adopt"


def test_a_plan_and_a_refusal_are_reported_in_words_and_for_programs() -> None:
    facts = driverless_host(**installed_facts("Debian", "535.1.1-1", "libcuda1"), nouveau=True)
    box_rig = driver_rig(C3090)
    plan = plan_driver(box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, facts)
    said = describe_driver_plan(box_rig.driver, box_rig.driver_supply, facts, plan)
    assert said[0] == "there now: 535.1.1 with no modules from Debian; nouveau is loaded"
    assert said[1].startswith(
        "a managed driver would be 580 with open modules from the distribution's archive, and would"
    )
    for begin in ("packages: linux-modules", "removed: libcuda1", "held: linux-image-generic", "needs a reboot", "why"):
        assert any(line.startswith(begin) for line in said), said
    assert driver_plan_record(box_rig.driver, box_rig.driver_supply, facts, plan)["refused"] == []
    box_rig = driver_rig(C3090, managed=True)
    done = describe_driver_plan(box_rig.driver, box_rig.driver_supply, facts, plan)
    assert done[1] == "580 with open modules from the distribution's archive will replace it"
    assert [*done[:1], *done[2:]] == [*said[:1], *said[2:]]
    box_rig = driver_rig()
    refused = plan_driver(box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, facts)
    assert isinstance(refused, DriverRefusal)
    advice = describe_driver_plan(box_rig.driver, box_rig.driver_supply, facts, refused)
    assert advice[1].startswith("a managed driver would be refused: no card is declared")
    box_rig = driver_rig(managed=True)
    assert describe_driver_plan(box_rig.driver, box_rig.driver_supply, facts, refused) == [said[0]]
    row = driver_plan_record(box_rig.driver, box_rig.driver_supply, facts, refused)
    assert (row["plan"], row["managed"], row["refused"]) == (None, True, list(refused.reasons))


NUMBERS = ["10de:1e07", "10de:2204", "10de:2b85", PASCAL, "10de:1d81", "10de:ffff", "10de:0fc0"]
DEVICES = st.sampled_from(NUMBERS)
PACKAGES = st.builds(
    InstalledPackage,
    st.sampled_from(
        [
            "libnvidia-compute-580",
            *DESKTOP,
            *SERVER,
            *debian_packages(),
            "libcuda1",
            "libnvidia-compute",
            "nvidia-settings",
        ]
    ),
    st.sampled_from([UBUNTU, UBUNTU, "535.1.1-1", "1:595.71.05-1", "20240109", "not a version", ""]),
    st.sampled_from(["Ubuntu", "Debian", "NVIDIA", "LP-PPA-x", ""]),
)
FACTS = st.builds(
    lambda system, **changes: replace(driverless_host(system), **changes),
    # names with a driver come more often, so that not everything is refused
    st.sampled_from([*KERNELS, *KERNELS, "fedora-42"]),
    architecture=st.sampled_from(["x86_64"] * 5 + ["aarch64"]),
    kernel=st.sampled_from(["6.8.0-40-generic", "6.8.0-39-generic", "6.12.94+deb13-amd64", "6.1.0-1-amd64", "6.12.12"]),
    kernel_packages=st.just((("linux-image-generic", "6.8.0-40-generic"), ("linux-image-amd64", "6.1.0-1-amd64"))),
    secure_boot=st.sampled_from(["off", "off", "on", "unknown"]),
    key_enrolled=st.booleans(),
    cards=st.lists(st.builds(PciCard, st.just("0000:01:00.0"), DEVICES), max_size=1).map(tuple),
    module=st.sampled_from(["", "580.159.03", "535.1.1"]),
    module_open=st.booleans(),
    nouveau=st.booleans(),
    packages=st.lists(PACKAGES, max_size=5, unique_by=lambda one: one.name).map(tuple),
    toolkit=st.sampled_from(["", "", "", "", "13.2.51", "x"]),
)
RIGS = st.builds(
    lambda cards, keys: driver_rig(*cards, **keys),
    st.lists(st.sampled_from([C2080, C22G, C3090, C5090]), max_size=3),
    st.fixed_dictionaries(
        {
            "branch": st.sampled_from([None, None, None, 470, 550, 580, 595, 615, 999]),
            "flavour": st.sampled_from([None, None, None, "open", "proprietary"]),
            "source": st.sampled_from([None, None, "distribution", "nvidia"]),
            "force_open_modules": st.booleans(),
        }
    ),
)


@settings(max_examples=example_count(300))
@given(RIGS, FACTS)
def test_no_host_gets_proprietary_modules_with_a_5090_or_a_branch_below_580(one: Rig, facts: DriverFacts) -> None:
    found = plan_driver(one.cards, one.driver, one.driver_supply, one.toolkit, facts)
    assert all(describe_driver_plan(one.driver, one.driver_supply, facts, found))
    if isinstance(found, DriverRefusal):
        assert found.reasons
        return
    assert found.branch >= 580
    blackwell = C5090 in one.cards or "10de:2b85" in [card.pci_id for card in facts.cards]
    old = any(card.pci_id in (PASCAL, "10de:1d81") for card in facts.cards)
    assert not (blackwell and found.flavour == "proprietary")
    assert not (old and (found.flavour == "open" or found.branch > 580))
    if C22G in one.cards and found.flavour == "open":
        assert one.driver.force_open_modules
    assert found.packages
    assert not set(found.removed) & {*found.packages, *found.before}


def test_a_driver_that_stays_needs_no_origin_and_one_that_goes_does() -> None:
    """A source that apt cannot read refuses what needs it."""
    there = driverless_host(
        "debian-12", **installed_facts("", "580.95.05-1", "libcuda1", *debian_packages()), module="580.95.05"
    )
    unread = replace(there, apt_failure=APT_FAILURE)
    ours = replace(unread, recorded=tuple((one.name, one.version) for one in there.packages))
    stays = plan_driver(MANAGED.cards, MANAGED.driver, MANAGED.driver_supply, MANAGED.toolkit, ours)
    assert not isinstance(stays, DriverRefusal)
    assert stays.action == "adopt"
    refused = plan_driver(MANAGED.cards, MANAGED.driver, MANAGED.driver_supply, MANAGED.toolkit, unread)
    assert isinstance(refused, DriverRefusal)
    assert refused.reasons == (
        f"the origin of 580.95.05 is unknown, for the host's {APT_FAILURE}: repair the sources of apt",
    )
