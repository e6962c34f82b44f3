"""The findings of the survey's module of the next boot in a folder that stands in for a host."""

import gzip
from collections.abc import Callable

import pytest

from checks.survey.host import boot
from tests.unit.survey_root import WriteFile

pytest_plugins = ["tests.unit.survey_root"]


def cpio(**inside: str) -> bytes:
    """An archive as a kernel reads it."""
    made = b""
    for name, text in {**inside, "TRAILER!!!": ""}.items():
        path, data = name.encode() + b"\0", text.encode()
        fields = (0, 0o100644 if text else 0, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        made += b"070701" + b"".join(b"%08X" % field for field in fields) + path
        made += b"\0" * (-len(made) % 4) + data
        made += b"\0" * (-len(made) % 4)
    return made


OURS = "blacklist nouveau\n# nvidia\noptions nvidia a=1\n"


def packed(**inside: str) -> bytes:
    """Two archives, the first one as it is and padded: a processor's microcode is packed so."""
    first = cpio(**{"kernel/x86/microcode/GenuineIntel.bin": "x" * 100})
    return first + b"\0" * (-len(first) % 512) + gzip.compress(cpio(**inside))


def test_an_initial_file_system_is_compared_with_the_disk(write: WriteFile) -> None:
    write("usr/share/initramfs-tools/scripts/init-top/a", "a\n")
    write("usr/share/initramfs-tools/init", "init\n")
    write("lib/modules/6.1/updates/nvidia.ko", "the module")
    write("etc/modprobe.d/ours.conf", OURS)
    write("lib/modprobe.d/packaged.conf", OURS)
    write("etc/modprobe.d/changed.conf", f"{OURS}#\n")
    write("etc/modprobe.d/lacking.conf", OURS)
    inside = {
        "init": "init\n",
        "etc/modprobe.d/ours.conf": OURS,
        "usr/lib/modprobe.d/packaged.conf": OURS,
        "etc/modprobe.d/changed.conf": OURS,
        "etc/modprobe.d/gone.conf": OURS,
        "scripts/init-top/a": "a\n",
        "scripts/init-top/b": "b\n",
        "scripts/init-top/ORDER": "made\n",
        "usr/lib/modules/6.1/updates/nvidia.ko": "another",
    }
    write("boot/initrd.img-6.1", packed(**inside))
    found = boot.initrd("6.1")
    assert found["problem"] == ""
    assert found["lacking"] == ["/etc/modprobe.d/lacking.conf"]
    assert found["differs"] == [
        ["etc/modprobe.d/changed.conf", "has another content than on the disk"],
        ["etc/modprobe.d/gone.conf", "is not on the disk"],
        ["scripts/init-top/b", "is not on the disk"],
        ["usr/lib/modules/6.1/updates/nvidia.ko", "has another content than on the disk"],
    ]


def test_a_second_archive_in_the_packed_part_is_read(write: WriteFile) -> None:
    write("usr/share/initramfs-tools/init", "init\n")
    first, second = cpio(init="init\n"), cpio(**{"scripts/init-top/b": "b\n"})
    write("boot/initrd.img-6.1", gzip.compress(first + bytes(-len(first) % 512) + second + bytes(512)))
    found = boot.initrd("6.1")
    assert (found["problem"], found["differs"]) == ("", [["scripts/init-top/b", "is not on the disk"]])


@pytest.mark.parametrize("gap", range(4, 25, 4))
def test_each_plain_archive_is_read_whatever_lies_between(write: WriteFile, gap: int) -> None:
    write("usr/share/initramfs-tools/init", "init\n")
    first, second = cpio(init="init\n"), cpio(**{"scripts/init-top/b": "b\n"})
    write("boot/initrd.img-6.1", first + bytes(gap) + second)
    found = boot.initrd("6.1")
    assert (found["problem"], found["differs"]) == ("", [["scripts/init-top/b", "is not on the disk"]])


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-200], lambda data: data[:560], lambda _: b"nonsense", lambda _: b"\x1f\x8bx"]
)
def test_one_that_is_cut_off_is_reported(write: WriteFile, spoil: Callable[[bytes], bytes]) -> None:
    write("boot/initrd.img-6.1", spoil(packed(init="x" * 5000)))
    found = boot.initrd("6.1")
    assert found["there"]
    assert found["problem"]


GRUB = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
else
   set default="0"
fi
menuentry 'Debian' --class debian $menuentry_id_option 'simple' {
	linux	/boot/vmlinuz-6.2 root=UUID=a ro quiet
	initrd	/boot/initrd.img-6.2
}
submenu 'Advanced' $menuentry_id_option 'advanced' {
	menuentry 'Debian 6.2' $menuentry_id_option 'one' {
		linux	/boot/vmlinuz-6.2 root=UUID=a ro
	}
	menuentry 'Debian 6.1' $menuentry_id_option 'two' {
		linux	/boot/vmlinuz-6.1 root=UUID=a ro systemd.unit=rescue.target
	}
}
"""


@pytest.mark.parametrize(
    ("default", "kept", "expected"),
    [
        ("0", "", "6.2"),
        ("1>1", "", "6.1"),
        ("advanced>two", "", "6.1"),
        ("Advanced>Debian 6.1", "", "6.1"),
        ("${saved_entry}", "saved_entry=two\n", "6.1"),
        ("0", "next_entry=1>1\n", "6.1"),
        ("gone", "", "6.2"),
    ],
)
def test_the_boot_loaders_next_kernel_is_known(write: WriteFile, default: str, kept: str, expected: str) -> None:
    write("boot/grub/grub.cfg", GRUB.replace('set default="0"', f'set default="{default}"'))
    write("boot/grub/grubenv", f"# GRUB Environment Block\n{kept}####")
    found = boot.grub()
    assert found is not None
    assert found["kernel"] == expected
    assert ("systemd.unit=rescue.target" in found["words"]) == (expected == "6.1")


def test_disks_of_fstab_that_are_not_there_are_named(write: WriteFile) -> None:
    write("etc/fstab", "UUID=1 / ext4\n/dev/sdb /srv/a ext4 defaults 0 2\n/dev/sdc /x ext4 nofail 0 2\n# /dev/sdd /y\n")
    write("dev/disk/by-uuid/1")
    assert boot.away() == ["/dev/sdb on /srv/a"]
