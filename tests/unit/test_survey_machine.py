"""The findings of the survey's modules of kernel, boot, packages and settings in a folder that stands in for a host."""

import hashlib
import os
from pathlib import Path

import pytest

from checks.survey.host import cards, dpkg, kernel, package_file_changes, packages
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.survey_root import WriteFile

pytest_plugins = ["tests.unit.survey_root"]


def write_package(write: WriteFile, name: str, inside: dict[str, str], status: str = "install ok installed") -> None:
    """A package with these files, as dpkg leaves them."""
    for path, text in inside.items():
        write(path[1:], text, 0o755 if "/bin/" in path else 0o644)
    sums = "".join(f"{hashlib.md5(text.encode()).hexdigest()}  {path[1:]}\n" for path, text in inside.items())
    write(f"var/lib/dpkg/info/{name}.md5sums", sums)
    write(f"var/lib/dpkg/info/{name}.list", "/.\n" + "".join(f"{path}\n" for path in inside))
    there = write("var/lib/dpkg/status", b"").parent / "status"
    write(
        "var/lib/dpkg/paragraphs",
        (there.parent / "paragraphs").read_text() if (there.parent / "paragraphs").exists() else "",
    )
    text = (there.parent / "paragraphs").read_text() + f"Package: {name}\nStatus: {status}\nVersion: 1-1\n\n"
    write("var/lib/dpkg/paragraphs", text)
    there.write_text(text)


INSIDE = {"/usr/bin/nvidia-smi": "smi", "/usr/lib/libcuda.so.1": "cuda", "/usr/src/nvidia-1/dkms.conf": "conf"}
ASKED: dict[str, object] = {"strict": ["nvidia"], "run": ["bash"], "deep": False}


def findings(deep: bool = False) -> set[tuple[str, str]]:
    found = package_file_changes.look({**ASKED, "deep": deep})["findings"]
    assert isinstance(found, list)
    return {(one["path"], one["what"]) for one in found}


@pytest.fixture
def nvidia(write: WriteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(write, "nvidia", INSIDE)
    write_package(write, "bash", {"/usr/bin/bash": "bash", "/usr/share/doc/bash/a": "a"})
    monkeypatch.setattr(dpkg, "SLACK", 0.0)
    monkeypatch.setattr(
        package_file_changes, "wrong", lambda path, seen, strict: "" if strict else _wrong(path, seen, strict)
    )


_wrong = package_file_changes.wrong


@pytest.mark.usefixtures("nvidia")
def test_packaged_files_have_no_difference(root: Path) -> None:
    assert findings() == set()
    assert findings(deep=True) == set()
    # a link of a backup's, the same mode once more and another time are no other content
    os.link(root / "usr/bin/nvidia-smi", root / "kept")
    (root / "usr/lib/libcuda.so.1").chmod(0o644)
    os.utime(root / "usr/bin/bash")
    assert findings() == set()


@pytest.mark.usefixtures("nvidia")
def test_changes_of_packages_files_are_reported(root: Path, write: WriteFile) -> None:
    (root / "usr/bin/nvidia-smi").write_text("other")
    (root / "usr/lib/libcuda.so.1").unlink()
    (root / "usr/lib/libcuda.so.1").symlink_to("/opt/libcuda.so.1")
    (root / "usr/src/nvidia-1/dkms.conf").unlink()
    (root / "usr/bin/bash").chmod(0o4755)
    (root / "usr/share/doc/bash/a").write_text("read by people")
    assert findings() == {
        ("/usr/bin/nvidia-smi", "has another content"),
        ("/usr/lib/libcuda.so.1", "is a link to /opt/libcuda.so.1"),
        ("/usr/src/nvidia-1/dkms.conf", "is missing"),
        ("/usr/bin/bash", "runs as its owner for every user"),
    }


@pytest.mark.usefixtures("nvidia")
def test_a_change_that_keeps_size_and_time_is_seen(root: Path) -> None:
    path = root / "usr/lib/libcuda.so.1"
    before = path.stat()
    path.write_text("adcu")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert findings() == {("/usr/lib/libcuda.so.1", "has another content")}


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o755, ""),
        (0o700, "cannot be read by everybody (mode 700)"),
        (0o757, "can be written by others"),
        (0o644, "cannot be run"),
    ],
)
def test_modes_that_are_in_the_way_or_too_wide_are_reported(write: WriteFile, mode: int, said: str) -> None:
    seen = write("usr/bin/nvidia-smi", "", mode).stat()
    made = os.stat_result((seen.st_mode, *seen[1:4], 0, 0, *seen[6:10]))
    assert package_file_changes.wrong("/usr/bin/nvidia-smi", made, strict=True).startswith(said)
    assert bool(package_file_changes.wrong("/usr/bin/nvidia-smi", made, strict=True)) == bool(said)


