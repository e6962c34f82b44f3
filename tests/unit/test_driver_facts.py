"""The driver probe's output becomes facts; the probe itself runs against a folder that stands in for a host."""

import os
from pathlib import Path

import pytest

from rigwright.host.pci_cards import PciCard
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage, parse, render_probe
from tests.unit import short_programs
from tests.unit.channel_records import card_record, channel_lines
from tests.unit.driver_folder import SECURE_BOOT, DriverProbeHost
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig

RECORDS: tuple[tuple[str, ...], ...] = (
    ("os_id", "ubuntu"),
    ("os_version", "24.04"),
    ("architecture", "x86_64"),
    ("kernel", "6.14.0-29-generic"),
    (
        "package",
        "linux-image-generic-hwe-24.04",
        "installed",
        "6.14.1",
        "linux-image-6.14.0-33-generic, linux-firmware",
    ),
    ("package", "linux-image-generic", "installed", "6.8.1", "linux-image-6.8.0-40-generic"),
    ("package", "linux-image-6.8.0-40-generic", "installed", "6.8.1", ""),
    ("secure_boot", "on"),
    ("key_enrolled", "no"),
    card_record("0000:21:00.0", "10de:2204", "nouveau"),
    card_record("0000:01:00.0", "10de:2b85"),
    ("module", "580.159.03"),
    ("module_open", "yes"),
    ("params", ""),
    ("nouveau", "no"),
    ("run_file", "/usr/bin/nvidia-uninstall"),
    ("origin", "libnvidia-compute-580-server", "Ubuntu"),
    ("package", "nvidia-settings", "installed", "510.47.03-0ubuntu4", ""),
    ("package", "libnvidia-compute-580-server", "installed", "580.159.03-0ubuntu0.24.04.1", ""),
    ("nvidia_source", "ubuntu2404", "/etc/apt/sources.list.d/my cuda.list"),
    ("package", "nvidia-dkms-580-open", "half-configured", "580.159.03", ""),
    ("package", "linux-headers-generic", "installed", "6.8.1", ""),
    ("held", "nvidia-settings"),
    ("kernel_module", "6.14.0-33-generic", ""),
    ("kernel_module", "6.14.0-29-generic", "580.159.03"),
    ("kernel_module", "6.14.0-29-generic", "580.159.03"),
    ("initrd_old", "6.14.0-29-generic"),
    ("initrd_old", "6.14.0-29-generic"),
    ("devices", "yes"),
    ("persistence", "masked-runtime"),
    ("recorded", "nvidia-settings", "510.47.03-0ubuntu4"),
    ("kept", "580.159.03"),
    ("toolkit", "13.0.88"),
)
SINGLE = ("os_id", "os_version", "architecture", "kernel", "secure_boot", "key_enrolled", "module", "module_open")
SINGLE += ("params", "nouveau", "devices", "persistence", "toolkit")


def test_the_output_of_a_driver_probe_becomes_facts() -> None:
    found = parse(channel_lines(*RECORDS))
    assert found == DriverFacts(
        os_id="ubuntu",
        os_version="24.04",
        architecture="x86_64",
        kernel="6.14.0-29-generic",
        kernel_packages=(
            ("linux-image-generic", "6.8.0-40-generic"),
            ("linux-image-generic-hwe-24.04", "6.14.0-33-generic"),
        ),
        secure_boot="on",
        cards=(PciCard("0000:01:00.0", "10de:2b85"), PciCard("0000:21:00.0", "10de:2204", "nouveau")),
        module="580.159.03",
        module_open=True,
        packages=(
            InstalledPackage("libnvidia-compute-580-server", "580.159.03-0ubuntu0.24.04.1", "Ubuntu"),
            InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4"),
        ),
        run_files=("/usr/bin/nvidia-uninstall",),
        half=("nvidia-dkms-580-open",),
        headers=frozenset({"linux-headers-generic"}),
        held=frozenset({"nvidia-settings"}),
        kernel_modules=(("6.14.0-29-generic", "580.159.03"), ("6.14.0-33-generic", "")),
        old_initrds=("6.14.0-29-generic",),
        devices=True,
        persistence="masked-runtime",
        recorded=(("nvidia-settings", "510.47.03-0ubuntu4"),),
        kept=("580.159.03",),
        nvidia_sources=(("ubuntu2404", "/etc/apt/sources.list.d/my cuda.list"),),
        toolkit="13.0.88",
    )
    assert found.metapackage == ("generic-hwe-24.04", "6.14.0-33-generic")
    assert [one.name for one in found.driver_packages] == ["libnvidia-compute-580-server"]


@pytest.mark.parametrize("key", SINGLE)
def test_missing_parts_are_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"'{key}'"):
        parse(channel_lines(*(record for record in RECORDS if record[0] != key)))


