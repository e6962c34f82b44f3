"""Compiled code of an instance: another one waits for it, begins with it, and root touches none of its own hands."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from rigwright.render import render
from tests.unit.rendered_scripts import write_stand_in

UNIT, OTHER = "rigwright-chat.service", "rigwright-other.service"
START, THEIRS = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


@dataclass
class SeedHost:
    """A folder in place of a host's."""

    folder: Path

    @property
    def compiled_folder(self) -> Path:
        """The compiled code of the instance."""
        return self.folder / "instances" / "chat" / "key"

    @property
    def warm(self) -> Path:
        """The folder that others may begin with."""
        return self.folder / "warm" / "key"

    @property
    def holder(self) -> Path:
        """The compiling user."""
        return self.folder / "run" / ".compiling-key"

    def seed(
        self, state: str = "activating", start: str = START, theirs: str = THEIRS
    ) -> subprocess.CompletedProcess[str]:
        """Run the script as the unit does in a start; systemd says that the other one is in this state, and start."""
        self.compiled_folder.mkdir(parents=True, exist_ok=True)
        script = render("serving/seed.j2", started_from=self.folder / "run", warm=self.folder / "warm")
        write_stand_in(
            self.folder / "bin", "systemctl", f"case $* in *InvocationID*) echo {theirs} ;; *) echo {state} ;; esac"
        )
        # the owner of the file does not matter here
        write_stand_in(self.folder / "bin", "setpriv", 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
        return subprocess.run(
            ["sh", "-c", script, "seed", UNIT, "nobody", str(self.compiled_folder)],
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "INVOCATION_ID": start},
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )

    def publish(self, start: str = START) -> None:
        """The actions of the ready script in the same start."""
        for path in (self.compiled_folder, *self.compiled_folder.parents):
            if path != self.folder.parent and self.folder in (path, *path.parents):
                path.chmod(0o755)
        function = render("serving/publish.sh.j2", started_from=self.folder / "run", warm=self.folder / "warm")
        told = f'echo "$1" >> {self.folder}/users; '
        write_stand_in(self.folder / "bin", "setpriv", told + 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"')
        subprocess.run(
            ["sh", "-euc", f'{function}\npublish "$@"', "sh", f"{UNIT}:{start}", "nobody", str(self.compiled_folder)],
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"},
            check=True,
        )


@pytest.fixture
def host(tmp_path: Path) -> SeedHost:
    return SeedHost(tmp_path)


def test_the_first_one_compiles_and_says_so(host: SeedHost) -> None:
    host.seed()
    assert host.holder.readlink() == Path(f"{UNIT}:{START}")
    host.seed(start=THEIRS)  # a restart before it has compiled anything
    assert host.holder.readlink() == Path(f"{UNIT}:{THEIRS}")
    assert list(host.compiled_folder.iterdir()) == []


def test_the_next_one_begins_with_what_is_there(host: SeedHost) -> None:
    host.warm.mkdir(parents=True)
    (host.warm / "kernel.so").write_text("code")
    os.utime(host.warm / "kernel.so", ns=(5, 123456789))
    host.seed()
    assert (host.compiled_folder / "kernel.so").read_text() == "code"
    assert (host.compiled_folder / "kernel.so").stat().st_mtime_ns == 123456789
    assert not host.holder.is_symlink()


def test_the_tree_is_readable_for_all_and_its_own_files_are_not(host: SeedHost) -> None:
    host.warm.mkdir(parents=True)
    host.warm.chmod(0o755)
    (host.warm / "kernel").write_text("compiled")
    host.seed()
    assert (host.compiled_folder / "kernel").read_text() == "compiled"
    assert host.compiled_folder.stat().st_mode & 0o777 == 0o700


def test_its_own_compiled_code_is_left_alone(host: SeedHost) -> None:
    host.warm.mkdir(parents=True)
    (host.warm / "kernel.so").write_text("code")
    host.compiled_folder.mkdir(parents=True)
    (host.compiled_folder / "\n").touch()
    host.seed()
    assert [path.name for path in host.compiled_folder.iterdir()] == ["\n"]


def test_it_compiles_itself_where_the_other_one_has_come_to_nothing(host: SeedHost) -> None:
    (host.folder / "run").mkdir()
    host.holder.symlink_to(f"{OTHER}:{THEIRS}")
    host.seed(state="failed")
    assert host.holder.readlink() == Path(f"{UNIT}:{START}")


def test_only_the_start_that_compiles_is_waited_for_and_none_that_comes_after_it(host: SeedHost) -> None:
    (host.folder / "run").mkdir()
    host.holder.symlink_to(f"{OTHER}:{THEIRS}")
    host.seed(theirs="00000000000000000000000000000000")
    assert host.holder.readlink() == Path(f"{UNIT}:{START}")


def test_it_waits_for_the_other_one(host: SeedHost) -> None:
    (host.folder / "run").mkdir()
    host.holder.symlink_to(f"{OTHER}:{THEIRS}")
    write_stand_in(host.folder / "bin", "sleep", f"mkdir -p {host.warm}; echo code > {host.warm}/kernel.so")
    host.seed()
    assert (host.compiled_folder / "kernel.so").read_text() == "code\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root, which takes root")
def test_only_plain_files_are_published_and_they_are_roots(host: SeedHost) -> None:
    host.seed()
    (host.compiled_folder / "kernel.so").write_text("code")
    os.utime(host.compiled_folder / "kernel.so", ns=(5, 123456789))
    (host.compiled_folder / "link").symlink_to("/etc/shadow")
    os.mkfifo(host.compiled_folder / "pipe")
    host.publish()
    assert [path.name for path in host.warm.iterdir()] == ["kernel.so"]
    found = (host.warm / "kernel.so").stat()
    assert (found.st_uid, found.st_mode & 0o777, found.st_mtime_ns) == (0, 0o644, 123456789)
    assert not host.holder.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root, which takes root")
def test_its_unpacker_has_a_user_of_its_own(host: SeedHost) -> None:
    """Many a daemon runs as user `nobody`: it could put code of its own there, which another instance would run."""
    host.seed()
    (host.compiled_folder / "kernel.so").write_text("code")
    host.publish()
    packs, unpacks = sorted((host.folder / "users").read_text().splitlines(), reverse=True)
    assert packs == "--reuid=nobody"  # the instance's user, here
    number = int(unpacks.removeprefix("--reuid="))
    # outside of what systemd, containers and user namespaces give out
    assert 1879048192 <= number < 2147352576
    with pytest.raises(KeyError):
        pwd.getpwuid(number)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to root, which takes root")
def test_nothing_is_published_by_a_start_that_did_not_begin_with_nothing(host: SeedHost) -> None:
    host.seed()
    (host.compiled_folder / "planted.so").write_text("code")
    host.seed(start=THEIRS)
    host.publish(THEIRS)
    assert not host.warm.exists()
