"""The lab's stand-in archives, as the machine's own apt sees them: signed, and with what each plan installs."""

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.nvidia import elf, kernel_packages, ubuntu_driver_packages
from lab.nvidia.debian_packages import StandInDeb, debs_by_name
from lab.nvidia.nvidia_driver_packages import nvidia_debian_debs, nvidia_ubuntu_debs, pinning_packages
from lab.nvidia.served_archives import ServedArchives, nvidia_packages, ubuntu_packages
from lab.nvidia.signing_keys import SigningKey
from rigwright.model.nvidia.driver_tables import load_driver_tables
from rigwright.paths import ROOT
from tests.unit import short_programs
from tests.unit.driver_samples import C3090, KERNELS, driver_rig, driverless_host, make_driver_plan
from tests.unit.stand_in_apt import FolderApt

pytestmark = [
    pytest.mark.all_only,  # what they stand in for is asked of them by every host test of the driver
    pytest.mark.skipif(
        not all(shutil.which(program) for program in ("apt-get", "dpkg-deb", "gpg", "gpgv")),
        reason="no apt, dpkg-deb or gpg here: stand-in archives need Debian or Ubuntu",
    ),
]
TABLES = load_driver_tables(ROOT)
VERSIONS = {580: "580.159.03", 595: "595.71.05", 610: "610.43.02", 615: "615.71.09"}
ROWS = [
    pytest.param(system, offer.source, branch, flavour, id=f"{system}-{offer.source}-{branch}-{flavour}")
    for offer in TABLES.offers
    for system in offer.systems
    for branch in offer.branches
    for flavour in ("open", "proprietary")
    if flavour == "open" or branch <= TABLES.last_proprietary
]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    return SigningKey.generate_key(tmp_path_factory.mktemp("keys") / "sound")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory, key: SigningKey) -> ServedArchives:
    folder = tmp_path_factory.mktemp("archives")
    return ServedArchives(folder, f"file://{folder}", key)


@pytest.fixture(scope="module")
def hosts(archives: ServedArchives, tmp_path_factory: pytest.TempPathFactory) -> dict[str, FolderApt]:
    """One for each system, with all that its archives are said to have."""
    found = {}
    for system, (kernel, flavour) in KERNELS.items():
        branches: dict[str, list[str]] = {"distribution": [], "nvidia": []}
        for offer in TABLES.offers:
            if system in offer.systems:
                branches[offer.source] += [VERSIONS[branch] for branch in offer.branches]
        debs = [*kernel_packages.kernel_packages([kernel], flavour), *kernel_packages.empty_tool_packages()]
        if branches["distribution"]:
            debs += ubuntu_packages(system, *branches["distribution"], releases=[kernel], flavour=flavour)
        archives.write_distribution(system, debs)
        archives.write_nvidia(system, nvidia_packages(system, *branches["nvidia"]))
        distribution = archives.distribution_source(
            system, "main restricted multiverse" if "ubuntu" in system else "main"
        )
        apt = FolderApt(tmp_path_factory.mktemp("hosts") / system, [distribution, archives.nvidia_source(system)])
        assert apt.update_lists() == ""
        found[system] = apt
    return found


@pytest.mark.parametrize(("system", "source", "branch", "flavour"), ROWS)
def test_what_a_plan_installs_is_there(
    hosts: dict[str, FolderApt], system: str, source: str, branch: int, flavour: str
) -> None:
    rig = driver_rig(C3090, branch=branch, source=source, flavour=flavour)
    plan = make_driver_plan(rig, driverless_host(system, "10de:2204"))
    apt, version = hosts[system], VERSIONS[branch]
    pins = [text for deb in pinning_packages(version)[:1] for text in deb.files.values() if plan.before]
    apt.write_preferences("\n".join([plan.pin, *map(str, pins)]))
    before, gone = apt.simulate_install(*plan.before) if plan.before else ({}, set())
    assert set(plan.before) <= set(before)
    assert not gone
    come, gone = apt.simulate_install(*plan.packages)
    assert set(plan.packages) <= set(come)
    assert not gone
    assert ("dkms" in come) == plan.dkms
    driver = {name: one for name, one in come.items() if "nvidia" in name and not name.startswith("linux-")}
    assert driver
    assert all(one.startswith(f"{version}-") for one in driver.values()), driver


