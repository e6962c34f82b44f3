"""Facts that every look at a host reads: a listener is reported by its own name, process and unit, whatever it is
called."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rigwright.host import script_output
from rigwright.host.basic_facts import unit_of
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.test_facts import probe


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("/system.slice/nginx.service", "nginx.service"),
        ("/rigwright.slice/rigwright-chat.slice/rigwright-chat.service", "rigwright-chat.service"),
        ("/system.slice/system-x.slice/x@1.service/inner", "x@1.service"),
        ("/init.scope", "init.scope"),
        # a user's own manager has units of any name
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/rigwright-chat.service", "user@1000.service"),
        ("/user.slice/user-1000.slice/session-3.scope", "session-3.scope"),
        ("/system.slice/a b.service", ""),
        ("/system.slice/a\nuid 7.service", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_a_control_group_is_of_the_systems_own_unit(cgroup: str, unit: str) -> None:
    assert unit_of(cgroup) == unit


@pytest.mark.skipif(shutil.which("ss") is None, reason="no ss (iproute2) here")
def test_the_probe_finds_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (mine,) = [one for one in probe().listeners if one.port == port]
    assert mine.process == Path("/proc/self/comm").read_text().strip()


LISTEN = """
import socket, sys
with open("/proc/self/comm", "w") as comm:
    comm.write(sys.argv[1])
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(shutil.which("ss") is None, reason="no ss (iproute2) here")
@pytest.mark.parametrize(
    "name",
    ["a\\nuid 7\\nb", "a\nuid 7", '",pid=1,fd=9', "pid=1,", "\nLISTEN 0 0 *:x", "\x1b[31m", "%s\\c", "-n"],
    ids=repr,
)
def test_a_listener_is_reported_by_its_own_name_and_process_whatever_that_is(name: str) -> None:
    """Any local user listens, and is called as it likes."""
    command = [sys.executable, "-c", LISTEN, name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        found = probe()
        cgroup = Path(f"/proc/{process.pid}/cgroup").read_text()
        process.communicate()
    assert found.uid == os.getuid()
    (mine,) = [one for one in found.listeners if one.port == port]
    assert "\n" not in mine.process
    assert mine.process in ("", script_output.free_text(name[:15]))
    assert mine.unit in ("", unit_of(cgroup.strip().rpartition(":")[2]))


@pytest.mark.parametrize(
    ("sockets", "unit"),
    [
        (
            "127.0.0.1:8020 rigwright_listener-8020.socket rigwright_listener-8020.service",
            "rigwright_listener-8020.service",
        ),
        ("[::]:8020 cups.socket cups.service", "cups.service"),
        # another port's, and one that only ends like it
        (
            "127.0.0.1:18020 x.socket x.service\n127.0.0.1:80201 y.socket y.service\n/run/z:8020/z z.socket z.service",
            "",
        ),
        ("", ""),
    ],
)
def test_a_port_that_systemd_holds_is_the_units_that_it_holds_it_for(tmp_path, monkeypatch, sockets, unit):
    write_stand_in(tmp_path, "ss", """echo 'LISTEN 0 4096 127.0.0.1:8020 0.0.0.0:* users:(("systemd",pid=1,fd=42))'""")
    write_stand_in(tmp_path, "systemctl", f"case $1 in list-sockets) cat <<'END'\n{sockets}\nEND\n;; esac")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = probe().listeners
    assert (found.port, found.unit) == (8020, unit)
