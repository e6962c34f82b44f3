"""A box pulls its signed generation from a web server without its controller, proves it, and returns from a bad one."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import (
    PORT,
    deploy,
    is_serving,
    red_check_lines,
    red_checks,
    run_plan,
    wait_until,
    write_inventory,
)
from tests.unit.signing_keys import make_key, public_key

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
SERVICE = "rigwright_pull.service"
RECORD = "/var/lib/rigwright/pull/state.json"
LEFT = "/var/lib/rigwright/pull /etc/rigwright/self_check /etc/systemd/system/rigwright_pull* /run/rigwright_pull"
PROGRAM = "/etc/rigwright/self_check/pull/rigwright_pull/served_generation.py"
HOLD_PORT = "systemd-run --quiet --unit=holder python3 -m http.server 8099"


class PullingBox:
    """A host that pulls from a stand-in web server of this machine."""

    def __init__(self, folder: Path, lab: ThrowawayLab, host: LabHost) -> None:
        self.folder, self.lab, self.host = folder, lab, host
        self.key, self.published = make_key(folder, "alice"), folder / "published"
        self.published.mkdir()
        handler = partial(SimpleHTTPRequestHandler, directory=str(self.published))
        self.server = ThreadingHTTPServer((urlsplit(lab.shelf_url).hostname or "", 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.inventory = self.declare()

    def declare(self, **chat: object) -> Path:
        """Write the inventory, with some keys of its instance."""
        address, port = self.server.server_address[:2]
        return write_inventory(
            *(self.folder, self.lab, self.host),
            instances={"chat": {"variant": "llamacpp/demo-wheel", "port": PORT, **chat}},
            signers={"alice": {"key": str(public_key(self.key)), "signs": ["lock", "generation", "timestamp"]}},
            pull={"url": f"http://{address!s}:{port}", "interval_minutes": 60},
        )

    def sign(self, *options: str) -> str:
        """Sign the lock, or publish."""
        done = run_rigwright("sign", str(self.inventory), "--key", str(self.key), *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def publish(self, **chat: object) -> str:
        """Publish the generation of a changed inventory."""
        self.declare(**chat)
        return self.sign("--publish", str(self.published))

    def pull(self) -> tuple[str, str, str]:
        """Pull once; the outcome, its reason and its text."""
        self.host.run(f"systemctl start {SERVICE}")
        return self.read_record()

    def read_record(self) -> tuple[str, str, str]:
        """The outcome that the box has recorded."""
        found = json.loads(self.host.run(f"cat {RECORD}"))
        print({name: found[name] for name in ("outcome", "reason", "text")})
        return found["outcome"], found["reason"], found["text"]

    def assert_as_declared(self) -> None:
        """A plan and the checks find nothing; the timer is stopped at all other times, so that pulls are the test's."""
        self.host.run("systemctl start rigwright_pull.timer")
        assert run_plan(self.inventory).planned_operations == []
        assert red_check_lines(self.inventory) == {}
        self.host.run("systemctl stop rigwright_pull.timer")

    def current(self) -> str:
        """The generation that the box serves."""
        return self.host.run("readlink /etc/rigwright/current").strip()


@pytest.fixture
def box(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> Iterator[PullingBox]:
    made = PullingBox(tmp_path, lab, boot())
    made.sign()
    deploy(made.inventory)
    assert run_plan(made.inventory).planned_operations == []
    yield made
    made.server.shutdown()


def test_a_box_pulls_a_generation_and_returns_from_a_bad_one(box: PullingBox) -> None:
    host = box.host
    host.run("systemctl stop rigwright_pull.timer")
    box.publish()
    assert box.pull() == ("current", "", "")
    box.publish(tasks_max=300)
    assert box.pull() == ("activated", "", "")
    assert (box.current(), is_serving(host)) == ("generations/2", True)
    assert "TasksMax=300" in host.run("cat /etc/systemd/system/rigwright-chat.service")
    box.assert_as_declared()
    assert box.pull() == ("current", "", "")

    host.run(HOLD_PORT)
    box.publish(port=8099)
    outcome, reason, text = box.pull()
    assert (outcome, reason, box.current(), is_serving(host)) == ("failed", "gate", "generations/2", True), text
    assert box.pull()[:2] == ("failed", "failed_before")
    assert "Y04" in red_checks(box.inventory)
    assert "pull: failed at " in run_rigwright("status", str(box.inventory)).stdout

    # a kill while the new generation starts: the next run ends what the job has done
    box.publish(tasks_max=301)
    host.run(f"systemctl start --no-block {SERVICE}")
    wait_until(lambda: "activating" in host.run("ls /etc/rigwright"), "an activation")
    host.run(f"systemctl kill --signal=KILL {SERVICE}")
    assert box.pull() == ("activated", "", "")
    assert (box.current(), is_serving(host)) == ("generations/3", True)

    # a controller's deploy and a pull exclude each other
    box.publish(tasks_max=302)
    host.run("systemd-run --quiet --unit=deploy flock /run/rigwright/locks/lease sleep 600")
    assert box.pull()[:2] == ("busy", "busy")
    host.run("systemctl stop deploy holder; systemctl reset-failed")
    assert box.pull() == ("activated", "", "")
    box.assert_as_declared()

    # an activation that makes no progress is stopped at its limit; the next pull repeats it
    # of the 630 s that its unit may take, 30 are left
    host.run(f"sed -i 's/^DRAIN_S = .*/DRAIN_S = -600.0/' {PROGRAM}")
    before = box.current()
    box.publish(tasks_max=303)
    host.run(f"systemctl start --no-block {SERVICE}")
    wait_until(lambda: "activating" in host.run("ls /etc/rigwright"), "an activation")
    host.run("systemctl kill --signal=STOP rw-job-activate.service")
    wait_until(lambda: box.read_record()[:2] == ("failed", "slow"), "the limit", 150, 2.0)
    assert box.read_record()[2].startswith("its activation: no line was written within 30 s (")
    assert (box.current(), is_serving(host)) == (before, True)
    assert box.pull() == ("activated", "", "")

    # a removal takes all of it
    deploy(box.inventory, "--yes", "--data", "verb=remove")
    assert host.run(f"ls -d {LEFT} 2>/dev/null; getent passwd rigwright_pull", check=False).strip() == ""
