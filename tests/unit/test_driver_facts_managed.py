"""The driver probe's findings during an installation: modules, holds, halves and our own record."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.driver_folder import DriverProbeHost
from tests.unit.rendered_scripts import write_stand_in

RUNS = os.uname().release
MODINFO = """
while [ $# -gt 1 ]; do
  [ "$1" != -k ] || kernel=$2
  shift
done
cat "$(dirname "$0")/../modules/$kernel/$1"
"""


@pytest.fixture
def host(tmp_path: Path) -> DriverProbeHost:
    made = DriverProbeHost(tmp_path / "host")
    write_stand_in(made.root / "bin", "modinfo", MODINFO)
    return made


def test_each_kernel_that_can_be_booted_and_the_one_that_runs_has_its_module(host: DriverProbeHost) -> None:
    for kernel in ("6.1.0-9-amd64", "6.1.0-40-amd64", "6.1.0-41-amd64"):
        host.write(f"boot/vmlinuz-{kernel}")
    host.write("boot/config-6.1.0-42-amd64")
    host.write("modules/6.1.0-9-amd64/nvidia", "580.159.03\n")
    host.write("modules/6.1.0-40-amd64/nvidia", "580.178.04\n580.178.04\n")
    host.write(f"modules/{RUNS}/nvidia", "595.71.05\n")
    found = host.run_probe()
    assert dict(found.kernel_modules) == {
        "6.1.0-9-amd64": "580.159.03",
        "6.1.0-40-amd64": "580.178.04",
        "6.1.0-41-amd64": "",
        RUNS: "595.71.05",
    }


def test_the_kernel_that_boots_next_is_the_newest_by_its_numbers(host: DriverProbeHost) -> None:
    for kernel in ("99.1.0-9-amd64", "99.1.0-40-amd64"):
        host.write(f"boot/vmlinuz-{kernel}")
    assert host.run_probe().newest_kernel == "99.1.0-40-amd64"


def test_a_host_without_kernels_of_its_own_has_the_one_that_runs(host: DriverProbeHost) -> None:
    found = host.run_probe()
    assert (found.kernel_modules, found.newest_kernel) == (((RUNS, ""),), RUNS)


@pytest.mark.parametrize(("image", "options", "old"), [(1, 2, True), (2, 1, False), (None, 1, False), (1, None, False)])
def test_an_initial_file_system_of_dracut_is_old_that_was_made_before_our_options(host, image, options, old):
    for name in ("update-initramfs", "dracut"):
        write_stand_in(host.root / "bin", name, "true")
    host.write("boot/vmlinuz-6.1.0-40-amd64")
    places = {"boot/initrd.img-6.1.0-40-amd64": image, "modprobe": options}
    for name, second in places.items():
        if second is not None:
            os.utime(host.write(name), (second, second))
    assert host.run_probe(modprobe=f"{host.root}/modprobe").old_initrds == (("6.1.0-40-amd64",) if old else ())


IMAGE = "boot/initrd.img-6.1.0-40-amd64"
# an image is what is packed, in the text of one file, and says that it was looked into
UNPACK = """
echo "$2" >> "$(dirname "$0")/../looked"
[ -s "$1" ] || exit 1
mkdir -p "$2/main/$(dirname "$OURS")" && cp "$1" "$2/main/$OURS"
"""


class InitramfsHost:
    """A host of initramfs-tools with our file for modprobe; its image was made after that."""

    def __init__(self, host: DriverProbeHost) -> None:
        self.host, self.ours, self.image = host, host.write("modprobe", "blacklist nouveau\n"), host.root / IMAGE
        write_stand_in(host.root / "bin", "update-initramfs", "true")
        write_stand_in(host.root / "bin", "unmkinitramfs", f"OURS={self.ours}\n{UNPACK}")
        host.write("boot/vmlinuz-6.1.0-40-amd64")
        host.write("state/driver/installed")

    @property
    def old(self) -> bool:
        """The probe's output about it."""
        found = self.host.run_probe(modprobe=str(self.ours), state=f"{self.host.root}/state").old_initrds
        assert set(found) <= {"6.1.0-40-amd64"}
        return bool(found)

    @property
    def unpack_count(self) -> int:
        """How often it was looked into; the unpacked files are not left."""
        folders = (self.host.root / "looked").read_text().splitlines()
        assert not [folder for folder in folders if Path(folder).exists()]
        return len(folders)


@pytest.mark.parametrize(
    ("packed", "old"),
    [("blacklist nouveau\n", False), ("blacklist nouveau \n", True), ("", True)],
    ids=["the same", "another text", "none"],
)
def test_an_initial_file_system_is_old_that_has_not_our_options_byte_for_byte(host, packed, old):
    one = InitramfsHost(host)
    host.write(IMAGE, packed)
    assert (one.old, one.unpack_count) == (old, 1)


def test_an_initial_file_system_is_looked_into_again_only_once_it_or_our_options_are_others(host):
    one = InitramfsHost(host)
    host.write(IMAGE, "blacklist nouveau\n")
    assert [one.old, one.old, one.unpack_count] == [False, False, 1]
    before = one.image.stat()
    # another one of the same size and date
    host.write(IMAGE, "blacklist nouveaX\n")
    os.utime(one.image, ns=(before.st_atime_ns, before.st_mtime_ns))
    # a missing part is not remembered
    assert [one.old, one.old, one.unpack_count] == [True, True, 3]
    host.write(IMAGE, "blacklist nouveau\n")
    assert [one.old, one.unpack_count] == [False, 4]
    one.ours.write_text("blacklist nouveaX\n")
    assert [one.old, one.unpack_count] == [True, 5]


def test_before_there_is_a_place_to_remember_it_an_initial_file_system_is_looked_into_each_time(host):
    one = InitramfsHost(host)
    host.write(IMAGE, "blacklist nouveau\n")
    (host.root / "state/driver/installed").unlink()
    (host.root / "state/driver").rmdir()
    assert [one.old, one.old, one.unpack_count] == [False, False, 2]
    assert not (host.root / "state/driver").exists()


def test_holds_are_read_where_apt_cannot_read_a_source(host: DriverProbeHost) -> None:
    rows = "'hold libcuda1' 'hold libcuda1' 'hold g++' 'install cuda-y' 'deinstall cuda-z' 'hold cuda-x'"
    write_stand_in(host.root / "bin", "dpkg-query", f"case $* in *Want*) printf '%s\\n' {rows} ;; esac")
    write_stand_in(host.root / "bin", "apt-mark", "exit 100")
    assert host.run_probe().held == {"libcuda1", "g++", "cuda-x"}


BROKEN_APT = """
echo 'E: Malformed entry 1 in list file /etc/apt/sources.list.d/vendor.list (Component)' >&2
echo 'E: The list of sources could not be read.' >&2
exit 100
"""
MALFORMED = (
    "apt-cache ended with status 100: E: Malformed entry 1 in list file /etc/apt/sources.list.d/vendor.list "
    "(Component) E: The list of sources could not be read."
)


def test_a_source_that_apt_cannot_read_leaves_all_but_origins(host: DriverProbeHost) -> None:
    whole = host.run_probe()
    write_stand_in(host.root / "bin", "apt-cache", BROKEN_APT)
    found = host.run_probe()
    assert found.apt_failure == MALFORMED
    assert whole == replace(found, apt_failure="", packages=whole.packages)
    assert [(one.name, one.version, "") for one in whole.packages] == [
        (one.name, one.version, one.origin) for one in found.packages
    ]


def test_installations_that_were_begun_and_not_ended_are_found(host: DriverProbeHost) -> None:
    states = ("installed", "half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
    rows = [
        *(f"{state} nvidia-{state} 1.0 ;" for state in states),
        "half-installed nvidia-first  ;",
        "config-files nvidia-gone 1.0 ;",
        "not-installed nvidia-no  ;",
    ]
    lines = " ".join(f"'{row}'" for row in rows)
    write_stand_in(host.root / "bin", "dpkg-query", f"case $* in *nvidia*) printf '%s\\n' {lines} ;; esac")
    found = host.run_probe()
    assert set(found.half) == {"nvidia-first", *(f"nvidia-{state}" for state in states[1:])}
    assert [one.name for one in found.packages] == ["nvidia-installed"]


def test_our_own_record_and_the_drivers_that_are_kept_whole_are_found(host: DriverProbeHost) -> None:
    state = f"{host.root}/state with a blank"
    host.write("state with a blank/driver/installed", "libcuda1 595.71.05-1\nnvidia-driver-cuda 595.71.05-1\n")
    host.write("state with a blank/driver/held", "libcuda1\n")
    for version in ("595.71.05", "580.178.04"):
        host.write(f"state with a blank/driver/{version}/SHA256SUMS")
    host.write("state with a blank/driver/610.43.02.new/libcuda1.deb")
    host.write("state with a blank/driver/fetched.Ab3/libcuda1.deb")
    found = host.run_probe(state=state)
    assert found.recorded == (("libcuda1", "595.71.05-1"), ("nvidia-driver-cuda", "595.71.05-1"))
    assert found.kept == ("580.178.04", "595.71.05")


def test_the_drivers_device_files_are_devices_and_both_of_them(host: DriverProbeHost) -> None:
    assert host.run_probe().devices is False
    host.write("dev/nvidiactl")
    (host.root / "dev/nvidia-uvm").symlink_to("/dev/null")
    assert host.run_probe().devices is False
    (host.root / "dev/nvidiactl").unlink()
    (host.root / "dev/nvidiactl").symlink_to("/dev/null")
    assert host.run_probe().devices is True
    (host.root / "dev/nvidia-uvm").unlink()
    assert host.run_probe().devices is False
