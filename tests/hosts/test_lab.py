"""The lab itself: hosts that are real enough, and gone without a trace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import cgroups, machine_requirements
from lab.base_images import RELEASES
from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import wait_until

NAME = f"l{os.getpid() % 100_000}"


@pytest.fixture
def own_lab() -> ThrowawayLab:
    lab = ThrowawayLab(NAME)
    lab.down()
    yield lab
    lab.down()


def traces(lab: ThrowawayLab) -> list[str]:
    """Everything of a lab that the kernel or the disk still knows."""
    found = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    found += subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    found += subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
    found += Path("/proc/mounts").read_text()
    found += "\n".join(str(p) for h in machine_requirements.cgroup_hierarchies() for p in h.glob(f"{lab.bridge}*"))
    found += str(lab.folder) if lab.folder.exists() else ""
    return [line for line in found.splitlines() if lab.bridge in line or str(lab.folder) in line]


@pytest.mark.all_only
def test_hosts_of_every_release_reach_each_other_and_the_archive_and_leave_no_trace(own_lab: ThrowawayLab) -> None:
    names = {release: f"h{number}" for number, release in enumerate(sorted(RELEASES), start=1)}
    hosts = own_lab.up([HostSpec(name, release) for release, name in names.items()])
    for host in hosts:
        release = RELEASES[host.spec.release]
        assert f"VERSION_CODENAME={release.codename}" in host.run("cat /etc/os-release")
        assert host.run("systemctl is-system-running --wait", check=False).strip() == "running"
        assert host.run("hostname").strip() == host.name
        host.run(
            "apt-get -qq update && apt-get -qq install --yes --no-install-recommends --download-only netcat-openbsd"
        )
        for other in hosts:
            host.run(f"timeout 5 bash -c '< /dev/tcp/{other.address}/22'")
    assert len({host.run("cat /etc/machine-id") for host in hosts}) == len(hosts)
    own_lab.down()
    assert traces(own_lab) == []


def test_down_finds_what_a_crash_has_left_and_ends_nothing_else(own_lab: ThrowawayLab) -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (host,) = own_lab.up([HostSpec("h1")])
        inside = cgroups.list_processes(host.namespace)
        supervisor = min(inside)
        os.kill(supervisor, signal.SIGKILL)
        assert len(inside) > 5
        down = [sys.executable, "-m", "cli", "lab", "--name", NAME, "down"]
        assert "h1 ended" in subprocess.run(down, capture_output=True, text=True, check=True).stdout
        assert traces(own_lab) == []
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside), "every process of the host ended", 10
        )
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.all_only
def test_two_checkouts_have_a_lab_of_one_name_each(own_lab: ThrowawayLab) -> None:
    other = ThrowawayLab(NAME, Path("/srv/other"))
    try:
        (mine,) = own_lab.up([HostSpec("h1")])
        (theirs,) = other.up([HostSpec("h1")])
        assert mine.address != theirs.address
        mine.run("touch /root/mine")
        assert theirs.run("ls /root") == ""
        own_lab.down()
        assert traces(own_lab) == []
        assert theirs.is_reachable()
    finally:
        other.down()
    assert traces(other) == []


def test_the_labs_verbs_do_what_they_say(own_lab: ThrowawayLab) -> None:
    def lab(*words: str) -> str:
        command = [sys.executable, "-m", "cli", "lab", "--name", NAME, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout

    assert [line.split()[0] for line in lab("up", "2").splitlines()[:2]] == ["h1", "h2"]
    assert lab("up").split()[0] == "h3"
    assert lab("ssh", "h2", "hostname") == "h2\n"
    lab("ssh", "h1", "touch /etc/mine")
    assert "/etc/mine" in lab("diff", "h1").split()
    assert "/etc/mine" not in lab("diff", "h2").split()
    assert f"{NAME} h3 debian-12" in " ".join(lab("list").split())
    scope: dict[str, list[tuple[str, dict[str, object]]]] = {}
    exec(lab("inventory"), scope)
    assert [name for name, _ in scope["rigs"]] == ["h1", "h2", "h3"]
    assert "h1, h2, h3 ended" in lab("down")
    assert traces(own_lab) == []
