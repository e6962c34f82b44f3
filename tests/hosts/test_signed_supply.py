"""A host keeps the serials of the signed locks that it has accepted, and takes no older one without consent."""

from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.signing.ssh_signatures import sign_statement
from rigwright.signing.statements import Statement
from rigwright.signing.timestamps import current_time
from rigwright.supply.lock import Lock
from tests.hosts.conftest import BootHost
from tests.hosts.support import PyinfraRun, deploy, run_deploy, write_inventory
from tests.unit.signing_keys import DAY, make_key, public_key

# the tested code runs on this machine and in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
RECORD = "/var/lib/rigwright/accepted-serials"
BASE = ("--yes", "--data", "only=base")


class SignedBox:
    """A host with an inventory that has signers."""

    def __init__(self, folder: Path, lab: ThrowawayLab, host: LabHost) -> None:
        self.folder, self.host = folder, host
        self.key = make_key(folder, "alice")
        signers = {"alice": {"key": str(public_key(self.key))}}
        self.inventory = write_inventory(folder, lab, host, instances={}, signers=signers)
        self.digest = Lock.load([ROOT / "locks"]).digest

    def sign(self, serial: int) -> bytes:
        """Sign the lock."""
        now = current_time()
        statement = Statement("lock", (("lock", self.digest),), serial, now, now + DAY, {"inventory": "rig"})
        content = sign_statement(statement, self.key).render()
        path = self.folder / "locks/rig.lock.sig"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return content

    def deploy(self, *options: str) -> PyinfraRun:
        """Deploy the role that records serials."""
        return run_deploy(self.inventory, *BASE, *options)

    def accepted(self) -> str:
        """The host's own record."""
        return self.host.run(f"cat {RECORD} 2>/dev/null", check=False).strip()


def test_an_older_lock_is_accepted_by_its_serial_only(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    box = SignedBox(tmp_path, lab, boot())
    before = box.host.run("ls /var/lib/rigwright", check=False)
    run = box.deploy()
    assert (run.status, box.host.run("ls /var/lib/rigwright", check=False)) == (1, before)
    assert "the lock is refused: its signature is missing" in run.said
    box.sign(5)
    run = box.deploy()
    assert run.status == 0, run.said
    assert box.accepted() == f"lock 5 {box.digest}"
    assert box.deploy().changed_operations == []
    replayed = box.sign(4)
    run = box.deploy()
    assert run.status == 1
    text = "refused: the lock is signed with serial 4, and this host has accepted 5"
    assert text in run.said
    assert text in run_deploy(box.inventory, "--dry").said
    assert box.deploy("--data", "accept_older=3").status == 1
    box.sign(6)
    assert box.deploy().changed_operations == ["Base | Accepted serials"]
    box.inventory.with_name("locks").joinpath("rig.lock.sig").write_bytes(replayed)
    assert box.deploy().status == 1
    run = box.deploy("--data", "accept_older=4")
    assert run.status == 0, run.said
    assert box.accepted() == f"lock 4 {box.digest}"
    assert box.deploy().changed_operations == []
    # a record that was cut off is no reason to accept anything
    box.host.run(f"printf 'lock 9 abc' > {RECORD}")
    assert box.deploy().status == 1
    box.sign(10)
    box.host.run(f"echo 'lock 9 {box.digest}' > {RECORD}")
    assert box.deploy().status == 0
    run = deploy(box.inventory, "--yes", "--data", "verb=remove")
    assert box.host.run("ls -d /var/lib/rigwright", check=False) == ""
