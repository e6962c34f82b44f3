"""The questions of the checks to a sandbox: as its unit and drop-ins leave it, and nothing that changes anything."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from checks import sandbox_breakout
from checks.sandbox_breakout import (
    file_escapes,
    is_permitted,
    network_escapes,
    open_device,
    reachable_processes,
    write_and_remove,
)
from checks.survey.host.sandbox_escapes import TRIED, _inside, _render_input, _settings
from checks.survey.processes import PROGRAM
from rigwright.validated_types import memory_bytes

CAT = """# /etc/systemd/system/rigwright-chat.service
[Unit]
Description=chat
PrivateNetwork=no

[Service]
Type=exec
User=rigwright-chat
ExecStart=/x
RuntimeDirectory=rigwright/instances/chat
# a comment
PrivateNetwork=yes
RestrictAddressFamilies=AF_UNIX
CapabilityBoundingSet=
SystemCallFilter=@system-service
SystemCallFilter=~@privileged

[Install]
WantedBy=rigwright.target
"""
DROP_IN = """
# /etc/systemd/system/rigwright-chat.service.d/x.conf
[Service]
PrivateNetwork=no
RestrictAddressFamilies=
SystemCallFilter=
CapabilityBoundingSet=~
"""


def test_a_units_settings_are_those_of_its_sandbox_alone() -> None:
    assert _settings(CAT) == [
        "User=rigwright-chat",
        "PrivateNetwork=yes",
        "RestrictAddressFamilies=AF_UNIX",
        "CapabilityBoundingSet=",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged",
    ]


def test_a_restriction_that_a_drop_in_takes_back_does_not_hold() -> None:
    found = _settings(CAT + DROP_IN)
    assert [one for one in found if one.startswith(("RestrictAddress", "SystemCall"))] == []
    assert [one for one in found if one.startswith(("Private", "Capability"))] == [
        *("PrivateNetwork=yes", "CapabilityBoundingSet=", "PrivateNetwork=no", "CapabilityBoundingSet=~")
    ]


@pytest.mark.parametrize("path", ["/dev/mem", "/dev/sda1", "/dev/nvme0n1", "/dev/dm-0", "/dev/nvidia3", "/dev/net/tun"])
def test_devices_that_hold_something_of_others_are_tried(path: str) -> None:
    assert TRIED.fullmatch(path)


@pytest.mark.parametrize("path", ["/dev/watchdog", "/dev/watchdog0", "/dev/st0", "/dev/nst0", "/dev/sr0", "/dev/ttyS0"])
def test_no_device_is_opened_to_which_that_does_something(path: str) -> None:
    assert not TRIED.fullmatch(path)


def test_questions_reach_the_program_unchanged() -> None:
    asked: dict[str, object] = {"sockets": ["/run/$HOME `id` 'x' \"y\"\n%n"]}
    asked["sockets"] = [f"/run/{number}/{'x' * 100}" for number in range(5000)]
    words = _inside("tried-here", ["User=nobody"])
    assert words[0] == "systemd-run"
    assert {"--unit=tried-here", "--property=User=nobody"} < set(words)
    program = "from __future__ import annotations\nif __name__ == '__main__':\n    import sys; print(sys.argv[1:])\n"
    words = [sys.executable, *words[words.index("--") + 2 :]]
    done = subprocess.run(words, input=_render_input(asked, program), capture_output=True, check=True)
    assert done.stdout.decode() == f"{[json.dumps(asked)]}\n"


def test_the_program_says_what_came_through_and_changes_nothing(tmp_path: Any) -> None:
    own = tmp_path / "own"
    own.mkdir()
    secret = own / "secret"
    secret.write_text("x")
    asked = {
        "processes": [os.getpid()],
        "sockets": [str(tmp_path / "none.sock")],
        "addresses": [],
        "families": [],
        "network": "net:[0]",
        "secrets": [str(secret), str(own / "none")],
        "locks": [str(secret)],
        "folders": [str(own), str(tmp_path / "none")],
        "devices": [str(tmp_path / "none")],
        "writes_code": True,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-", json.dumps(asked)], input=PROGRAM.read_bytes(), capture_output=True, check=True
    )
    found = json.loads(done.stdout)
    assert f"can signal process {os.getpid()}" in found["processes"]
    assert found["files"] == [f"can read {secret}", f"can lock {secret}", f"can write to {own}"]
    assert found["devices"] == []
    assert [path.name for path in own.iterdir()] == ["secret"]


@pytest.mark.parametrize("shared", [True, False])
def test_in_the_hosts_network_a_loopback_interface_is_shared(shared: bool) -> None:
    here = str(Path("/proc/self/ns/net").readlink())
    allowed = ["AF_INET", "AF_NETLINK"]
    found = network_escapes([("127.0.0.1", 0)], [], allowed, here if shared else "net:[0]")
    assert not any("AF_INET " in one or one.endswith(("AF_INET", "AF_NETLINK")) for one in found)
    assert ("is in the host's network" in found) == shared
    assert ("can use io_uring" in found) == has_io_uring()
    assert any(one.startswith("can open sockets of AF_UNSPEC, AF_UNIX, ") for one in found)
    assert not any("AF_INET," in one for one in found)
    assert ("can listen on 127.0.0.1 port 0" in found) == shared


def has_io_uring() -> bool:
    try:
        sandbox_breakout.IoUring().close()
    except OSError:
        return False
    return True


def test_without_a_filter_every_family_comes_through_both_ways() -> None:
    reached = [one for one in range(sandbox_breakout.FAMILIES) if not sandbox_breakout.is_family_refused(one)]
    assert reached == list(range(sandbox_breakout.FAMILIES))
    names = "AF_UNSPEC, AF_INET, AF_INET6, AF_NETLINK"
    assert sandbox_breakout.format_families([0, 2, 10, 16]) == names
    if has_io_uring():
        found = sandbox_breakout.io_uring_sockets([0, 2, 10, 16])
        assert found == ["can use io_uring", f"can open sockets of {names} by io_uring"]


@pytest.mark.parametrize(("setup", "probe"), [(-1, True), (3, False)])
def test_a_ring_that_is_refused_or_knows_no_sockets_opens_none(
    monkeypatch: pytest.MonkeyPatch, setup: int, probe: bool
) -> None:
    class Calls:
        def syscall(self, number: int, *_: object) -> int:
            codes = {sandbox_breakout.IO_URING_SETUP: setup, sandbox_breakout.IO_URING_REGISTER: 0 if probe else -1}
            return codes[number]

    monkeypatch.setattr(sandbox_breakout, "LIBC", Calls())
    monkeypatch.setattr(sandbox_breakout.IoUring, "close", lambda _: None)
    assert sandbox_breakout.io_uring_sockets([2]) == ([] if setup < 0 else ["can use io_uring"])


def test_a_traced_process_is_not_stopped() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        done = subprocess.run(
            [sys.executable, "-c", f"import checks.sandbox_breakout as e; e.reachable_processes([{child.pid}])"],
            check=True,
        )
        assert done.returncode == 0
        with open(f"/proc/{child.pid}/stat") as stat:
            assert stat.read().split(")")[1].split()[0] in "SR"
        child.kill()


def test_refused_attempts_did_not_succeed() -> None:
    assert not is_permitted(open_device, "/dev/none")
    assert not is_permitted(write_and_remove, "/proc")
    assert reachable_processes([]) == file_escapes([], [], []) == []


@pytest.mark.parametrize(
    ("declared", "size"),
    [("512M", 512 << 20), ("48G", 48 << 30), ("1T", 1 << 40), ("90%", 1024 * 900), ("100%", 1024000)],
)
def test_an_amount_of_memory_is_read_as_systemd_reads_it(declared: str, size: int) -> None:
    assert memory_bytes(declared, 1000) == size
