"""Measures by which the survey takes less of a host's processors, and finds the same."""

import hashlib
import os
import resource
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from checks.survey.host import dpkg, fs_responsiveness, mapped_code, package_file_changes
from rigwright.plan import host_probe
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.survey_root import WriteFile
from tests.unit.test_facts import probe

pytest_plugins = ["tests.unit.survey_root"]

PATTERNS = ["apt", "grub-*", "libc6", "python3.*", "*-headers", "lib?ttr1", "g[+]+", "lib*d"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "apt",
            "apt-utils",
            "grub",
            "grub-",
            "grub-pc",
            "libc6",
            "libc6-dev",
            "python3",
            "python3.13",
            "linux-headers",
        ),
        *("headers", "libattr1", "libttr1", "g++", "g+", "libd", "libsystemd", "lib"),
    ],
)
def test_names_of_packages_fit_patterns_as_a_shells_do(name: str) -> None:
    assert package_file_changes.Matching(PATTERNS).has(name) == any(fnmatchcase(name, one) for one in PATTERNS)


def status(write: WriteFile, *names: str) -> Path:
    return write(
        "var/lib/dpkg/status", "\n".join(f"Package: {one}\nStatus: install ok installed\nVersion: 1\n" for one in names)
    )


def test_changed_dpkg_records_are_read_again(write: WriteFile) -> None:
    status(write, "a")
    write("var/lib/dpkg/info/a.list", "/usr/bin/a\n")
    dpkg.known()
    assert [one.name for one in dpkg.packages()] == ["a"]
    status(write, "a", "b")
    write("var/lib/dpkg/info/b.list", "/usr/bin/b\n")
    assert [one.name for one in dpkg.packages()] == ["a", "b"]
    assert dpkg.owners(["/usr/bin/b"]) == {"/usr/bin/b": "b"}


@pytest.mark.parametrize("place", ["/var", "/var/lib", "/var/lib/dpkg", "/var/lib/dpkg/info", "/srv"])
def test_a_disk_that_hangs_keeps_no_section_from_looking(
    write: WriteFile, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    status(write, "a")
    asked: list[str] = []
    monkeypatch.setattr(fs_responsiveness, "mount_points", lambda: frozenset({"/", place}))
    monkeypatch.setattr(dpkg, "packages", lambda: asked.append("packages"))
    dpkg.known()
    assert asked == (["packages"] if place == "/srv" else [])


@pytest.mark.usefixtures("root")
def test_a_host_without_dpkgs_lists_is_looked_at_all_the_same() -> None:
    dpkg.known()


# by itself, as on a host: files that a test's own process opens anew in each that it forks are not looked at
LOOKS = """
import os, sys
from checks.survey.host import fs_responsiveness

def look(folder):
    with open(folder + "/told", "w") as told:
        told.write(" ".join(os.listdir("/proc/self/fd")))

fs_responsiveness.look = look
os.pipe()
print(fs_responsiveness.silent(sys.argv[1:]))
"""


def test_a_reader_of_a_folder_keeps_nothing_open(tmp_path: Path) -> None:
    """A reader that waits for the end of a section's answer would wait for a look that never ends."""
    done = subprocess.run([sys.executable, "-c", LOOKS, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    # where it tells that it has looked, and what this look itself has open
    assert (tmp_path / "told").read_text().split() == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["liba.so", "lib b.so"])
@pytest.mark.parametrize("listed", ["usr/lib", "lib"])
def test_files_that_processes_run_are_found_in_packages_sums(
    write: WriteFile, root: Path, monkeypatch: pytest.MonkeyPatch, name: str, listed: str
) -> None:
    monkeypatch.setattr(mapped_code, "PACKAGES", str(root / "var/lib/dpkg/info"))
    write("var/lib/dpkg/info/other.md5sums", f"{'0' * 32}  usr/share/doc/other\n")
    write("var/lib/dpkg/info/a.md5sums", f"{hashlib.md5(b'a').hexdigest()}  {listed}/{name}\n{'1' * 32}  usr/bin/a\n")
    path = f"/usr/lib/{name}"
    assert mapped_code._sums([path]) == {path: hashlib.md5(b"a").hexdigest()}


def test_the_probe_asks_once_what_systemd_listens_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = 'LISTEN 0 4096 127.0.0.1:{0} 0.0.0.0:* users:(("systemd",pid=1,fd=42))'
    write_stand_in(tmp_path, "ss", f"cat <<'END'\n{line.format(8020)}\n{line.format(8021)}\n{line.format(8022)}\nEND")
    rows = "127.0.0.1:8020 a.socket a.service\n127.0.0.1:8021 b.socket b.service"
    write_stand_in(
        tmp_path, "systemctl", f"case $1 in list-sockets) echo >> {tmp_path}/asked; cat <<'END'\n{rows}\nEND\n;; esac"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found: host_probe.HostFacts = probe()
    assert {one.port: one.unit for one in found.listeners} == {8020: "a.service", 8021: "b.service", 8022: ""}
    assert (tmp_path / "asked").read_text() == "\n"


def test_folders_are_looked_into_by_a_process_that_has_over_a_thousand_files_open(tmp_path: Path) -> None:
    most, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2048, most), limit))
    opened = [os.open(tmp_path, os.O_RDONLY) for _ in range(1024)]
    try:
        assert fs_responsiveness.silent([str(tmp_path)]) == []
    finally:
        for one in opened:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit))
