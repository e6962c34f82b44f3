"""Entries that are rights of processes: open secrets, devices and locks, named namespaces, keys of the kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from checks.survey.host import process_entries
from checks.survey.host.host_entry import HostEntry

ASKED: dict[str, Any] = {
    "credentials": "/etc/rigwright/credentials",
    "locks": "/run/rigwright/locks",
    "ours": {"folders": {"/srv/models": ""}},
}
SECRET = "/etc/rigwright/credentials/chat.api-key"
LOGIN = "/user.slice/user-0.slice/session-3.scope"
OURS = "/rigwright.slice/rigwright-chat.service"
Reader = Callable[[str, dict[str, Any]], Iterator[HostEntry]]


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[Path]:
    process_entries.list_processes.cache_clear()
    with (
        patch.object(process_entries, "PROC", str(tmp_path)),
        patch.object(process_entries, "NAMESPACES", str(tmp_path / "netns")),
    ):
        yield tmp_path
    process_entries.list_processes.cache_clear()


def run_process(proc: Path, pid: int, program: str, group: str, *opened: str, writes: bool = False) -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "exe").symlink_to(program)
    (folder / "cgroup").write_text(f"0::{group}\n")
    for number, path in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(path)


def keys(reader: Reader) -> list[str]:
    return [entry.key for entry in reader("class", ASKED)]


def test_open_secrets_are_entries_unless_our_units_have_them_open(proc: Path) -> None:
    run_process(proc, 1, "/usr/lib/systemd/systemd", "/init.scope", SECRET)
    run_process(proc, 20, "/usr/bin/chat", OURS, SECRET)
    run_process(proc, 30, "/usr/bin/sleep", LOGIN, SECRET, "/etc/rigwright/credentials-old/x", "socket:[12]")
    run_process(proc, 31, "/usr/bin/gdb", LOGIN, "/proc/20/mem", "/proc/30/mem")
    assert keys(process_entries.open_secrets) == [
        f"{SECRET} open in /usr/bin/sleep of session-3.scope",
        "memory of /usr/bin/chat open in /usr/bin/gdb of session-3.scope",
    ]


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/rigwright-chat.service", "user@1000.service"),
        ("/user.slice/user-1000.slice/user@1000.service/docker-1.scope", "user@1000.service"),
        ("/system.slice/docker-0a1b.scope/rigwright-chat.service", "docker-0a1b.scope"),
        ("/lxc/box/system.slice/rigwright-chat.service", "box"),
    ],
)
def test_a_group_that_a_user_names_is_not_of_ours(proc: Path, group: str, unit: str) -> None:
    run_process(proc, 30, "/usr/bin/sleep", group, SECRET)
    assert keys(process_entries.open_secrets) == [f"{SECRET} open in /usr/bin/sleep of {unit}"]


def test_a_process_with_very_many_descriptors_hides_no_other_one_and_is_an_entry(proc: Path) -> None:
    run_process(proc, 10, "/usr/bin/hog", LOGIN, *(f"/tmp/{number}" for number in range(9)))
    run_process(proc, 30, "/usr/bin/sleep", LOGIN, SECRET)
    with patch.object(process_entries, "MOST_OF_ONE", 5):
        assert keys(process_entries.open_secrets) == [
            "not all descriptors of /usr/bin/hog of session-3.scope were read",
            f"{SECRET} open in /usr/bin/sleep of session-3.scope",
        ]


def test_a_file_of_ours_that_is_open_to_write_is_an_entry(proc: Path) -> None:
    weights = "/srv/models/a.gguf"
    run_process(proc, 30, "/usr/bin/tail", LOGIN, weights)
    with patch.object(process_entries, "WRITABLE", 0):
        assert keys(process_entries.open_secrets) == []
    process_entries.list_processes.cache_clear()
    # a link of a test may be written by all
    assert keys(process_entries.open_secrets) == [f"{weights} open in /usr/bin/tail of session-3.scope"]


@pytest.mark.parametrize(
    ("program", "group", "is_entry"),
    [
        ("/usr/bin/python3", LOGIN, True),
        ("/usr/bin/nvidia-persistenced", "/system.slice/nvidia-persistenced.service", False),
        ("/usr/bin/python3", "/system.slice/docker-0a1b.scope", False),
        ("/usr/bin/chat", OURS, False),
    ],
)
def test_open_cards_are_entries(proc: Path, program: str, group: str, is_entry: bool) -> None:
    run_process(proc, 30, program, group, "/dev/nvidia0", "/dev/null")
    wanted = [f"/dev/nvidia0 open in {program} of {group.rpartition('/')[2]}"]
    assert keys(process_entries.open_devices) == (wanted if is_entry else [])


@pytest.mark.parametrize(
    ("program", "group", "is_entry"),
    [
        ("/usr/bin/flock", LOGIN, True),
        ("/usr/bin/python3.13", LOGIN, True),
        ("/usr/bin/dash", LOGIN, False),
        ("/usr/bin/python3.13", "/system.slice/rigwright_self_check.service", False),
        ("/usr/bin/flock", "/system.slice/rw-job-trees.service", False),
    ],
)
def test_locks_that_no_deploy_holds_are_entries(proc: Path, program: str, group: str, is_entry: bool) -> None:
    run_process(proc, 30, program, group, "/run/rigwright/locks/lease")
    assert bool(keys(process_entries.held_locks)) is is_entry


def test_processes_of_root_in_named_namespaces_are_entries(proc: Path) -> None:
    (proc / "netns").mkdir()
    (proc / "netns/cni-7").write_text("")
    for pid, group in ((30, LOGIN), (31, "/system.slice/docker-0a1b.scope"), (32, LOGIN)):
        run_process(proc, pid, "/usr/bin/sleep", group)
        (proc / f"{pid}/ns").mkdir()
    for pid in (30, 31):
        os.link(proc / "netns/cni-7", proc / f"{pid}/ns/net")
    (proc / "32/ns/net").write_text("")
    found = keys(process_entries.namespace_processes)
    assert found == (["/usr/bin/sleep of session-3.scope in network namespace cni-7"] if os.geteuid() == 0 else [])


def test_keys_with_a_payload_are_entries(proc: Path) -> None:
    (proc / "keys").write_text(
        "009e0bd2 I--Q---     1 perm 0b0b0000     0     0 user      invocation_id: 16\n"
        "009e0bd3 I--Q---     1 perm 0b0b0000     0     0 user      invocation_id: 33\n"
        "134c987e I--Q---     1   2h 3f010000     0     0 user      dns_cache:0: 33\n"
        "134c987f IR-Q---     1 perm 3f010000     0     0 user      revoked: 33\n"
        "0177b193 I--Q---    34 perm 3f030000     0     0 keyring   _ses: empty\n"
        "broken\n"
    )
    assert keys(process_entries.kernel_keys) == ["kernel key user invocation_id", "kernel key user dns_cache:0"]


def test_descriptors_are_bounded(proc: Path) -> None:
    for pid in (30, 31):
        run_process(proc, pid, "/usr/bin/sleep", LOGIN, *[f"/tmp/{number}" for number in range(9)], SECRET)
    with patch.object(process_entries, "MOST_DESCRIPTORS", 12):
        found = process_entries.list_processes(str(proc))
    assert [len(one.descriptors) for one in found] == [10, 2]