POLICY = """\
linux-image-generic:
  Installed: 6.8.0-40.40
  Candidate: 6.8.0-95.95
  Version table:
     6.8.0-95.95 500
        500 http://a.example/ubuntu noble-updates/main amd64 Packages
     6.8.0-90.91 500
        500 http://b.example/ubuntu noble-security/main amd64 Packages
 *** 6.8.0-40.40 100
        500 http://a.example/ubuntu noble-updates/main amd64 Packages
        100 /var/lib/dpkg/status
     6.8.0-39.39 500
        500 http://b.example/ubuntu noble-security/main amd64 Packages
libc6:
  Installed: (none)
  Candidate: (none)
  Version table:
"""
TARGETS = "http://a.example/ubuntu/ Ubuntu\nhttp://b.example/ubuntu/ Ubuntu\n"


def test_apts_candidates_are_read_from_its_own_table(root: Path) -> None:
    write_stand_in(root / "bin", "apt-cache", f"cat <<'END'\n{POLICY}END")
    write_stand_in(root / "bin", "apt-get", f"cat <<'END'\n{TARGETS}END")
    assert packages.policy(["linux-image-generic", "libc6"]) == {
        "linux-image-generic": {"candidate": "6.8.0-95.95", "origin": "Ubuntu", "security": ["6.8.0-90.91"]},
        "libc6": {"candidate": "", "origin": "", "security": []},
    }


def test_builds_of_dkms_are_seen_as_far_as_they_are(root: Path, write: WriteFile) -> None:
    top = "var/lib/dkms/nvidia"
    for version in ("1.0", "2.0", "3.0"):
        (root / top / version).mkdir(parents=True)
        (root / top / version / "source").symlink_to(root / f"usr/src/nvidia-{version}")
    for version in ("1.0", "2.0"):
        write(f"usr/src/nvidia-{version}/dkms.conf")
    write(f"{top}/1.0/6.1/x86_64/module/nvidia.ko", "built")
    write(f"{top}/1.0/6.1/x86_64/module/nvidia-uvm.ko", "built")
    (root / top / "kernel-6.1-x86_64").symlink_to("1.0/6.1/x86_64")
    write("lib/modules/6.1/updates/dkms/nvidia.ko", "other")
    seen = {(one["version"], one["kernel"]): (one["state"], one["differs"], one["missing"]) for one in kernel.builds()}
    assert seen == {
        ("1.0", "6.1"): ("installed", ["/lib/modules/6.1/updates/dkms/nvidia.ko"], ["nvidia-uvm.ko"]),
        ("2.0", ""): ("added", [], []),
        ("3.0", ""): ("broken", [], []),
    }


def test_a_journal_that_keeps_nothing_is_no_silence(root: Path, write: WriteFile) -> None:
    assert "there is no journal" in str(cards.log("x")["blind"])
    write("var/log/journal/0/system.journal")
    assert cards.log("x")["blind"] == ""
    write("etc/systemd/journald.conf.d/a.conf", "[Journal]\nStorage=none\n")
    assert "Storage=none" in str(cards.log("x")["blind"])
    write("etc/systemd/journald.conf.d/b.conf", "[Journal]\nStorage=persistent\n")
    assert cards.log("x")["blind"] == ""
    write_stand_in(root / "bin", "journalctl", "echo 'cannot' >&2; exit 5")
    assert "status 5: cannot" in str(cards.log("x")["blind"])
