"""The units of the deep re-hash, as systemd reads them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.roots import Roots
from rigwright.weights.verification import OWNED, records_folder, render_rehash_units
from roles.weights.host import rehash
from tests.unit.samples import sample_rig

SERVICE, TIMER = "rigwright_rehash.service", "rigwright_rehash.timer"

MOVED = sample_rig(roots=Roots(software="/data/opt", models="/data/models", state="/data/state"))
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")


def command_output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_they_are_ours_and_no_instances() -> None:
    made = render_rehash_units(sample_rig().roots)
    assert set(made) == {f"{UNIT_FOLDER}/{SERVICE}", f"{UNIT_FOLDER}/{TIMER}"}
    assert all(text.splitlines()[0] == OWNED for text in made.values())
    # units of that name are instances, and one that is not declared is stopped
    assert not any(Path(path).name.startswith("rigwright-") for path in made)


def test_root_programs_take_their_arguments_and_lie_at_their_paths() -> None:
    service = render_rehash_units(MOVED.roots)[f"{UNIT_FOLDER}/{SERVICE}"]
    (line,) = re.findall(r"^ExecStart=/usr/bin/python3 -m rigwright_weights\.rehash (.*)$", service, re.MULTILINE)
    assert rehash.main([word.replace("/data", "/nowhere") for word in line.split()]) == 0
    assert "PYTHONPATH=/data/opt/weights " in service
    assert f"ReadWritePaths={records_folder(MOVED.roots)}\n" in service
    assert "RequiresMountsFor=/data/models /data/state/weights\n" in service


@needs_systemd
@pytest.mark.parametrize("name", [SERVICE, TIMER])
def test_systemd_finds_nothing_in_them(tmp_path: Path, name: str) -> None:
    for unit, text in render_rehash_units(sample_rig().roots).items():
        (tmp_path / Path(unit).name).write_text(text.replace("/usr/bin/python3", "/bin/true"))
    assert command_output("systemd-analyze", "verify", str(tmp_path / name)) == ""
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("Description=", "Descriptions="))
    assert "Descriptions" in command_output("systemd-analyze", "verify", str(tmp_path / name))


def calls(group: str) -> set[str]:
    """The system calls of one of systemd's groups."""
    said = command_output("systemd-analyze", "syscall-filter", group)
    names = {line.strip() for line in said.splitlines()[1:] if line.startswith("    ") and "#" not in line}
    return {name for name in names if name[0] != "@"}.union(*(calls(name) for name in names if name[0] == "@"))


@needs_systemd
def test_the_calls_that_it_needs_are_let_through() -> None:
    allowed: set[str] = set()
    for line in re.findall(
        r"^SystemCallFilter=(.*)$", render_rehash_units(sample_rig().roots)[f"{UNIT_FOLDER}/{SERVICE}"], re.MULTILINE
    ):
        names = set().union(*(calls(one) if one[0] == "@" else {one} for one in line.removeprefix("~").split()))
        allowed = allowed - names if line.startswith("~") else allowed | names
    needed = {"mincore", "fadvise64", "preadv", "preadv2", "flock", "ioctl", "fsync", "rename", "unlink", "utimensat"}
    assert needed <= allowed
    assert not {"mount", "setpriority", "ptrace"} & allowed
