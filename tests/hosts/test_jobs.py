"""Long work: it outlives connections, and what was fetched is not fetched again."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.download_servers import InterruptingServer
from tests.hosts.support import deploy, deploy_command, red_checks, run_deploy, wait_until, write_inventory

JOB = Path(__file__).with_name("job_deploy.py")


def deploy_waiting_job(inventory: Path, meanwhile: Callable[[], None]) -> tuple[int, str]:
    """Deploy a job that waits for /root/go, and do something once it does; returns exit status and output."""
    with subprocess.Popen(
        deploy_command(inventory, "--yes", file=JOB), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as controller:
        assert controller.stderr
        said = []
        for line in controller.stderr:
            said.append(line)
            if "waiting for go" in line:
                break
        meanwhile()
        said.append(controller.stderr.read())
    return controller.returncode, "".join(said)


def test_a_lost_connection_is_made_again_and_the_job_watched_to_its_end(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    inventory = write_inventory(tmp_path, lab, host)

    def cut() -> None:
        host.run("pkill -KILL -f 'sshd[-:].*root'", check=False)
        assert host.run("systemctl is-active rw-job-test").strip() == "active"
        host.run("touch /root/go")

    status, said = deploy_waiting_job(inventory, cut)
    assert status == 0, said
    assert "Success" in said
    assert run_deploy(inventory, file=JOB).changed_operations == []


@pytest.mark.all_only
def test_a_job_is_watched_on_while_a_package_has_systemd_start_anew(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot()
    # as libc6 does once it is upgraded; it answers no request for a fifth of a second each time
    again = "for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do systemctl daemon-reexec; done; touch /root/go"
    status, said = deploy_waiting_job(write_inventory(tmp_path, lab, host), lambda: print(host.run(again)))
    assert status == 0, said


@pytest.mark.all_only
def test_a_job_that_has_not_gone_yet_is_waited_for(lab: ThrowawayLab, boot: BootHost, tmp_path: Path) -> None:
    """One whose controller was killed may be ending still when the next run comes."""
    host = boot()
    host.run(
        "touch /root/go; systemd-run -q --unit=rw-job-test -p TimeoutStopSec=5 sh -c 'trap : TERM; sleep infinity &"
        " : > /root/ready; wait; : > /root/asked; while :; do sleep 1; done'"
    )
    # a shell that is stopped before its trap is set is gone at once; so is any program that it starts meanwhile
    wait_until(lambda: host.run("ls /root/ready", check=False), "the job ignores SIGTERM")
    host.run("systemctl stop --no-block rw-job-test")
    wait_until(lambda: host.run("ls /root/asked", check=False), "the job is ending")
    assert host.run("systemctl is-active rw-job-test || true").strip() == "deactivating"
    deploy(write_inventory(tmp_path, lab, host), file=JOB)
    host.run("[ -e /root/gone ]")


def test_a_failing_job_shows_the_end_of_its_log_and_only_its_host_fails(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    bad, good = boot(), boot()
    for host in (bad, good):
        host.run("touch /root/go")
    bad.run("mount --bind /root /root && mount -o remount,bind,ro /root")
    path = tmp_path / "rig.py"
    entries = {host.name: {**host.inventory_keys} for host in (bad, good)}
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    run = run_deploy(path, file=JOB)
    assert run.status == 1
    assert "Read-only file system" in run.said
    assert "Traceback" not in run.said
    row = run.report["results"]["operations"][0]
    assert (row["success"], row["error"]) == ([good.name], [bad.name])


@pytest.mark.all_only  # of the hub: test_a_fetch_that_is_cut_off_goes_on_where_it_was
def test_a_download_cut_by_a_power_cut_goes_on_where_it_was(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path
) -> None:
    host = boot(first_run.layer)
    host.run("systemctl stop rigwright-chat; rm -rf /srv/models/* /var/lib/rigwright/weights/*")
    server = InterruptingServer(lab.gateway, (lab.shelf_folder / MODEL).read_bytes())
    inventory = write_inventory(tmp_path, lab, host, mirrors={"shelf": [server.url]})
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as controller:
        wait_until(server.half_sent.is_set, "half way through the download")
        part = f"/srv/models/tiny-rig/1/{MODEL}.part"
        wait_until(lambda: part_size(host, part) > len(server.content) // 4, "a good part of the file on disk")
        host.kill()
        controller.kill()
    server.go_on.set()
    host.start()
    host.wait()
    deploy(inventory)
    first, second = server.ranges
    assert first is None
    assert int(str(second).removeprefix("bytes=").rstrip("-")) > len(server.content) // 4
    assert red_checks(inventory) == set()


def part_size(host: LabHost, path: str) -> int:
    return int(host.run(f"stat -c %s {path} 2>/dev/null || echo 0"))
