"""The driver of a host: chosen by its cards and system, and refused with what to do."""

from typing import Any

import pytest

from rigwright.model.catalog_schema import Card
from rigwright.model.nvidia_tables import load_driver_tables
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import SOURCE, DriverFacts
from rigwright.project_root import ROOT
from tests.unit.driver_samples import (
    C22G,
    C2080,
    C3090,
    C5090,
    KERNELS,
    PASCAL,
    debian_packages,
    driver_rig,
    driverless_host,
    make_driver_plan,
    refusal_reasons,
    ubuntu_packages,
)
from tests.unit.samples import changed_rig

TURING_AMPERE = (C2080, C3090)
ROWS: list[tuple[str, tuple[Card, ...], dict[str, Any], dict[str, Any], tuple[Any, ...]]] = []


def row(
    name: str,
    system: str,
    cards: tuple[Card, ...],
    expected: tuple[Any, ...],
    keys: dict[str, Any] | None = None,
    **facts: Any,
) -> None:
    ROWS.append((name, cards, {"system": system} | facts, keys or {}, expected))


# expected: source, branch, flavour, installed first, packages
for cards, which in (((C3090,), "3090"), (TURING_AMPERE, "2080 Ti and 3090"), ((C5090,), "5090")):
    for system in ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"):
        expected = ("distribution", 580, "open", (), ubuntu_packages(KERNELS[system][1]))
        row(f"a {which} on {system} runs signed open modules", system, cards, expected)
        row(f"a {which} on {system} boots them securely", system, cards, expected, secure_boot="on")
    for system, branch in (("debian-12", 580), ("debian-13", 595)):
        first = ("linux-headers-amd64",)
        expected = ("nvidia", branch, "open", first, debian_packages())
        row(f"a {which} on {system} builds NVIDIA's {branch}", system, cards, expected)
        row(
            f"a {which} on {system} boots what an enrolled key signs",
            system,
            cards,
            expected,
            secure_boot="on",
            key_enrolled=True,
        )
row(
    "a mixed box with a 5090 runs open modules",
    "ubuntu-24.04",
    (C2080, C3090, C5090),
    ("distribution", 580, "open", (), ubuntu_packages("generic")),
)
row(
    "a 5090 that is not declared still gets open modules",
    "ubuntu-24.04",
    (C22G,),
    ("distribution", 580, "open", (), ubuntu_packages("generic")),
    {"force_open_modules": True},
    pci_ids=("10de:1e07", "10de:2b85"),
)
row(
    "a 2080 Ti with exchanged memory runs proprietary modules",
    "ubuntu-24.04",
    (C22G, C3090),
    ("distribution", 580, "proprietary", (), ubuntu_packages("generic", 580, "")),
)
row(
    "a 2080 Ti with exchanged memory builds proprietary modules on Debian",
    "debian-12",
    (C22G,),
    ("nvidia", 580, "proprietary", ("linux-headers-amd64",), debian_packages("")),
)
row(
    "consent puts a 2080 Ti with exchanged memory beside a 5090",
    "ubuntu-22.04",
    (C22G, C5090),
    ("distribution", 580, "open", (), ubuntu_packages("generic-hwe-22.04")),
    {"force_open_modules": True},
)
row(
    "a Pascal card alone runs proprietary modules of its last branch",
    "ubuntu-24.04",
    (),
    ("distribution", 580, "proprietary", (), ubuntu_packages("generic", 580, "")),
    pci_ids=(PASCAL,),
)
row(
    "a key asks for proprietary modules",
    "ubuntu-24.04",
    (C3090,),
    ("distribution", 580, "proprietary", (), ubuntu_packages("generic", 580, "")),
    {"flavour": "proprietary"},
)
row(
    "a key asks for another branch",
    "ubuntu-26.04",
    (C5090,),
    ("distribution", 595, "open", (), ubuntu_packages("generic", 595)),
    {"branch": 595},
)
row(
    "a key asks for NVIDIA's archive",
    "ubuntu-24.04",
    (C5090,),
    (
        "nvidia",
        580,
        "open",
        ("linux-headers-generic",),
        ("nvidia-dkms-580-open", "libnvidia-compute-580", "nvidia-utils-580", "nvidia-compute-utils-580"),
    ),
    {"source": "nvidia"},
)
row(
    "NVIDIA's archive for Ubuntu 26.04 has no 580",
    "ubuntu-26.04",
    (C5090,),
    (
        "nvidia",
        595,
        "open",
        ("linux-headers-generic",),
        ("nvidia-dkms-open", "libnvidia-compute", "nvidia-utils", "nvidia-persistenced"),
    ),
    {"source": "nvidia"},
)
row(
    "a branch that only NVIDIA's archive has comes from there",
    "ubuntu-24.04",
    (C5090,),
    (
        "nvidia",
        615,
        "open",
        ("linux-headers-generic",),
        ("nvidia-dkms-open", "libnvidia-compute", "nvidia-utils", "nvidia-persistenced"),
    ),
    {"branch": 615},
)