def test_a_card_of_debian_brings_the_whole_driver(hosts: dict[str, FolderApt]) -> None:
    hosts["debian-13"].write_preferences(
        make_driver_plan(driver_rig(C3090), driverless_host("debian-13", "10de:2204")).pin
    )
    come, _ = hosts["debian-13"].simulate_install("nvidia-kernel-open-dkms", "nvidia-driver-cuda")
    wanted = {"libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-persistenced", "firmware-nvidia-gsp"}
    assert wanted | {"nvidia-modprobe", "nvidia-kernel-support"} <= set(come)


def test_debians_own_nvidia_smi_goes(hosts: dict[str, FolderApt]) -> None:
    apt = hosts["debian-12"]
    apt.set_installed([StandInDeb("nvidia-smi", "535.247.01-1~deb12u1", "nvidia-graphics-drivers")])
    try:
        come, gone = apt.simulate_install("nvidia-driver-cuda")
    finally:
        apt.set_installed([])
    assert "nvidia-driver-cuda" in come
    assert gone == {"nvidia-smi"}


def test_prebuilt_modules_stand_for_dkms_and_without_them_it_comes(hosts: dict[str, FolderApt]) -> None:
    apt = hosts["ubuntu-24.04"]
    apt.write_preferences("Package: *\nPin: release o=NVIDIA\nPin-Priority: -1\n")
    come, _ = apt.simulate_install("nvidia-driver-580-server-open")
    assert "dkms" in come
    come, _ = apt.simulate_install("linux-modules-nvidia-580-server-open-generic", "nvidia-driver-580-server-open")
    assert "dkms" not in come
    kernel = KERNELS["ubuntu-24.04"][0]
    assert f"linux-modules-nvidia-580-server-open-{kernel}" in come


def test_a_kernels_metapackage_brings_all_of_it_and_moves_the_one_of_the_whole(
    archives: ServedArchives, tmp_path: Path
) -> None:
    old, new = "6.8.0-40-generic", "6.8.0-45-generic"
    debs = [*kernel_packages.kernel_packages([old, new], "generic"), *kernel_packages.empty_tool_packages()]
    archives.write_distribution("ubuntu-24.04", debs, name="kernels")
    apt = FolderApt(tmp_path, [archives.distribution_source("ubuntu-24.04", name="kernels")])
    assert apt.update_lists() == ""
    apt.set_installed([*kernel_packages.kernel_packages([old], "generic"), *kernel_packages.empty_tool_packages()])
    come, gone = apt.simulate_install("linux-image-generic")
    assert not gone
    assert {f"linux-image-{new}", f"linux-modules-extra-{new}"} <= set(come)
    assert come["linux-generic"] == come["linux-image-generic"] == "6.8.0-45.45"


def test_desktop_and_server_cannot_both_be_there(hosts: dict[str, FolderApt]) -> None:
    apt = hosts["ubuntu-24.04"]
    apt.write_preferences("Package: *\nPin: release o=NVIDIA\nPin-Priority: -1\n")
    desktop = debs_by_name(
        ubuntu_driver_packages.stack_packages(VERSIONS[580], "24.04", ubuntu_driver_packages.DESKTOP)
    )
    there = ("libnvidia-compute-580", "nvidia-utils-580")
    apt.set_installed(desktop[name] for name in there)
    try:
        come, gone = apt.simulate_install("nvidia-utils-580-server")
    finally:
        apt.set_installed([])
    assert "libnvidia-compute-580-server" in come
    assert gone == set(there)


def excluded(one: StandInDeb, other: StandInDeb) -> bool:
    """Whether one says that the other cannot be there beside it."""
    return bool(set(one.conflicts) & {other.name, *(name.split(" ")[0] for name in other.provides)})


