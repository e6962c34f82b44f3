"""What an instance has compiled: another one waits for it, begins with it, and root touches none of its own hands."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.render import render
from tests.unit.scripts import stand_in

UNIT, OTHER = "rigwright-chat.service", "rigwright-other.service"


@dataclass
class Host:
    """A folder in place of a host's."""

    folder: Path

    @property
    def own(self) -> Path:
        """What the instance compiles to."""
        return self.folder / "instances" / "chat" / "key"

    @property
    def warm(self) -> Path:
        """What others may begin with."""
        return self.folder / "warm" / "key"

    @property
    def holder(self) -> Path:
        """Who compiles."""
        return self.folder / "run" / ".compiling-key"

    def seed(self, state: str = "activating") -> subprocess.CompletedProcess[str]:
        """Run the script as the unit does; systemd says that the other one is in this state."""
        self.own.mkdir(parents=True, exist_ok=True)
        script = render("serving/seed.j2", started_from=self.folder / "run", warm=self.folder / "warm")
        stand_in(self.folder / "bin", "systemctl", f"echo {state}")
        # whose file it is does not matter here
        stand_in(self.folder / "bin", "setpriv", 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
        return subprocess.run(
            ["sh", "-c", script, "seed", UNIT, "nobody", str(self.own)],
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_first_one_compiles_and_says_so(host: Host) -> None:
    host.seed()
    assert host.holder.readlink() == Path(UNIT)
    host.seed()  # a restart before it was ready
    assert list(host.own.iterdir()) == []


def test_the_next_one_begins_with_what_is_there(host: Host) -> None:
    host.warm.mkdir(parents=True)
    (host.warm / "kernel.so").write_text("code")
    os.utime(host.warm / "kernel.so", ns=(5, 123456789))
    host.seed()
    assert (host.own / "kernel.so").read_text() == "code"
    assert (host.own / "kernel.so").stat().st_mtime_ns == 123456789
    assert not host.holder.is_symlink()


def test_what_it_has_compiled_itself_is_left_alone(host: Host) -> None:
    host.warm.mkdir(parents=True)
    (host.warm / "kernel.so").write_text("code")
    host.own.mkdir(parents=True)
    (host.own / "mine").touch()
    host.seed()
    assert [path.name for path in host.own.iterdir()] == ["mine"]


def test_it_compiles_itself_where_the_other_one_has_come_to_nothing(host: Host) -> None:
    (host.folder / "run").mkdir()
    host.holder.symlink_to(OTHER)
    host.seed(state="failed")
    assert host.holder.readlink() == Path(UNIT)


def test_it_waits_for_the_other_one(host: Host) -> None:
    (host.folder / "run").mkdir()
    host.holder.symlink_to(OTHER)
    stand_in(host.folder / "bin", "sleep", f"mkdir -p {host.warm}; echo code > {host.warm}/kernel.so")
    host.seed()
    assert (host.own / "kernel.so").read_text() == "code\n"


def test_only_plain_files_are_published_and_they_are_roots(host: Host) -> None:
    if os.getuid():
        pytest.skip("gives files to root, which takes root")
    host.own.mkdir(parents=True)
    (host.own / "kernel.so").write_text("code")
    os.utime(host.own / "kernel.so", ns=(5, 123456789))
    (host.own / "link").symlink_to("/etc/shadow")
    os.mkfifo(host.own / "pipe")
    for path in (host.own, *host.own.parents):
        if path != host.folder.parent and host.folder in (path, *path.parents):
            path.chmod(0o755)
    host.folder.chmod(0o755)
    function = render("serving/publish.sh.j2", started_from=host.folder / "run", warm=host.folder / "warm")
    stand_in(host.folder / "bin", "setpriv", 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
    subprocess.run(
        ["sh", "-euc", f'{function}\npublish nobody "$1"', "sh", str(host.own)],
        env={"PATH": f"{host.folder / 'bin'}:{os.environ['PATH']}"},
        check=True,
    )
    assert [path.name for path in host.warm.iterdir()] == ["kernel.so"]
    found = (host.warm / "kernel.so").stat()
    assert (found.st_uid, found.st_mode & 0o777, found.st_mtime_ns) == (0, 0o644, 123456789)
