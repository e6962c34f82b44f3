"""The program that makes, and takes away, a container's needs of its host, over stand-ins for root's own rights."""

import json
import os
from pathlib import Path

import pytest

from rigwright.engines.image.container_command import PROFILE
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.script_table import SCRIPTS


class ContainerProgramHost:
    """A host's folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "profile").write_text('{"syscalls": [{"names": ["read", "unshare"], "action": "SCMP_ACT_ALLOW"}]}')
        remember = f'echo "$(basename "$0") $*" >> {root}/asked'
        for name, body in {
            # as often mounted as there are lines
            "mountpoint": f"[ -s {root}/mounted ]",
            "mount": f"{remember}\necho x >> {root}/mounted",
            "umount": f"{remember}\nsed -i 1d {root}/mounted",
            "install": f'{remember}\nfor last; do :; done\n[ "$1" != -d ] || exec mkdir -p "$last"\necho key > "$last"',
            "id": "echo 990",
        }.items():
            write_stand_in(root / "bin", name, body)

    def run(self, what: str, *words: str) -> list[str]:
        """Run it; its requests to the system."""
        (self.root / "asked").write_text("")
        self.run_program(what, *words)
        return (self.root / "asked").read_text().splitlines()

    def run_program(self, what: str, *words: str) -> str:
        """Run it; its output."""
        paths = [str(self.root / name) for name in ("containers/chat", "instances/chat")]
        done = short_programs.run_program(
            [
                "sh",
                "-c",
                SCRIPTS["container"]().replace(PROFILE, f"{self.root}/profile"),
                "container",
                what,
                *paths,
                *words,
            ],
            env={"PATH": f"{self.root}/bin:{os.environ['PATH']}"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def make(self) -> list[str]:
        return self.run("make", "svc", str(self.root / "key"), str(self.root / "cache/chat/e-1"))


@pytest.fixture
def host(tmp_path: Path) -> ContainerProgramHost:
    return ContainerProgramHost(tmp_path)


def test_it_declares_the_containers_user_and_gives_that_user_its_key(host: ContainerProgramHost) -> None:
    asked = host.make()
    assert (host.root / "containers/chat/owner").read_text() == "RW_OWNER=990:990\n"
    (mount,) = [line for line in asked if line.startswith("mount ")]
    assert "mode=0700" in mount
    assert f"install -m 0400 -o svc -g svc {host.root}/key {host.root}/containers/chat/api-key" in asked
    assert f"install -d -m 0700 -o svc -g svc {host.root}/cache/chat/e-1" in asked
    assert (host.root / "instances/chat").is_dir()


def test_the_filter_of_system_calls_is_the_distributions_without_unneeded_calls(host: ContainerProgramHost) -> None:
    host.make()
    found = json.loads((host.root / "containers/chat/seccomp.json").read_text())
    assert found["syscalls"][0]["names"] == ["read"]
    assert any("unshare" in rule["names"] and rule["action"] == "SCMP_ACT_ERRNO" for rule in found["syscalls"])


def test_the_folders_above_a_cache_stay_roots(host: ContainerProgramHost) -> None:
    host.make()
    assert (host.root / "cache/chat").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("times", [1, 3])
def test_remains_of_a_killed_container_are_removed_before_the_next_one(host: ContainerProgramHost, times: int) -> None:
    (host.root / "containers/chat/graph").mkdir(parents=True)
    (host.root / "mounted").write_text("x\n" * times)
    asked = host.make()
    assert [line.split()[0] for line in asked][: times + 1] == [*["umount"] * times, "mount"]
    assert not (host.root / "containers/chat/graph").exists()


def test_a_stop_takes_all_of_it_away_but_the_cache(host: ContainerProgramHost) -> None:
    host.make()
    host.run("clear")
    assert not (host.root / "containers/chat").exists()
    assert not (host.root / "instances/chat").exists()
    assert (host.root / "cache/chat/e-1").is_dir()
    host.run("clear")


def test_it_waits_for_the_spec_of_the_cards_before_it_makes_anything(host: ContainerProgramHost) -> None:
    spec = host.root / "nvidia.yaml"
    # it is there at the second look
    write_stand_in(
        host.root / "bin", "sleep", f'[ ! -e {host.root}/containers ] && echo "sleep $1" && echo spec > {spec}'
    )
    said = host.run_program("make", "svc", str(host.root / "key"), str(host.root / "cache/chat/e-1"), str(spec))
    assert said == f"waits for {spec}, by which the container finds its cards\nsleep 1\n"
    assert (host.root / "containers/chat/owner").exists()
