"""Packages by dpkg's word: the shell's collector and Python's fill one type with the same values."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from checks.survey.host import dpkg
from rigwright import render
from rigwright.host.package_states import (
    KERNEL_PATTERNS,
    PACKAGE_SCHEMA,
    PackageState,
    PackageStates,
    read_package_states,
)
from rigwright.host.script_output import parse_output
from rigwright.nvidia.driver.driver_facts import OF_A_DRIVER
from tests.unit import short_programs

KERNEL = "linux-image-6.12.94+deb13-amd64"
STATUS = f"""\
Package: libcuda1
Status: install ok installed
Architecture: amd64
Version: 580.95.05-1
Depends: libc6 (>= 2.17), nvidia-kernel-support
Description: CUDA; with a ; in it
 linux-image-1 is no dependency of it

Package: linux-image-amd64
Status: hold ok installed
Architecture: amd64
Version: 6.12.94-1
Depends: {KERNEL} (= 6.12.94-1)
Description: metapackage

Package: {KERNEL}
Status: install ok installed
Architecture: amd64
Version: 6.12.94-1
Depends: kmod, linux-base (>= 4.12~) | initramfs-tools
Description: kernel

Package: linux-headers-amd64
Status: install ok unpacked
Architecture: amd64
Version: 6.12.94-1
Depends: linux-headers-6.12.94+deb13-amd64
Description: headers

Package: nvidia-persistenced
Status: deinstall ok config-files
Architecture: amd64
Version: 580.95.05-1
Description: gone

Package: nvidia-settings
Status: install ok half-configured
Config-Version: 580.95.05-1
Architecture: amd64
Version: 580.95.05-1
Description: waiting

Package: curl
Status: hold ok installed
Architecture: amd64
Version: 8.14.1-2
Depends: libc6
Description: no package of a driver
"""
EXPECTED = PackageStates(
    (
        PackageState("libcuda1", "installed", "580.95.05-1", ""),
        PackageState("linux-headers-amd64", "unpacked", "6.12.94-1", ""),
        PackageState(KERNEL, "installed", "6.12.94-1", ""),
        PackageState("linux-image-amd64", "installed", "6.12.94-1", f"{KERNEL} (= 6.12.94-1)"),
        PackageState("nvidia-settings", "half-configured", "580.95.05-1", ""),
    ),
    ("curl", "linux-image-amd64"),
)
PATTERNS = (*OF_A_DRIVER, *KERNEL_PATTERNS)


PART = "{% from 'channel.sh.j2' import told %}{% call told() %}{% include 'probe/packages.sh.j2' %}{% endcall %}"


def by_shell(root: Path) -> PackageStates:
    """The packages by the probe's part, with dpkg's own program."""
    script = render._environment().from_string(PART).render(packages=PATTERNS)
    environment = {"PATH": os.environ["PATH"], "DPKG_ADMINDIR": f"{root}{dpkg.ADMIN}"}
    done = short_programs.run_program(["sh", "-c", script], env=environment, check=True)
    assert done.stderr == ""
    return read_package_states(parse_output(done.stdout.splitlines(), PACKAGE_SCHEMA))


def by_python(root: Path, monkeypatch: pytest.MonkeyPatch) -> PackageStates:
    """The same by the survey's module, as checks read it."""
    monkeypatch.setattr(dpkg, "ROOT", str(root))
    return TypeAdapter(PackageStates).validate_json(json.dumps(dpkg.describe_states(PATTERNS)), strict=True)


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="dpkg-query is not here")
def test_both_collectors_fill_the_type_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / dpkg.ADMIN.lstrip("/") / "info"
    info.mkdir(parents=True)
    (info.parent / "status").write_text(STATUS)
    (info.parent / "updates").mkdir()
    found = {"shell": by_shell(tmp_path), "Python": by_python(tmp_path, monkeypatch)}
    for name, states in found.items():
        assert (name, tuple(sorted(states.rows, key=lambda one: one.name)), states.held) == (
            name,
            EXPECTED.rows,
            EXPECTED.held,
        )


def test_entries_explained_by_packages() -> None:
    assert dict(EXPECTED.versions) == {
        "libcuda1": "580.95.05-1",
        KERNEL: "6.12.94-1",
        "linux-image-amd64": "6.12.94-1",
    }
    assert EXPECTED.half == ("linux-headers-amd64", "nvidia-settings")
    assert EXPECTED.headers == frozenset()
    assert EXPECTED.kernel_metapackages == (("linux-image-amd64", "6.12.94+deb13-amd64"),)
    assert EXPECTED.matching(OF_A_DRIVER).half == ("nvidia-settings",)
    assert EXPECTED.matching(OF_A_DRIVER).held == EXPECTED.held
