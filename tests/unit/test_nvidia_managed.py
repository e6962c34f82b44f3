"""The checks N08 to N28 as they run: green on a sound host, red on each other, skipped where they do not apply."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, test_nvidia_packages
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.kernel_facts import KernelModule
from tests.unit.driver_samples import C3090, driver_rig, driverless_host, installed_facts
from tests.unit.nvidia_host import ADDRESSES, CAPTURED_OUTPUT, NVLINK, PACKAGED, PACKAGES, RIG, STATE, VERSION
from tests.unit.nvidia_world import ALL, NvidiaCheckFixture
from tests.unit.samples import sample_artefact, sample_rig

NEXT = KernelModule("6.8.0-90-generic", True, VERSION, "Dual MIT/GPL", "somebody")
_MANAGED = driver_rig(C3090, managed=True)
BUNDLED = replace(_MANAGED, driver_supply=replace(_MANAGED.driver_supply, bundled=True))
SECURITY = (("linux-image-generic", "6.8.0-90.91"),)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaCheckFixture:
    rows = {name: sample_artefact(kind="weight", name=name, version=PACKAGED) for name in PACKAGES}
    lock = SimpleNamespace(version=VERSION, packages=rows, key="")
    monkeypatch.setattr(test_nvidia_packages, "find_locked_driver", lambda _rig, _system: lock)
    return NvidiaCheckFixture(tmp_path.resolve())


def half_upgraded(world: NvidiaCheckFixture) -> None:
    newer = InstalledPackage("nvidia-utils-580-server", "580.178.04-0ubuntu0.24.04.1", "Ubuntu")
    kept = [one for one in world.facts.packages if one.name != newer.name]
    world.change_facts(packages=(*kept, newer))


def upgraded(world: NvidiaCheckFixture) -> None:
    """By hand, whole, and without a reboot."""
    names = [one.name for one in world.facts.packages]
    world.change_facts(**installed_facts("Ubuntu", "580.178.04-0ubuntu0.24.04.1", *names))
    world.change_state(kernels=(replace(STATE.kernels[0], version="580.178.04"),), dkms=())


SICK: dict[str, tuple[Callable[[NvidiaCheckFixture], object], dict[str, str]]] = {
    "the proprietary module": (
        lambda world: world.change_facts(module_open=False),
        {"N08": "expected the open kernel module, found the proprietary one is loaded; deploy INVENTORY --reboot"},
    ),
    "the next kernel without a module": (
        lambda world: world.change_state(kernels=(*STATE.kernels, replace(NEXT, version="", signer="")), dkms=()),
        {
            "N09": f"expected module {VERSION} for kernel 6.8.0-90-generic, which boots next, found none",
            "N18": "expected kernel 6.8.0-90-generic, the newest that is installed, found 6.8.0-40-generic",
        },
    ),
    "a module that DKMS left out": (
        lambda world: world.change_state(dkms=(replace(STATE.dkms[0], state="built"),)),
        {"N10": f"expected DKMS to have nvidia {VERSION} installed for kernel 6.8.0-40-generic, found {VERSION} built"},
    ),
    "Secure Boot and no signature": (
        lambda world: (
            world.change_facts(secure_boot="on"),
            world.change_state(kernels=(replace(STATE.kernels[0], signer=""),)),
        ),
        {"N11": "expected a signed module for kernel 6.8.0-40-generic, since Secure Boot is on, found no signature"},
    ),
    "another setting": (
        lambda world: world.change_state(sysctl=(("vm.swappiness", "60"),)),
        {"N12": "expected sysctl vm.swappiness 10, found 60"},
    ),
    "a half upgrade": (
        half_upgraded,
        {
            "N13": "expected one driver version in all packages, found 580.159.04: libnvidia-compute-580-server",
            "N14": f"expected the locked nvidia-utils-580-server {PACKAGED}, found nvidia-utils-580-server 580.178.04",
        },
    ),
    "a whole upgrade without a reboot": (
        upgraded,
        {
            "N09": "for kernel 6.8.0-40-generic, found 580.178.04; deploy INVENTORY --reboot",
            "N14": f"expected the locked driver {VERSION}, found 580.178.04",
            "N20": "expected the packages of the last deploy, found libnvidia-compute-580-server 580.178.04",
        },
    ),
    "a hold that is gone": (
        lambda world: world.change_state(holds=STATE.holds - {"nvidia-utils-580-server"}),
        {"N15": "expected a hold on nvidia-utils-580-server, found none"},
    ),
    "unattended upgrades": (
        lambda world: world.change_state(unattended=True, blacklist=("nvidia-", "linux-", "docker-")),
        {"N15": "expected unattended-upgrades to leave libnvidia-compute-580-server alone"},
    ),
    "another branch on offer": (
        lambda world: world.change_state(candidates=(("nvidia-utils-580-server", "595.71.05-0ubuntu1"),)),
        {"N16": "expected apt to offer only branch 580, found nvidia-utils-580-server 595.71.05-0ubuntu1"},
    ),
    "a reboot that is asked for": (
        lambda world: world.change_state(reboot=True, reboot_for=("libc6",)),
        {"N18": "expected no reboot to be pending, found for libc6; wait until no request"},
    ),
    "security updates that wait": (
        lambda world: world.change_state(security=SECURITY),
        {"N19": "expected the security updates of linux-image-generic, found 6.8.0-90.91 is available"},
    ),
    "another kernel than at the last deploy": (
        lambda world: (
            world.change_facts(kernel=NEXT.release),
            world.change_state(running=NEXT.release, kernels=(NEXT,), dkms=()),
        ),
        {"N20": "expected kernel 6.8.0-40-generic, found 6.8.0-90-generic"},
    ),
    "a power limit that is lost": (
        lambda world: world.host.set_smi_answers(gpus=CAPTURED_OUTPUT["busy"].replace("700.00", "600.00", 1)),
        {"N21": "card 0 at 0000:00:06.0, found 600 W; as root on the host: systemctl reset-failed"},
    ),
    "a clock above the declared": (
        lambda world: world.host.set_smi_answers(gpus=CAPTURED_OUTPUT["busy"].replace(" 345,", " 2100,", 1)),
        {"N22": "expected at most 1980 MHz on card 0 at 0000:00:06.0, found 2100 MHz"},
    ),
    "a small window": (
        lambda world: world.host.set_smi_answers(memory=CAPTURED_OUTPUT["memory"].replace("262144", "256", 1)),
        {"N23": "Resizable BAR enabled, with BAR1 of at least 143771 MiB on card 0 at 0000:00:06.0, found 256 MiB"},
    ),
    "a bridge that does not join": (
        lambda world: world.host.set_smi_answers(topology=CAPTURED_OUTPUT["topology"].replace("NV18", "PHB")),
        {"N24": "NVLink between cards 0 and 1, found PHB; as root on the host: nvidia-smi nvlink"},
    ),
    "a link of a bridge that is down": (
        lambda world: world.host.set_smi_answers(nvlink=NVLINK.replace("26.562 GB/s", "<inactive>", 1)),
        {"N24": "expected every link of cards 0 and 1 to be up, found 0 of 1 and 1 of 1"},
    ),
    "copies from card to card": (
        lambda world: world.change_state(p2p=(("chat", 493),)),
        {"N25": "expected no GGML_CUDA_P2P in the environment of instance chat, found set in pid 493"},
    ),
    "a bus that corrects errors": (
        lambda world: world.host.write(
            "says/log", f"pcieport 0000:00:02.0: AER: Corrected error message received from {ADDRESSES[1]}\n" * 3
        ),
        {"N26": "expected no kernel error messages about card 1 at 0000:00:07.0 since boot, found 3, the latest"},
    ),
    "a hot card": (
        lambda world: world.host.set_smi_answers(
            temperature=CAPTURED_OUTPUT["temperature"].replace(": 57 C", ": -2 C")
        ),
        {"N27": "expected card 0 at 0000:00:06.0 below its throttling temperature, found 0 C above; check fans"},
    ),
    "a program for power with another limit": (
        lambda world: world.host.write("etc/rigwright/cards/declared.json", "{}\n"),
        {"N28": "expected /etc/rigwright/cards/declared.json as deployed, found different contents; deploy"},
    ),
    "units that do not start at boot": (
        lambda world: world.host.write("says/enabled", "disabled\n"),
        {"N28": "expected nvidia-persistenced.service to start at boot, found disabled; deploy"},
    ),
}


def test_a_sound_host_is_green(world: NvidiaCheckFixture) -> None:
    assert world.red_checks() == {}


@pytest.mark.parametrize("what", SICK)
def test_each_sick_host_turns_its_checks_red_and_no_other(world: NvidiaCheckFixture, what: str) -> None:
    change, expected = SICK[what]
    change(world)
    found = world.red_checks()
    assert set(found) == set(expected)
    for name, part in expected.items():
        assert part in found[name]


def test_every_check_is_seen_red() -> None:
    # N17 is, of a real archive, below and in test_nvidia_archive
    assert {name for _, expected in SICK.values() for name in expected} == set(ALL) - {"N17"}


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        (
            "N09",
            {"kernels": (replace(STATE.kernels[0], bootable=False, version=""),)},
            "no kernel boots from this system's own disk",
        ),
        ("N10", {"dkms": ()}, "DKMS has no module of the driver"),
        ("N11", {"secure_boot": "unknown"}, "the firmware does not say whether Secure Boot is on"),
        ("N12", {"rig": RIG}, "none are declared"),
        ("N12", {"rig": driver_rig(C3090, managed=True)}, "none are declared"),
        ("N13", {"packages": ()}, "the driver is not from a package"),
        ("N14", {"rig": RIG}, "the driver is not managed"),
        ("N17", {}, "the driver is from the distribution's archive"),
        ("N17", {"rig": BUNDLED}, "the driver is from the bundle"),
        ("N20", {"rig": RIG}, "the driver is not managed"),
        ("N21", {"rig": RIG}, "none is declared"),
        ("N21", {"rig": driver_rig(C3090, managed=True)}, "none is declared"),
        ("N22", {"rig": driver_rig(C3090, managed=True)}, "none are declared"),
        ("N24", {"rig": RIG}, "none is declared"),
        ("N28", {"rig": RIG}, "none are declared"),
        ("N26", {"rig": sample_rig()}, "the rig declares no cards"),
    ],
)
def test_an_inapplicable_check_is_skipped_with_the_reason(
    world: NvidiaCheckFixture, name: str, change: dict[str, Any], reason: str
) -> None:
    world.rig = change.get("rig", world.rig)
    world.change_facts(**{key: value for key, value in change.items() if key in DriverFacts.__dataclass_fields__})
    world.change_state(**{key: value for key, value in change.items() if key in ("dkms", "kernels")})
    with pytest.raises(pytest.skip.Exception, match=reason):
        world.run_check(name)


def test_a_host_whose_driver_would_be_refused_is_not_what_its_rig_says(world: NvidiaCheckFixture) -> None:
    assert (
        test_nvidia_packages.expected_driver_plan(
            world.rig.cards, world.rig.driver, world.rig.driver_supply, world.rig.toolkit, world.facts
        ).action
        == "adopt"
    )
    world.change_facts(nvidia_sources=(("debian12", "/etc/apt/sources.list.d/old.list"),))
    with pytest.raises(Drift, match=r"found /etc/apt/sources\.list\.d/old\.list names"):
        test_nvidia_packages.expected_driver_plan(
            world.rig.cards, world.rig.driver, world.rig.driver_supply, world.rig.toolkit, world.facts
        )


def test_a_rig_whose_lock_has_no_driver_is_not_held_to_one(
    world: NvidiaCheckFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_nvidia_packages, "find_locked_driver", lambda _rig, _system: None)
    with pytest.raises(pytest.skip.Exception, match="no driver is locked"):
        world.run_check("N14")


@pytest.mark.parametrize(
    ("there", "status", "said", "verdict"),
    [
        (
            False,
            0,
            "",
            "expected the source /etc/apt/sources.list.d/rigwright-nvidia.sources, found none; deploy again",
        ),
        (True, 0, "Hit:1 https://a InRelease\n", ""),
        (
            True,
            100,
            "E: The repository 'https://a  InRelease' is not signed.\n",
            "expected a signature by the locked key",
        ),
        (True, 0, "W: Failed to fetch https://a/InRelease  Could not resolve 'a'\n", "skip"),
    ],
)
def test_nvidias_archive_is_asked_where_the_driver_is_from_there(
    world: NvidiaCheckFixture, there: bool, status: int, said: str, verdict: str
) -> None:
    world.rig, world.facts = driver_rig(C3090, managed=True), driverless_host("debian-13", "10de:2204")
    world.told["nvidia_apt_source"] = {"source": "/etc/apt/mine.list" if there else "", "status": status, "said": said}
    if verdict == "skip":
        with pytest.raises(pytest.skip.Exception, match="cannot reach"):
            world.run_check("N17")
    elif verdict:
        with pytest.raises(Drift, match=verdict.partition(",")[0]):
            world.run_check("N17")
    else:
        world.run_check("N17")