def test_packages_with_the_same_file_exclude_each_other() -> None:
    for stacks in (
        (
            ubuntu_driver_packages.stack_packages("580.159.03", "24.04"),
            ubuntu_driver_packages.stack_packages("595.71.05", "24.04", ubuntu_driver_packages.DESKTOP),
        ),
        (ubuntu_driver_packages.stack_packages("580.159.03", "24.04"), nvidia_ubuntu_debs("580.159.03")),
        (ubuntu_driver_packages.stack_packages("580.159.03", "24.04"), nvidia_ubuntu_debs("595.71.05")),
        (nvidia_ubuntu_debs("580.159.03"), nvidia_ubuntu_debs("595.71.05")),
        (nvidia_debian_debs("595.71.05"), []),
    ):
        debs = [deb for stack in stacks for deb in stack]
        for one, other in itertools.combinations(debs, 2):
            common = {*one.files, *one.links} & {*other.files, *other.links}
            if one.name != other.name and common:
                assert excluded(one, other) or excluded(other, one), (one.name, other.name, common)


def test_packages_of_an_older_branch_can_bring_a_newer_driver(archives: ServedArchives, tmp_path: Path) -> None:
    debs = [
        *ubuntu_driver_packages.stack_packages("580.159.03", "24.04"),
        *ubuntu_driver_packages.transitional_packages("570", "580.159.03", "24.04"),
    ]
    # a name of 580 that is none
    debs += [
        *ubuntu_driver_packages.stack_packages("595.84", "24.04"),
        *ubuntu_driver_packages.transitional_packages("580", "595.84", "24.04"),
    ]
    archives.write_distribution("ubuntu-24.04", debs, "transitional")
    apt = FolderApt(tmp_path / "host", [archives.distribution_source("ubuntu-24.04", "restricted", "transitional")])
    assert apt.update_lists() == ""
    come, _ = apt.simulate_install("nvidia-utils-580-server")
    assert come["nvidia-utils-595-server"] == "595.84-0ubuntu0.24.04.1"
    assert come["nvidia-utils-580-server"] == "595.84-0ubuntu0.24.04.1"
    come, _ = apt.simulate_install(
        "nvidia-utils-570-server",
        "nvidia-utils-580-server=580.159.03-0ubuntu0.24.04.1",
        "libnvidia-compute-580-server=580.159.03-0ubuntu0.24.04.1",
    )
    assert come["nvidia-utils-570-server"] == "580.159.03-0ubuntu0.24.04.1"
    assert "nvidia-utils-595-server" not in come


def test_of_two_drivers_of_a_branch_the_newer_has_the_modules(archives: ServedArchives, tmp_path: Path) -> None:
    kernel = "6.8.0-40-generic"
    debs = ubuntu_packages("ubuntu-24.04", "580.159.03", "580.178.04", releases=[kernel], respin=2)
    archives.write_distribution(
        "ubuntu-24.04", [*debs, kernel_packages.image_package(kernel), *kernel_packages.empty_tool_packages()], "two"
    )
    apt = FolderApt(
        tmp_path / "host", [archives.distribution_source("ubuntu-24.04", "main restricted multiverse", "two")]
    )
    assert apt.update_lists() == ""
    modules = "linux-modules-nvidia-580-server-open-generic"
    come, _ = apt.simulate_install(modules, "nvidia-utils-580-server")
    assert come[modules] == "6.8.0-40.40+2"
    assert come["nvidia-utils-580-server"] == "580.178.04-0ubuntu0.24.04.1"
    with pytest.raises(RuntimeError, match="unmet dependencies"):
        apt.simulate_install(modules, "nvidia-kernel-common-580-server=580.159.03-0ubuntu0.24.04.1")


def test_an_archive_is_what_it_was_written_with_last(archives: ServedArchives, tmp_path: Path) -> None:
    def policy(*versions: str) -> str:
        archives.write_nvidia("debian-12", nvidia_packages("debian-12", *versions))
        apt = FolderApt(tmp_path / "-".join(versions), [archives.nvidia_source("debian-12")])
        assert apt.update_lists() == ""
        return apt.run_command("apt-cache", "policy", "libcuda1").stdout

    assert "Candidate: 580.178.04-1" in policy("580.159.03", "580.178.04")
    lower = policy("580.159.03")
    assert "Candidate: 580.159.03-1" in lower
    assert "580.178.04" not in lower


