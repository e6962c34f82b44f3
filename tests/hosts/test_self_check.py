"""A box checks itself: faults become metrics and history, packages start a run, and a stopped instance is no fault."""

import json
import shlex
import time
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.raw_disk import attached_disk
from tests.hosts.support import deploy, is_serving, red_checks, run_plan, wait_until, write_inventory

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

SERVICE = "rigwright_self_check.service"
RESULT = "/var/lib/rigwright/self_check/state.json"
METRICS = "/var/lib/rigwright/metrics/self_check.prom"
DROP_IN = "/etc/systemd/system/rigwright-chat.service.d"
SHOWN_S = 60.0  # seconds from the start of a run to its metrics
CPU_NS = 600_000_000  # twice what a run may take: other tests share the processors
CONTROL = r"Package: rw-probe\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n"
PACKAGE = (
    f"mkdir -p /tmp/probe/DEBIAN && printf '{CONTROL}' > /tmp/probe/DEBIAN/control"
    " && dpkg-deb -b /tmp/probe /tmp/probe.deb >/dev/null"
)
LEFT = (
    "ls -d /etc/rigwright/self_check /var/lib/rigwright/self_check /etc/systemd/system/*self_check* 2>/dev/null; "
    "systemctl list-units --all --plain --no-legend '*self_check*'; "
    "ls /etc/systemd/system/*.wants | grep self_check || true"
)


def read_result(host: LabHost) -> tuple[float, str, set[str]]:
    """When the last run was, how it ended, and which checks do not hold."""
    found = json.loads(host.run(f"cat {RESULT}"))
    return found["run"], found["outcome"], {one["check"] for one in found["failing"]}


def run_once(host: LabHost) -> tuple[str, set[str]]:
    """Start a run, wait for its end; how it ended."""
    host.run(f"systemctl start {SERVICE}")
    return read_result(host)[1:]


def count_runs(host: LabHost, cursor: str) -> int:
    """Runs that have begun since a place of the journal."""
    told = host.run(f"journalctl --no-pager -o cat -u {SERVICE} --after-cursor='{cursor}'")
    return sum(line.startswith("Starting ") for line in told.splitlines())


def journal_cursor(host: LabHost) -> str:
    return host.run("journalctl --no-pager -n 1 -o cat --show-cursor").rpartition("-- cursor: ")[2].strip()


def test_a_fault_is_shown_and_goes_with_its_repair(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, lab, converged, monitoring={"address": converged.address})
    began = float(converged.run("date +%s"))
    deploy(inventory)
    # the end of a deploy starts a run by itself: the deploy lock's file is closed
    wait_until(
        lambda: read_result(converged)[0] > began and read_result(converged)[1] == "ok", "a run after the deploy"
    )
    assert run_plan(inventory).planned_operations == []

    converged.run(f"mkdir {DROP_IN}; printf '[Service]\\nNice=5\\n' > {DROP_IN}/x.conf; systemctl daemon-reload")
    converged.run("echo '# x' >> /etc/rigwright/current/env/chat")
    started = time.monotonic()
    outcome, failing = run_once(converged)
    took = time.monotonic() - started
    shown = converged.run(f"curl -s http://{converged.address}:9100/metrics | grep ^rigwright_self_check")
    assert (outcome, failing >= {"U02", "G01"}) == ("failing", True), failing
    assert 'rigwright_self_check_failed{check="U02",level="critical",part=""} 1' in shown
    assert took < SHOWN_S

    converged.run(f"rm -r {DROP_IN}; sed -i '$ d' /etc/rigwright/current/env/chat; systemctl daemon-reload")
    assert run_once(converged) == ("ok", set())
    assert "failed{" not in converged.run(f"cat {METRICS}")
    used = int(converged.run(f"systemctl show -P CPUUsageNSec {SERVICE}"))
    print(f"metrics {took:.1f} s after the start of a run, which took {used / 1e9:.3f} s of a processor")
    assert used < CPU_NS

    cursor = journal_cursor(converged)
    before = read_result(converged)[0]
    installs = "; ".join(["dpkg -i /tmp/probe.deb", "dpkg -r rw-probe"] * 5)
    converged.run(f"{PACKAGE}; {{ {installs}; }} >/dev/null")
    wait_until(lambda: read_result(converged)[0] > before, "a run after packages")
    print(f"ten transactions of packages started {count_runs(converged, cursor)} runs")
    assert count_runs(converged, cursor) <= 3

    for verb, active in (("stop", "inactive"), ("start", "active")):
        done = run_rigwright(verb, str(inventory), "chat")
        assert done.returncode == 0, done.stdout + done.stderr
        assert converged.run("systemctl is-active rigwright-chat", check=False).strip() == active
        assert run_once(converged) == ("ok", set())

    done = run_rigwright("check", str(inventory), "--history")
    (told,) = json.loads(run_rigwright("check", str(inventory), "--history", "--json").stdout)
    failed = [one["check"] for event in told["events"] for one in event["failed"]]
    again = [one["check"] for event in told["events"] for one in event["recovered"]]
    assert "U02" in failed
    assert "U02" in again
    assert "U02" in done.stdout
    assert converged.run("stat -c '%a %U' /var/lib/rigwright/self_check/history.jsonl").strip() == "640 root"
    assert red_checks(inventory) == set()


