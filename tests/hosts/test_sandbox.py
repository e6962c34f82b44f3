"""From one place of a box to another: a local user to the API key, one instance to the next."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import (
    KEY_FILE,
    PORT,
    api_key,
    deploy,
    main_pid,
    on_both,
    red_checks,
    run_deploy,
    wait_until,
    write_inventory,
)

HOLDER, CARRIER = (f"rigwright_listener-{PORT}.{kind}" for kind in ("socket", "service"))
SOCKET = "/run/rigwright/instances/chat/api.sock"
# Takes the port as soon as it is free, for a given time, and prints whether it ever did.
SQUATTER = f"""
import socket, time
until = time.monotonic() + 8
while time.monotonic() < until:
    for address in ("127.0.0.1", "0.0.0.0", "127.0.0.2", "::1", "::"):
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            one.bind((address, {PORT}))
            one.listen()
            print(address)
        except OSError:
            pass
        one.close()
    time.sleep(0.001)
"""


def room(host: LabHost) -> tuple[int, int]:
    """The used part of a host's /run: KiB, and files."""
    used, inodes = host.run("df --output=used,iused /run").split()[-2:]
    return int(used), int(inodes)


@pytest.fixture
def eve(converged: LabHost) -> str:
    """A local user of the box, without any rights."""
    converged.run("useradd --create-home eve")
    return "setpriv --reuid=eve --regid=eve --clear-groups"


@on_both
def test_a_local_user_never_gets_the_port_nor_past_it(converged: LabHost, eve: str, inventory: Path) -> None:
    squatter = f"{eve} python3 -c '{SQUATTER}'"
    before = main_pid(converged)
    taken = converged.run(
        f"{squatter} > /tmp/squatter & systemctl restart rigwright-chat; systemctl kill -s KILL {CARRIER}; "
        "systemctl kill -s KILL rigwright-chat; wait; sort /tmp/squatter | uniq -c"
    )
    dying = f"systemctl kill -s KILL {CARRIER}; curl --silent --max-time 1 http://127.0.0.1:{PORT}/health > /dev/null &"
    converged.run(f"for n in $(seq 30); do {dying} done; wait; systemctl is-active {HOLDER}")
    # 127.0.0.2 has no owner; clients use 127.0.0.1
    assert {line.split()[1] for line in taken.splitlines()} <= {"127.0.0.2"}
    wait_until(lambda: main_pid(converged) not in (0, before), "serving again")
    refused = f"{eve} curl --silent --unix-socket {SOCKET} http://localhost/health || echo $?"
    assert converged.run(refused).strip() == "7"
    wait_until(lambda: red_checks(inventory) == set(), "conforming again")


def test_clients_wait_at_the_port_while_no_engine_is_behind_it(converged: LabHost, inventory: Path) -> None:
    converged.run("systemctl stop rigwright-chat")
    ask = (
        f"curl --silent --max-time 5 -H 'Authorization: Bearer {api_key(converged)}' http://127.0.0.1:{PORT}/v1/models"
    )
    # connected and then closed, which a client tells from a free port (7)
    assert converged.run(f"{ask} || echo $?").strip() in ("52", "56")
    # nor do they reach a start before all has been done that has to come before them, however early its engine answers
    slow = '#!/bin/sh\\nuntil [ -e /run/go ]; do sleep 0.1; done\\nexec /var/tmp/setpriv "$@"\\n'
    converged.run(
        f"cp /usr/bin/setpriv /var/tmp/setpriv; printf '{slow}' > /var/tmp/slow; chmod 755 /var/tmp/slow; "
        "mount --bind /var/tmp/slow /usr/bin/setpriv; systemctl start --no-block rigwright-chat; "
        f"until curl --silent --fail --unix-socket {SOCKET} http://x/health; do sleep 0.1; done"
    )
    assert converged.run(f"{ask} || echo $?").strip() in ("52", "56")
    assert converged.run("systemctl is-active rigwright-chat || true").strip() == "activating"
    converged.run(
        "touch /run/go; systemctl start rigwright-chat; umount /usr/bin/setpriv; rm /var/tmp/setpriv /var/tmp/slow"
    )
    assert "tiny-rig" in converged.run(ask)
    converged.run("systemctl stop rigwright-chat")
    carrier = main_pid(converged, CARRIER)
    assert run_deploy(inventory).changed_operations == ["Serving | Activate generation"]
    assert "tiny-rig" in converged.run(ask)
    assert main_pid(converged, CARRIER) == carrier


def test_files_of_an_instance_fill_no_disk_of_the_host(converged: LabHost, inventory: Path) -> None:
    """A full /run keeps systemd from reading units and from starting jobs, and so every deploy away."""
    folder = str(Path(SOCKET).parent)
    theirs = "setpriv --reuid=rigwright-chat --regid=rigwright-chat --clear-groups --no-new-privs"
    deep = f"import os; os.chdir({folder!r}); [(os.mkdir('d'), os.chdir('d')) for _ in range(9999)]"
    used, inodes = room(converged)
    converged.run(f'{theirs} sh -c "head -c 9M /dev/zero > {folder}/big" || true; {theirs} python3 -c "{deep}" || true')
    found = room(converged)
    assert (found[0] - used < 1000, found[1] - inodes < 100) == (True, True)
    seen = f"/proc/{main_pid(converged)}/root"
    for path in ("/tmp", "/var/tmp", "/dev/shm"):
        assert converged.run(f"stat -f -c %T {seen}{path}").strip() == "tmpfs"
        # not a folder of the host's own one
        assert converged.run(f"stat -c %d {seen}{path}") != converged.run(f"stat -c %d {path}")
    converged.run("systemctl stop rigwright-chat")
    assert converged.run(f"ls {Path(folder).parent}; findmnt --noheadings {folder} || true") == ""
    deploy(inventory)
    wait_until(lambda: red_checks(inventory) == set(), "conforming again")


def test_one_instance_cannot_reach_the_next(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    chat = {"variant": "llamacpp/demo", "port": PORT}
    both = write_inventory(tmp_path, lab, converged, instances={"chat": chat, "two": {**chat, "port": PORT + 1}})
    first = main_pid(converged)
    deploy(both)
    # another instance is hidden from this one
    assert main_pid(converged) == first
    assert red_checks(both) == set()
    users = converged.run("ps -o user:32= -p $(pgrep -d, llama-server) | sort").split()
    assert users == ["rigwright-chat", "rigwright-two"]
    theirs = "setpriv --reuid=rigwright-two --regid=rigwright-two --clear-groups --no-new-privs"
    for attempt in (
        f"kill -0 {first}",
        f"cat {KEY_FILE}",
        "cat /run/credentials/rigwright-chat.service/api-key",
        f"cat /proc/{first}/environ",
        f"curl --silent --unix-socket {SOCKET} http://localhost/health",
        "flock --nonblock /run/rigwright/locks/lease true",
    ):
        assert converged.run(f"{theirs} {attempt} > /dev/null 2>&1 && echo done || true") == "", attempt