def test_the_same_package_has_the_same_bytes(tmp_path: Path) -> None:
    for deb in nvidia_debian_debs("595.71.05"):
        for name in ("one", "two"):
            (tmp_path / name).mkdir(exist_ok=True)
            deb.build_package(tmp_path / name)
        assert (tmp_path / "one" / deb.file_name).read_bytes() == (tmp_path / "two" / deb.file_name).read_bytes()


def test_gpgv_takes_the_signature(archives: ServedArchives, key: SigningKey, tmp_path: Path) -> None:
    place = archives.write_nvidia("debian-13", nvidia_debian_debs("595.71.05"))
    ring = tmp_path / "ring.gpg"
    subprocess.run(["gpg", "--batch", "--dearmor", "-o", str(ring)], input=key.public.encode(), check=True)
    for words in ([str(place / "InRelease")], [str(place / "Release.gpg"), str(place / "Release")]):
        command = ["gpgv", "--keyring", str(ring), "--status-fd", "1", *words]
        done = short_programs.run_program(command, check=True)
        assert f"VALIDSIG {key.fingerprint}" in done.stdout
    assert (place / "8793F200.pub").read_text() == key.public


@pytest.mark.parametrize(
    ("faults", "words"),
    # gpgv's words, and those of sqv
    [({"expired": True}, ("EXPKEYSIG", "not live")), ({}, ("NO_PUBKEY", "Missing key"))],
    ids=["old", "other"],
)
def test_an_archive_of_another_or_an_old_key_is_refused(
    archives: ServedArchives, tmp_path: Path, faults: dict[str, bool], words: tuple[str, str]
) -> None:
    bad = SigningKey.generate_key(tmp_path / "bad", **faults)
    ServedArchives(archives.folder, archives.url, bad).write_nvidia("debian-12", nvidia_debian_debs("580.159.03"))
    trusted = bad if faults else archives.key
    text = ServedArchives(archives.folder, archives.url, trusted).nvidia_source("debian-12")
    said = FolderApt(tmp_path / "host", [text]).update_lists()
    assert any(word in said for word in words), said


def test_a_key_can_sign_itself_with_sha1(tmp_path: Path) -> None:
    weak = SigningKey.generate_key(tmp_path / "weak", sha1=True)
    listed = subprocess.run(["gpg", "--list-packets"], input=weak.public.encode(), capture_output=True, check=True)
    assert b"digest algo 2," in listed.stdout  # https://www.rfc-editor.org/rfc/rfc4880, 9.4


def test_a_package_twice_is_refused(archives: ServedArchives) -> None:
    with pytest.raises(ValueError, match="named twice"):
        archives.write_nvidia("debian-12", [*nvidia_debian_debs("580.159.03"), *nvidia_debian_debs("580.159.03")])


def test_operators_tables_know_the_archives_of_a_test(archives: ServedArchives, tmp_path: Path) -> None:
    own = tmp_path / "catalog/driver/driver.toml"
    own.parent.mkdir(parents=True)
    own.write_text(ServedArchives(archives.folder, "http://10.0.0.1:8080", archives.key).driver_tables())
    read = load_driver_tables(tmp_path)
    assert read.base == "http://10.0.0.1:8080/cuda"
    assert {one.fingerprint for one in read.archives} == {archives.key.fingerprint}
    assert read.offers == TABLES.offers


def test_a_library_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.580.159.03"
    path.write_bytes(elf.shared_library("libcuda.so.1"))
    ctypes.CDLL(str(path))


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.1.0-40-amd64", "6.1.9040-1"), ("6.12.94+deb13-amd64", "6.12.9094-1"), ("6.8.0-40-generic", "6.8.0-40.40")],
)
def test_kernels_of_debian_are_above_its_own(release: str, version: str) -> None:
    assert kernel_packages.package_version(release) == version
    assert debs_by_name(kernel_packages.kernel_packages([release], "amd64"))["linux-image-amd64"].version == version


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="no release of a kernel"):
        kernel_packages.package_version("6.18.44-fc")