@pytest.mark.parametrize(
    "record",
    [
        ("package", "a"),
        ("package", "a b", "installed", "1", ""),
        ("package", "a", "installed", "1; reboot", ""),
        ("package", "a", "config-files", "1", ""),
        card_record("0000:01:00.0", "10de:2204\nkept x"),
        ("kept", "../../etc"),
        ("secure_boot", "perhaps"),
        ("persistence", "x"),
    ],
)
def test_values_of_another_type_are_refused(record: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse(channel_lines(*RECORDS, record))


@pytest.mark.parametrize(
    ("name", "version", "driver"),
    [
        ("libcuda1", "580.95.05-1", "580.95.05"),
        ("libcuda1", "1:595.71.05-1~deb13", "595.71.05"),
        ("nvidia-utils-580", "580.159.03-0ubuntu0~gpu24.04.1", "580.159.03"),
        ("nvidia-kernel-common", "20220217+3~deb12u1", ""),
        ("nvidia-container-toolkit", "1.20.0-1", ""),
        ("nvidia-settings", "510.47.03-0ubuntu4", ""),
        ("nvidia-driver-pinning-580", "580-1", ""),
        ("linux-modules-nvidia-580-server-open-generic", "6.8.0-40.40+1", ""),
    ],
)
def test_a_package_of_the_driver_is_distinguished_from_one_with_its_own_version(
    name: str, version: str, driver: str
) -> None:
    assert InstalledPackage(name, version).driver == driver


@pytest.mark.parametrize(
    ("kernel", "there", "flavour"),
    [
        ("6.12.94+deb13-amd64", {"amd64": "6.12.107+deb13-amd64"}, "amd64"),
        ("6.1.0-40-cloud-amd64", {"amd64": "6.1.0-40-amd64", "cloud-amd64": "6.1.0-40-cloud-amd64"}, "cloud-amd64"),
        ("6.8.0-40-generic", {"generic": "6.8.0-44-generic", "generic-hwe-24.04": "6.14.0-29-generic"}, "generic"),
        ("6.8.0-40-generic", {"generic-hwe-24.04": "6.14.0-29-generic"}, "generic-hwe-24.04"),
        ("6.8.0-40-generic", {"lowlatency": "6.8.0-40-lowlatency"}, ""),
        ("6.12.12", {"amd64": "6.1.0-40-amd64"}, ""),
        ("6.8.0-40-generic", {}, ""),
    ],
)
def test_the_running_kernels_metapackage_is_found(kernel: str, there: dict[str, str], flavour: str) -> None:
    packages = tuple((f"linux-image-{name}", brought) for name, brought in there.items())
    found = DriverFacts("debian", "13", "x86_64", kernel, packages)
    assert found.metapackage == ((flavour, there[flavour]) if flavour else ("", ""))


@pytest.fixture
def host(tmp_path: Path) -> DriverProbeHost:
    return DriverProbeHost(tmp_path / "host")


def test_a_bare_host_has_nothing(host: DriverProbeHost) -> None:
    write_stand_in(host.root / "bin", "dpkg-query", "exit 1")
    write_stand_in(host.root / "bin", "apt-cache", "true")
    found = host.run_probe()
    kernel = os.uname()
    assert found == DriverFacts(
        "ubuntu", "24.04", kernel.machine, kernel.release, kernel_modules=((kernel.release, ""),)
    )


@pytest.mark.parametrize(
    ("said", "state"), [("masked", "masked"), ("masked-runtime", "masked-runtime"), ("enabled", ""), ("", "")]
)
def test_a_masked_daemon_is_found(host: DriverProbeHost, said: str, state: str) -> None:
    write_stand_in(
        host.root / "bin", "systemctl", f'[ "$*" != "is-enabled nvidia-persistenced.service" ] || echo "{said}"'
    )
    assert host.run_probe().persistence == state


def test_packages_have_the_archive_that_they_are_from(host: DriverProbeHost) -> None:
    found = {one.name: (one.version, one.origin) for one in host.run_probe().packages}
    assert found == {
        # no archive has the installed version any more: other repositories may have the package now
        "libnvidia-compute-580-server": ("580.159.03-0ubuntu0.24.04.1", "Ubuntu"),
        "nvidia-utils-580-server": ("580.159.03-0ubuntu0.24.04.1", "NVIDIA"),
        "nvidia-local": ("1.0", ""),
        "nvidia-ppa": ("580.1-1", "LP_PPA"),
    }


def test_metapackages_have_the_kernel_that_they_bring(host: DriverProbeHost) -> None:
    assert host.run_probe().kernel_packages == (
        ("linux-image-amd64", "6.1.0-40-amd64"),
        ("linux-image-generic", "6.8.0-40-generic"),
    )


@pytest.mark.parametrize(
    ("variable", "state"), [(b"\6\0\0\0\1", "on"), (b"\6\0\0\0\0", "off"), (b"", "unknown"), (None, "unknown")]
)
def test_secure_boot_is_read_from_the_firmware(host: DriverProbeHost, variable: bytes | None, state: str) -> None:
    (host.root / "sys/firmware/efi").mkdir(parents=True)
    if variable is not None:
        host.write(f"sys/firmware/efi/{SECURE_BOOT}", variable)
    assert host.run_probe().secure_boot == state


def test_a_key_counts_that_the_firmware_trusts(host: DriverProbeHost) -> None:
    write_stand_in(host.root / "bin", "mokutil", 'echo "$2 is already enrolled"')
    assert not host.run_probe().key_enrolled
    host.write("var/lib/dkms/mok.pub")
    assert host.run_probe().key_enrolled
    write_stand_in(host.root / "bin", "mokutil", 'echo "$2 is not enrolled"')
    assert not host.run_probe().key_enrolled


def test_cards_have_the_driver_that_they_are_bound_to(host: DriverProbeHost) -> None:
    host.add_card("0000:21:00.0", "2204", "nouveau")
    host.add_card("0000:01:00.0", "2b85")
    host.add_card("0000:01:00.1", "22e8", kind="0x040300")
    host.add_card("0000:02:00.0", "744c", vendor="0x1002")
    assert host.run_probe().cards == (
        PciCard("0000:01:00.0", "10de:2b85"),
        PciCard("0000:21:00.0", "10de:2204", "nouveau"),
    )


@pytest.mark.parametrize("flavour", ["Open Kernel Module for x86_64", "Kernel Module"])
def test_a_loaded_module_has_its_version_and_flavour(host: DriverProbeHost, flavour: str) -> None:
    host.write("sys/module/nvidia/version", "580.159.03\n")
    host.write("sys/module/nouveau/refcnt")
    host.write("proc/driver/nvidia/params", 'EnableResizableBar: 1\nRegistryDwords: ""\n')
    host.write("proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {flavour}  580.159.03\n")
    found = host.run_probe()
    assert (found.module, found.module_open, found.nouveau) == ("580.159.03", flavour.startswith("Open"), True)
    assert found.params == (("EnableResizableBar", "1"), ("RegistryDwords", '""'))


def test_remains_of_a_run_file_are_found_unless_a_package_owns_them(host: DriverProbeHost) -> None:
    path = host.write("usr/bin/nvidia-uninstall")
    assert host.run_probe().run_files == (str(path),)
    write_stand_in(host.root / "bin", "dpkg-query", "exit 0")
    assert host.run_probe().run_files == ()


def test_sources_of_nvidias_have_their_release(host: DriverProbeHost) -> None:
    host.write(
        "etc/apt/sources.list", "# deb https://x.example/cuda/repos/debian11/x86_64/ /\ndeb http://y.example/ b c\n"
    )
    old = host.write("etc/apt/sources.list.d/a b.list", "deb https://x.example/compute/cuda/repos/debian12/x86_64/ /\n")
    new = host.write("etc/apt/sources.list.d/c.sources", "URIs: https://x.example/cuda/repos/debian13/x86_64/\n")
    local = host.write("etc/apt/sources.list.d/d.list", "deb file:///var/cuda-repo-ubuntu2404-13-0-local /\n")
    assert host.run_probe().nvidia_sources == (
        ("debian12", str(old)),
        ("debian13", str(new)),
        ("ubuntu2404", str(local)),
    )


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("Enabled: no", False),
        ("enabled:OFF ", False),
        ("Enabled: false", False),
        ("Enabled: yes", True),
        ("#Enabled: no", True),
        ("X-Enabled: no", True),
    ],
)
@pytest.mark.parametrize("gap", ["\n", " \n"], ids=["blank", "of blanks"])
def test_a_source_that_is_switched_off_does_not_count(host: DriverProbeHost, line: str, counts: bool, gap: str) -> None:
    uri = "URIs: https://x.example/cuda/repos/{}/x86_64/\n"
    text = f"Types: deb\n{line}\n{uri.format('debian12')}{gap}Types: deb\n{uri.format('debian13')}"
    path = host.write("etc/apt/sources.list.d/c.sources", text)
    releases = ["debian12", "debian13"] if counts else ["debian13"]
    assert host.run_probe().nvidia_sources == tuple((release, str(path)) for release in releases)


def test_nvcc_says_its_own_version(host: DriverProbeHost) -> None:
    write_stand_in(host.root / "cuda/bin", "nvcc", "echo 'Cuda compilation tools, release 13.2, V13.2.78'")
    assert host.run_probe().toolkit == "13.2.78"


def test_the_probe_runs_on_this_machine() -> None:
    box_rig = sample_rig()
    done = short_programs.run_program(["sh", "-c", render_probe(box_rig.roots, box_rig.toolkit)], check=True)
    assert parse(done.stdout.splitlines()).kernel == os.uname().release