UNREAD, READ = "/usr/bin/passwd", "/etc/ssh/sshd_config"
RAW_WRITE = f"""
import hashlib, json, os
folder = "/var/lib/rigwright/self_check"
for name, rows in (("fingerprint_cache.json", "files"), ("fingerprint_packages.json", "owners")):
    path = folder + "/" + name
    kept = json.load(open(path))
    if rows == "files":
        assert "{UNREAD}" not in kept["files"]
        kept["files"]["{READ}"][5] = hashlib.sha256(b"earlier bytes").hexdigest()
    else:
        kept["owners"]["{UNREAD}"][2] = hashlib.md5(b"earlier bytes").hexdigest()
    os.truncate(path, 0)
    open(path, "w").write(json.dumps(kept))
"""
"""Makes the fingerprint's records of two files those of other bytes, as a raw write to their disk leaves them."""


def test_a_raw_write_is_reported_after_the_night(converged: LabHost, inventory: Path) -> None:
    done = run_rigwright("check", str(inventory), "--accept", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: run_once(converged) == ("ok", set()), "a box that holds")
    converged.run(f"python3 -c {shlex.quote(RAW_WRITE)}")
    assert run_once(converged) == ("ok", set()), "nothing is read by day"
    converged.run("touch -d @1 /etc/rigwright/self_check/declaration.json")  # the read of the last night is due
    assert run_once(converged) == ("failing", {"Y03"})
    found = json.loads(converged.run(f"cat {RESULT}"))["failing"]
    assert [one["text"].split(" ")[0] for one in found] == [READ, UNREAD]
    record = json.loads(converged.run("cat /var/lib/rigwright/self_check/full_read.json"))
    used = int(converged.run(f"systemctl show -P CPUUsageNSec {SERVICE}"))
    print(f"a read of {record['files']} files took {used / 1e9:.1f} s of a processor")
    assert record["files"] > 1000
    assert red_checks(inventory) == {"Y03"}
    for path in (READ, UNREAD):
        converged.run(f"cp --archive {path} {path}.restored; mv {path}.restored {path}")
    assert run_once(converged) == ("ok", set())


TOOLS, TOOL = "/usr/local/bin", "rw-report"
CACHED = f"grep -q {TOOLS}/{TOOL} /var/lib/rigwright/self_check/fingerprint_cache.json && echo cached"


@pytest.mark.all_only
def test_a_raw_write_to_a_disk_is_reported_after_the_night(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    host = boot(first_run.layer, disks=(TOOLS,))
    with attached_disk(host, TOOLS) as disk:
        wait_until(lambda: is_serving(host), "serving after a boot")
        inventory = write_inventory(tmp_path, lab, host)
        host.run(f"yes 'echo good' | head -100 > {TOOLS}/{TOOL}; chmod 755 {TOOLS}/{TOOL}")
        done = run_rigwright("check", str(inventory), "--accept", "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        wait_until(lambda: not red_checks(inventory) and host.run(CACHED, check=False), "a digest in the cache")

        state = f"stat -c '%i %s %Y %Z %y %z' {TOOLS}/{TOOL}"
        before = host.run(state)
        disk.write_past_file_system(TOOL, b"good", b"evil")
        assert red_checks(inventory) == set(), "a check compares inode, size and times"
        host.run("touch -d @1 /etc/rigwright/self_check/declaration.json")  # the read of the last night is due
        assert run_once(host) == ("failing", {"Y03"})
        assert host.run(state) == before
        assert host.run(f"head -1 {TOOLS}/{TOOL}") == "echo evil\n"
        (found,) = json.loads(host.run(f"cat {RESULT}"))["failing"]
        assert found["text"] == f"{TOOLS}/{TOOL} has other bytes, with inode, size and times as before"
        assert red_checks(inventory) == {"Y03"}


@pytest.mark.all_only
def test_a_removal_leaves_nothing_of_it(converged: LabHost, inventory: Path) -> None:
    done = run_rigwright("remove", str(inventory), "--yes", "--keep-weights")
    assert done.returncode == 0, done.stdout + done.stderr
    assert converged.run(LEFT) == ""
