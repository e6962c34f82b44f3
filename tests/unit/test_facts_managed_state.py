"""The probe's facts about our own files, and about disks, on a host with foreign changes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.rendered_scripts import write_stand_in
from tests.unit.test_facts import probe


@pytest.mark.parametrize(
    ("target", "folder"),
    [
        ("/dev/null", ""),
        ("/etc/rigwright/current/units/rigwright.target", ""),
        ("/etc/other/current/units/rigwright.target", "/etc/other"),
    ],
)
def test_the_probe_finds_another_folder_that_the_host_is_served_from(tmp_path: Path, target: str, folder: str) -> None:
    (tmp_path / "rigwright.target").symlink_to(target)
    assert probe(units=str(tmp_path), config="/etc/rigwright").elsewhere == folder


def test_the_probe_finds_a_user_that_is_there() -> None:
    (found,) = probe(users=["nobody-at-all", "root"]).users
    assert (found.name, found.passwd.split(":")[2], found.ours) == ("root", "0", False)
    assert found.home == str(Path("~root").expanduser())
    assert (probe(users=["nobody-at-all"]).users, probe(users=[]).users) == ((), ())


def test_the_probe_finds_a_group_that_has_the_name_of_a_user_to_be() -> None:
    """`sudo` is a group without a user, everywhere; a user's own group is the user's."""
    found = probe(users=["nobody-at-all", "root", "sudo"])
    assert (found.foreign_groups, [one.name for one in found.users]) == (("sudo",), ["root"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_probe_finds_each_users_processes() -> None:
    with subprocess.Popen(["sleep", "infinity"], user="nobody") as process:
        try:
            found = {one.name: one.processes for one in probe(users=["nobody", "sync"]).users}
        finally:
            process.kill()
    assert f"sleep (pid {process.pid})" in [one.partition(", ")[0] for one in found["nobody"]]
    assert found["sync"] == ()


@pytest.mark.parametrize(
    ("ledger", "users", "found"),
    [
        ("user sync\nuser games\n", ["games", "bin"], {"bin": False, "games": True, "sync": True}),
        ("user sync\n", [], {"sync": True}),
        # the whole name counts, and an invalid name belongs to no group
        (
            "user syn\nuser gam.s\nuser ../bin\nuser *\nuser \ndir /sync\n",
            ["sync", "bin"],
            {"bin": False, "sync": False},
        ),
        # written down before it was made
        ("user nobody-at-all\n", [], {}),
        (None, ["bin"], {"bin": False}),
    ],
)
def test_the_probe_finds_users_that_we_have_made_and_those_that_are_asked_for(tmp_path, ledger, users, found):
    path = tmp_path / "owned"
    if ledger is not None:
        path.write_text(ledger)
    assert {one.name: one.ours for one in probe(users=users, ledger=str(path)).users} == found


def test_the_probe_finds_engines_that_others_can_change_or_cannot_run(tmp_path: Path) -> None:
    for name, modes in {"good": (0o755, 0o755), "closed": (0o700, 0o755), "open": (0o755, 0o757)}.items():
        server = tmp_path / name / "bin/llama-server"
        server.parent.mkdir(parents=True, mode=0o755)
        server.touch()
        server.chmod(modes[1])
        (tmp_path / name / "build.json").touch(mode=0o644)
        (tmp_path / name).chmod(modes[0])
    (tmp_path / "good/bin/libllama.so").symlink_to("libllama.so.0")
    (tmp_path / "still/bin").mkdir(parents=True)
    (tmp_path / "still/bin/llama-server").touch(mode=0o644)
    (tmp_path / "still/build.json").touch(mode=0o644)
    found = probe(engines=str(tmp_path))
    assert found.built_engines == {"good", "closed", "open", "still"}
    assert found.unfit_engines == {"closed", "open", "still"}


def test_the_probe_leaves_files_deep_in_an_environment_to_their_record(tmp_path: Path) -> None:
    for name in ("whole", "open"):
        deep = tmp_path / name / "env/lib/module.py"
        deep.parent.mkdir(parents=True, mode=0o755)
        deep.touch()
        deep.chmod(0o666)  # which root's record tells
        (tmp_path / name / "build.json").touch(mode=0o644)
    (tmp_path / "open/env").chmod(0o777)
    assert probe(engines=str(tmp_path)).unfit_engines == {"open"}


def test_the_probe_finds_roots_that_are_links_and_builds_that_have_begun(tmp_path: Path) -> None:
    (tmp_path / "real" / "plain-1-abc").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = probe(folders=[str(tmp_path / "link"), str(tmp_path / "real")], builds=str(tmp_path / "real"))
    assert found.linked_roots == (str(tmp_path / "link"),)
    assert found.started_builds == {"plain-1-abc"}


def test_a_folder_whose_disk_cannot_be_looked_at_takes_nothing_from_the_others(tmp_path, monkeypatch):
    dead = tmp_path / "dead"
    dead.mkdir()
    others = f'for word do shift; [ "$word" = {dead} ] && failed=1 || set -- "$@" "$word"; done; [ $# = 3 ] && exit 1'
    write_stand_in(tmp_path / "bin", "df", f'{others}\n{shutil.which("df")} "$@"\nexit ${{failed:-0}}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = probe(folders=["/", str(dead), "/proc"])
    assert (found.file_systems["/"], found.file_systems["/proc"]) == ("/", "/proc")
    assert str(dead) not in found.disk_free_kib
