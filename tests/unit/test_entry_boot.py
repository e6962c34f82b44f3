"""Files of an initramfs that neither the host nor hooks explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.survey.host import entry_boot
from checks.survey.host.entry_attribution import Attribution
from checks.survey.host.entry_packages import PackageRecords

USUAL = '/scripts/init-top/udev "$@"\n[ -e /conf/param.conf ] && . /conf/param.conf\n'


def render_cpio(files: dict[str, str]) -> bytes:
    """An archive of plain files, in the form of the kernel's documentation."""
    found = b""
    for name, text in {**files, "TRAILER!!!": ""}.items():
        fields = (0, 0o100644, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        found += head + bytes(-len(head) % 4) + text.encode() + bytes(-len(text) % 4)
    return found


@pytest.mark.parametrize(
    ("name", "text", "foreign"),
    [
        ("scripts/init-top/ORDER", USUAL, []),
        ("scripts/init-top/ORDER", USUAL + "/bin/evil &\n", ["scripts/init-top/ORDER"]),
        ("scripts/init-top/ORDER", USUAL.replace("udev", "udev; evil"), ["scripts/init-top/ORDER"]),
        ("conf/param.conf", "evil\n", ["conf/param.conf"]),
        ("scripts/init-top/evil", "evil\n", ["scripts/init-top/evil"]),
    ],
)
def test_commands_that_an_initramfs_runs(tmp_path: Path, name: str, text: str, foreign: list[str]) -> None:
    """A list of scripts has none of its own."""
    image = tmp_path / "initrd"
    image.write_bytes(render_cpio({name: text}))
    host = Attribution([], PackageRecords(""), {})
    assert [*entry_boot.foreign_files(host, str(image))] == foreign