@pytest.mark.parametrize(
    ("cards", "facts", "keys", "expected"), [one[1:] for one in ROWS], ids=[one[0] for one in ROWS]
)
def test_a_driver_for(cards, facts, keys, expected):
    there = driverless_host(facts.pop("system"), *facts.pop("pci_ids", ()), **facts)
    found = make_driver_plan(driver_rig(*cards, **keys), there)
    assert (found.source, found.branch, found.flavour, found.before, found.packages) == expected
    assert (found.action, found.removed, found.reboot) == ("install", (), "")
    assert found.dkms is (found.source == "nvidia")
    kernel = there.metapackage[0]
    assert found.holds == (found.packages if found.dkms else (*found.packages, f"linux-image-{kernel}"))
    assert found.modules == ("nvidia", "nvidia_uvm")
    assert all(found.why)


RUN = {"run_files": ("/usr/bin/nvidia-uninstall",)}
OTHER = {"nvidia_sources": (("debian12", "/etc/apt/sources.list.d/cuda.list"),)}
REFUSED: dict[str, tuple[Rig, DriverFacts, list[str]]] = {
    "a masked daemon": (
        driver_rig(C3090, managed=True),
        driverless_host(persistence="masked"),
        ["nvidia-persistenced.service is masked", "`systemctl unmask nvidia-persistenced.service`"],
    ),
    "a daemon that is masked until the next boot": (
        driver_rig(C3090, managed=True),
        driverless_host(persistence="masked-runtime"),
        ["is masked", "`systemctl unmask --runtime nvidia-persistenced.service`"],
    ),
    "leftovers of a .run file": (driver_rig(C3090), driverless_host(**RUN), ["nvidia-uninstall", "reboot"]),
    "another release's archive": (
        driver_rig(C3090),
        driverless_host("debian-13", **OTHER),
        ["cuda.list", "debian12", "remove it"],
    ),
    "proprietary modules with a 5090": (
        driver_rig(C3090, C5090, flavour="proprietary"),
        driverless_host(),
        ["RTX 5090 (Blackwell) works only with open modules", "remove the key"],
    ),
    "a Pascal card beside a 5090": (
        driver_rig(C5090),
        driverless_host("ubuntu-24.04", "10de:2b85", PASCAL),
        ["no kernel module supports all cards", "10de:1b06 at 0000:02:00.0 (Pascal)", "RTX 5090", "move one of them"],
    ),
    "a branch below 580": (
        driver_rig(C3090, branch=550),
        driverless_host(),
        ["branch 550", "at least 580", "remove driver.branch"],
    ),
    "a 2080 Ti with exchanged memory beside a 5090": (
        driver_rig(C22G, C5090),
        driverless_host(),
        ["2080 Ti (Turing) is known to fail", "another host", "driver.force_open_modules = True"],
    ),
    "open modules for a 2080 Ti with exchanged memory": (
        driver_rig(C22G, flavour="open"),
        driverless_host(),
        ['driver.flavour = "proprietary"', "force_open_modules"],
    ),
    "open modules for a Pascal card": (
        driver_rig(flavour="open"),
        driverless_host("ubuntu-24.04", PASCAL),
        ["(Pascal) works only with proprietary modules"],
    ),
    "a Pascal card where 580 is not published": (
        driver_rig(),
        driverless_host("debian-13", PASCAL),
        ["at most 580, the last branch for some of the cards", "595 in NVIDIA's archive", "another release"],
    ),
    "a branch that is not published": (
        driver_rig(C3090, branch=580),
        driverless_host("debian-13"),
        ["branch 580", "published are 595 in NVIDIA's archive", "remove driver.branch"],
    ),
    "an archive without a driver": (
        driver_rig(C3090, source="distribution"),
        driverless_host("debian-12"),
        ["source distribution"],
    ),
    "proprietary modules of a branch without them": (
        driver_rig(C3090, flavour="proprietary", branch=615),
        driverless_host(),
        ["branch 615", "at most 610, the last branch with proprietary modules"],
    ),
    "modules that nobody trusts, on Debian": (
        driver_rig(C3090),
        driverless_host("debian-12", secure_boot="on"),
        ["Secure Boot is on", "dkms generate_mok", "/var/lib/dkms/mok.pub", "at the console"],
    ),
    "modules that nobody trusts, on Ubuntu": (
        driver_rig(C3090, source="nvidia"),
        driverless_host(secure_boot="on"),
        ["Secure Boot is on", "MOK.der"],
    ),
    "nvcc of CUDA 13.2.0": (driver_rig(C3090), driverless_host(toolkit="13.2.51"), ["nvcc 13.2.51", "13.1", "13.2.2"]),
    "nvcc of CUDA 13.2.1": (driver_rig(C3090), driverless_host(toolkit="13.2.78"), ["nvcc 13.2.78", "13.1", "13.2.2"]),
    "nvcc that is too old for a 5090": (
        driver_rig(C5090),
        driverless_host(toolkit="12.6.20"),
        ["does not support Blackwell", "12.8"],
    ),
    "another system": (driver_rig(C3090), driverless_host("debian-11"), ["debian-11", "debian-12", "ubuntu-26.04"]),
    "another processor": (driver_rig(C3090), driverless_host(architecture="aarch64"), ["aarch64", "x86_64"]),
    "a kernel that nothing upgrades": (driver_rig(C3090), driverless_host(kernel_packages=()), ["linux-image-generic"]),
    "a rig without a card": (driver_rig(), driverless_host(), ["no card is declared"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_what_to_do(name: str) -> None:
    one, facts, essence = REFUSED[name]
    (reason,) = refusal_reasons(one, facts)
    assert [part for part in essence if part not in reason] == [], reason


def test_our_own_source_of_the_release_before_is_no_reason() -> None:
    upgraded = {"nvidia_sources": (("debian12", SOURCE),)}
    assert (
        make_driver_plan(driver_rig(C3090, managed=True), driverless_host("debian-13", **upgraded)).action == "install"
    )


@pytest.mark.parametrize("nvcc", ["", "13.1.115", "13.2.86", "13.4.92", "12.8.61"])
def test_a_toolkit_that_works_is_no_reason(nvcc: str) -> None:
    assert make_driver_plan(driver_rig(C5090), driverless_host(toolkit=nvcc)).branch == 580


def test_all_that_stands_in_the_way_is_reported_at_once() -> None:
    facts = driverless_host(
        "debian-13", "10de:2b85", secure_boot="on", toolkit="13.2.51", kernel_packages=(), **RUN, **OTHER
    )
    found = refusal_reasons(driver_rig(C5090, flavour="proprietary"), facts)
    begins = ["/usr/bin/nvidia-uninstall", "/etc/apt", "nvcc", "driver.flavour", "no kernel meta", "Secure Boot"]
    assert [reason.startswith(begin) for reason, begin in zip(found, begins, strict=True)] == [True] * len(begins)


def test_the_branch_floor_can_be_another_ones() -> None:
    known = load_driver_tables(ROOT)
    offers = tuple(one.model_copy(update={"branches": (550,)}) for one in known.offers)
    lowered = known.model_copy(update={"offers": offers, "preferred": (550,)})
    assert (
        "at least 580"
        in refusal_reasons(changed_rig(driver_rig(C3090), drivers=lowered), driverless_host("debian-13"))[0]
    )
    lowered = lowered.model_copy(update={"minimum": 550})
    assert make_driver_plan(changed_rig(driver_rig(C3090), drivers=lowered), driverless_host("debian-13")).branch == 550


PIN_DISTRIBUTION = """\
Package: src:nvidia-graphics-drivers-580*:any
Pin: release o=NVIDIA
Pin-Priority: 100

Package: src:nvidia-graphics-drivers-580*:any
Pin: version 580.*
Pin-Priority: 990

Package: *
Pin: release o=NVIDIA
Pin-Priority: 100
"""
PIN_NVIDIA = """\
Package: src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any
Pin: version 595.*
Pin-Priority: 990
"""


def test_apt_is_held_to_the_branch_and_never_downgrades() -> None:
    assert make_driver_plan(driver_rig(C3090), driverless_host()).pin == PIN_DISTRIBUTION
    assert make_driver_plan(driver_rig(C3090), driverless_host("debian-13")).pin == PIN_NVIDIA
