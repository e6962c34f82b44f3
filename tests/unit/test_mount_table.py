"""The one reader of mounts: the kernel's list, fstab and mount units."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from checks.survey.host import mount_table
from checks.survey.host.mount_table import Mount, TableRow
from checks.survey.trees import PathMount, PathPermissions

LISTED = {
    "a file system": (
        "1 0 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
        Mount("/", "8:1", "/", "ext4", "/dev/sda1", ("rw", "relatime"), "rw"),
    ),
    "words with blanks, tabs and backslashes": (
        r"2 1 8:1 /x\040y /mnt\011z\134 rw master:5 - ext4 /dev/a\040b ro",
        Mount("/mnt\tz\\", "8:1", "/x y", "ext4", "/dev/a b", ("rw",), "ro"),
    ),
    "several optional fields": (
        "3 1 0:9 / /o ro shared:1 master:2 - overlay overlay rw,lowerdir=/a:/b",
        Mount("/o", "0:9", "/", "overlay", "overlay", ("ro",), "rw,lowerdir=/a:/b"),
    ),
}


@pytest.mark.parametrize("name", LISTED)
def test_a_row_of_the_kernels_list_is_read(name: str) -> None:
    line, expected = LISTED[name]
    assert [*mount_table.parse_mounts(f"short\n{line}\n4 1 8:1 / / rw -\n")] == [expected]


@pytest.mark.parametrize(
    ("options", "system_options", "option", "expected"),
    [
        (("rw",), "rw", "ro", False),
        (("ro",), "rw", "ro", True),
        (("rw",), "ro,size=1k", "ro", True),
        (("rw", "nodev"), "rw", "nodev", True),
        (("rw",), "rootcontext=a", "ro", False),
    ],
)
def test_an_option_is_the_mounts_or_its_file_systems(
    options: tuple[str, ...], system_options: str, option: str, expected: bool
) -> None:
    assert Mount("/", "8:1", "/", "ext4", "a", options, system_options).has(option) is expected


def test_mounts_of_a_boot_are_in_fstab_or_have_a_unit(tmp_path: Path) -> None:
    point = "/srv/models/x y-z"
    name = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", point], capture_output=True, text=True, check=True
    ).stdout.strip()
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / name).touch()
    (units / "masked.mount").symlink_to("/dev/null")
    (units / "other.service").touch()
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/auto.automount").touch()
    rows = (
        r"/dev/a /a\040b/ ext4 defaults 0 2",
        "/dev/b /b ext4",
        "/dev/c /c ext4 noauto,ro",
        "/dev/d none swap sw",
        "# /dev/e /e ext4 defaults",
        "short",
        "",
    )
    (tmp_path / "etc/fstab").write_text("\n".join(rows))
    assert mount_table.read_table(str(tmp_path))[1] == TableRow("/dev/b", "/b", "ext4", ("defaults",))
    assert mount_table.list_boot_points(str(tmp_path)) == {"/a b", "/b", point, "/auto"}


def test_the_last_of_the_innermost_mounts_holds_a_path() -> None:
    rows = [("/", "a"), ("/srv", "b"), ("/srv/models", "c"), ("/srv/models", "d"), ("/srv/mod", "e")]
    ways = PathPermissions({}, {}, [PathMount(point, "/", "ext4", source, [], True) for point, source in rows], [])
    found = {path: getattr(ways.mount_of(path), "source", "") for path in ("/srv/models", "/srv/x", "/opt")}
    assert found == {"/srv/models": "d", "/srv/x": "b", "/opt": "a"}
    assert PathPermissions({}, {}, [], []).mount_of("/") is None
