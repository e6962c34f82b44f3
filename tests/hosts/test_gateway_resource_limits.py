"""A gateway's processes under an attacker's control fill nothing that is the host's, and go on where they were."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from lab.tiny_model import ANSWER
from tests.hosts.gateway_box import DEMO, GatewayBox, ask_question
from tests.hosts.support import deploy, main_pid, on_both, red_checks, run_deploy, wait_until
from tests.hosts.test_sandbox import room

pytestmark = pytest.mark.all_only

# Its unit -> what it may write to that lies below the host's own /run.
FOLDERS = {"rigwright_gateway": "/run/rigwright_gateway", "rigwright_router": "/run/rigwright_router"}


def mounted(host: LabHost) -> list[str]:
    """The folders that are file systems, as often as they are mounted."""
    return host.run(f"findmnt --noheadings --raw --output TARGET | grep -xE '{'|'.join(FOLDERS.values())}'").split()


@on_both
def test_files_of_a_gateway_fill_no_disk_of_the_host(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    box = GatewayBox(lab, converged, tmp_path)
    inventory = box.write_gateway_inventory({"chat": DEMO})
    deploy(inventory)
    used, inodes = room(converged)
    for unit, folder in FOLDERS.items():
        theirs = f"setpriv --reuid={unit} --regid={unit} --clear-groups --no-new-privs"
        within = f"nsenter --mount --target {main_pid(converged, f'{unit}.service')} {theirs}"
        deep = f"import os; os.chdir({folder!r}); [(os.mkdir('d'), os.chdir('d')) for _ in range(9999)]"
        big = f'{within} sh -c "head -c 60M /dev/zero > {folder}/big"'
        # a full disk says so: it was tried
        assert "No space left" in converged.run(f"{big} 2>&1 || true; rm -f {folder}/big")
        assert "No space left" in converged.run(f'{within} python3 -c "{deep}" 2>&1 || true')
        converged.run(f"{big} 2> /dev/null || true")
        seen = f"/proc/{main_pid(converged, f'{unit}.service')}/root"
        for path in ("/tmp", "/var/tmp", "/dev/shm"):
            assert converged.run(f"stat -f -c %T {seen}{path}").strip() == "tmpfs"
            # not a folder of the host's own one
            assert converged.run(f"stat -c %d {seen}{path}") != converged.run(f"stat -c %d {path}")
    found = room(converged)
    assert (found[0] - used < 1000, found[1] - inodes < 100) == (True, True)
    converged.run(f"rm -rf {' '.join(f'{folder}/big {folder}/d' for folder in FOLDERS.values())}")
    assert ask_question(box.plain_client()) == ANSWER

    # killed, started one without the other, and by a folder that was none before: both see each other's
    for broken in (
        f"systemctl kill -s KILL {' '.join(FOLDERS)}",
        "systemctl restart rigwright_router",
        "systemctl restart rigwright_gateway",
        f"systemctl stop {' '.join(FOLDERS)}; umount {' '.join(FOLDERS.values())}; "
        "touch /run/rigwright_gateway/old; systemctl start rigwright_gateway",
    ):
        converged.run(broken)
        wait_until(lambda: red_checks(inventory) == set(), f"conforming again after: {broken}")
        assert sorted(mounted(converged)) == sorted(FOLDERS.values())
    assert converged.run("ls /run/rigwright_gateway/old 2> /dev/null || true") == ""
    converged.run("systemctl reload rigwright_gateway rigwright_router")
    converged.reboot()
    wait_until(lambda: red_checks(inventory) == set(), "conforming after a boot")
    assert run_deploy(inventory).changed_operations == []
    assert ask_question(box.plain_client()) == ANSWER
