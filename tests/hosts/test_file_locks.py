"""Every user that can open a file can lock it: a local user holds all of those, and everything goes on."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import deploy, red_checks, run_deploy, wait_until, write_inventory

# the tested programs and scripts are ours, which every release runs alike
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

RECORDS = "/var/lib/rigwright/weights"
REHASH = "rigwright_rehash.service"
UNIT, DROP_IN = f"/etc/systemd/system/{REHASH}", f"/run/systemd/system/{REHASH}.d"
SQUATTER = """
import fcntl, os, sys, time

held = []
for root in sys.argv[1:]:
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            try:
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            held.append(path)
open("/tmp/held", "w").write("\\n".join(held))
time.sleep(3600)
"""
OURS = "/run/rigwright /srv/models /var/lib/rigwright /etc/rigwright /opt/rigwright"


def squat(host: LabHost) -> list[str]:
    """Have a user without rights hold every lock that it can; returns of what."""
    host.run("rm -f /tmp/held; cat > /tmp/squatter.py <<'END'\n" + SQUATTER + "END")
    host.run(
        f"systemd-run -q --unit=squatter --uid=nobody --property=LimitNOFILE=500000 python3 /tmp/squatter.py {OURS}"
    )
    wait_until(lambda: host.run("test -e /tmp/held && echo yes", check=False), "a local user holds what it can")
    return host.run("cat /tmp/held").splitlines()


def test_locks_of_a_local_user_keep_nothing_waiting(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    assert run_deploy(inventory).status == 0  # its deploy lock is there to be held
    held = squat(converged)
    assert "/srv/models" in held
    assert not [path for path in held if path.startswith("/run/rigwright/l")]

    # a second hashing that nothing held up, and did not run all the same, is seen
    converged.run(f"find {RECORDS}/deep -type f -exec touch -d '16 days ago' {{}} +")
    assert red_checks(inventory) == {"W03"}
    converged.run(f"mv {UNIT} /root/unit && ln -s /dev/null {UNIT} && systemctl daemon-reload")
    assert red_checks(inventory) == {"U01", "W03", "W05"}
    converged.run(f"mv -f /root/unit {UNIT} && systemctl daemon-reload")

    # a due file is hashed again, at any load of this machine: its note is renewed
    converged.run(f"find {RECORDS}/deep -type f -exec touch -d 2001-01-01 {{}} +")
    now = f"echo [Service]; echo ExecStart=; sed -n '/^ExecStart=/s/$/ --now/p' {UNIT}"
    converged.run(f"mkdir -p {DROP_IN} && ({now}) > {DROP_IN}/now.conf && systemctl daemon-reload")
    converged.run(f"systemctl start {REHASH}")
    said = converged.run(f"journalctl --no-pager --output=cat --unit={REHASH}")
    assert converged.run(f"find {RECORDS}/deep -type f ! -newermt 2002-01-01") == "", said
    converged.run(f"rm -r {DROP_IN} && systemctl daemon-reload")

    # without its record a file is verified by the job that also fetches
    converged.run(f"rm {RECORDS}/*-*")
    run = deploy(inventory)
    assert any("Fetch" in name for name in run.changed_operations)
    assert converged.run("systemctl is-active squatter").strip() == "active"
    assert red_checks(inventory) == set()
