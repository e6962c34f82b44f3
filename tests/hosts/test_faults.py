"""Faults in the middle of a run, and their repair by the next one."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.plan.preflight import HOME
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.download_servers import StandInMirror, folder_content
from tests.hosts.support import (
    KEY_FILE,
    PORT,
    api_key,
    deploy,
    deploy_command,
    is_serving,
    main_pid,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
    write_inventory,
)
from tests.lock_files import render_sealed_lock, reseal_text

ENGINE = "/etc/rigwright/current/engines/llama.cpp"
KILLING = Path(__file__).with_name("interrupted_deploy.py")
CHANGED = {"chat": {"variant": "llamacpp/demo", "port": PORT, "tasks_max": 1234}}


@pytest.mark.all_only
def test_a_crash_between_writing_a_generation_and_activating_it_is_finished_by_the_next_run(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged, instances=CHANGED)
    old = main_pid(converged)
    killed = run_deploy(inventory, "--yes", file=KILLING, KILL_AT="Serving | Activate generation")
    assert killed.status == -signal.SIGKILL
    newest = "/etc/rigwright/generations/$(ls /etc/rigwright/generations | sort -n | tail -n 1)"
    assert str(CHANGED["chat"]["tasks_max"]) in converged.run(f"cat {newest}/units/rigwright-chat.service")
    assert main_pid(converged) == old
    assert {"G01", "S02"} <= red_checks(inventory)

    assert run_plan(inventory).planned_operations == [
        "Serving | Activate generation",
        "Serving | Record what is installed",
    ]
    deploy(inventory)
    assert main_pid(converged) != old
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("1", id="in the old one's place", marks=pytest.mark.all_only),
        pytest.param("2", id="beside the old one"),
    ],
)
def test_wrong_bytes_are_refused_and_the_old_service_goes_on(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path, version: str
) -> None:
    row = {"kind": "weight", "name": "tiny-rig", "version": version, "file": MODEL, "sha256": "0" * 64, "size": 773728}
    lines = [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in row.items()]
    lock = render_sealed_lock("\n".join(["[[artefact]]", *lines, f'sources = ["shelf:{MODEL}"]']))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "mine.lock.toml").write_text(lock)
    (tmp_path / "catalog").mkdir()
    asked = f'[inputs.tiny-rig]\nkind = "weight"\nversion = "{version}"\nsources = ["shelf:{MODEL}"]\n'
    (tmp_path / "catalog" / "mine.toml").write_text(asked)
    inventory = write_inventory(tmp_path, lab, converged)
    old = main_pid(converged)
    run = run_deploy(inventory)
    assert run.status == 1
    assert re.search(rf"{MODEL}: .*not the locked file", run.said)
    assert "Traceback" not in run.said
    assert (main_pid(converged), is_serving(converged)) == (old, True)
    assert converged.run("find /srv/models -name '*.part'") == ""
    right = write_inventory(tmp_path / "right", lab, converged)
    assert red_checks(right) == set()
    assert run_deploy(right).changed_operations == []


def test_a_host_that_cannot_become_the_rig_is_refused_before_anything_is_written(
    lab: ThrowawayLab, boot: BootHost, tmp_path: Path
) -> None:
    host = boot(cards=("10de:2204",))
    # a foreign server on the port
    host.run(f"systemd-run --quiet --unit=foreign --socket-property=ListenStream=127.0.0.1:{PORT} sleep infinity")
    inventory = write_inventory(tmp_path, lab, host, cards=["rtx-3090", "rtx-3090"])
    run = run_deploy(inventory)
    assert run.status == 1
    assert "refused: card 1 is declared as NVIDIA GeForce RTX 3090" in run.said
    assert "the PCI bus shows 10de:2204 at 0000:01:00.0:" in run.said
    assert f"refused: port {PORT} of instance chat is in use by systemd" in run.said
    assert host.run("ls /opt /etc/rigwright /srv 2>/dev/null || true").split() == ["/opt:", "/srv:"]


@pytest.mark.all_only
def test_a_key_of_the_operators_reaches_the_service_and_nothing_else(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    key = "rig-0123456789abcdef-secret"
    (tmp_path / "key").write_text(key + "\n")
    instances = {"chat": {"variant": "llamacpp/demo", "port": PORT, "api_key_file": str(tmp_path / "key")}}
    inventory = write_inventory(tmp_path, lab, converged, instances=instances)
    old = main_pid(converged)
    run = deploy(inventory, "--yes", "--diff", "-vvv", "--debug-all")
    assert key not in run.said
    assert main_pid(converged) != old
    assert api_key(converged) == key
    assert red_checks(inventory) == set()
    assert converged.run(f"grep -rlF {key} /etc /var /opt --exclude-dir=credentials || true") == ""
    assert converged.run(f"journalctl --no-pager | grep -cF {key} || true").strip() == "0"
    assert run_deploy(inventory).changed_operations == []


def test_a_power_cut_leaves_a_host_that_serves_again(inventory: Path, converged: LabHost) -> None:
    converged.kill()
    converged.start()
    converged.wait()
    deploy(inventory)
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_a_source_with_another_hash_is_refused_and_the_old_engine_serves_on(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    (tmp_path / "locks").mkdir()
    rows = (ROOT / "locks" / "engines.lock.toml").read_text()
    (tmp_path / "locks" / "mine.lock.toml").write_text(
        reseal_text(re.sub(r'sha256 = "[0-9a-f]+"', f'sha256 = "{"0" * 64}"', rows))
    )
    inventory = write_inventory(tmp_path, lab, converged)
    old = main_pid(converged)
    run = run_deploy(inventory)
    assert run.status == 1
    assert "DO NOT MATCH THE HASHES" in run.said
    assert "Traceback" not in run.said
    assert (main_pid(converged), is_serving(converged)) == (old, True)
    assert red_checks(write_inventory(tmp_path / "right", lab, converged)) == set()


@pytest.mark.all_only
def test_an_empty_key_opens_nothing_and_is_replaced(lab: ThrowawayLab, converged: LabHost, tmp_path: Path) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    converged.run(f"truncate --size=0 {KEY_FILE}; systemctl restart --no-block rigwright-chat")
    wait_until(lambda: "auto-restart" in converged.run("systemctl show --property=SubState rigwright-chat"), "refused")
    deploy(inventory)
    assert len(api_key(converged)) >= 32
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_an_instance_that_is_still_loading_is_waited_for_and_not_started_again(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    # without curl its readiness cannot be asked, so it stays where a large model is while it loads
    old = main_pid(converged)
    converged.run("chmod -x /usr/bin/curl; systemctl restart --no-block rigwright-chat")
    wait_until(lambda: main_pid(converged) not in (0, old), "started anew")
    assert not is_serving(converged)
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as controller:
        assert controller.stderr
        for line in controller.stderr:
            if "Activate generation" in line:
                break
        pid = main_pid(converged)
        converged.run("chmod +x /usr/bin/curl")
        said = controller.stderr.read()
    assert controller.returncode == 0, said
    assert main_pid(converged) == pid
    assert red_checks(inventory) == set()


def test_a_host_whose_clock_is_wrong_is_refused_and_says_how_to_set_it(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    # a stand-in for a wrong clock: hosts share the clock of this machine
    stand_in = '#!/bin/sh\\n[ "$*" = +%%s ] && echo 1000000000 || exec /usr/bin/date "$@"\\n'
    converged.run(f"printf '{stand_in}' > /usr/local/bin/date; chmod +x /usr/local/bin/date")
    inventory = write_inventory(tmp_path, lab, converged, instances=CHANGED)
    run = run_deploy(inventory)
    assert run.status == 1
    assert re.search(r"refused: its clock is [0-9.]+ hours behind this machine's", run.said)
    assert is_serving(converged)
    assert "P01" in red_checks(inventory)


@pytest.mark.all_only
def test_a_disk_that_fills_up_stops_the_run_and_the_next_one_finishes_it(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    old = main_pid(converged)
    # room enough when it is looked at, and gone when it is written to
    converged.run(
        "mount -t tmpfs -o size=1100m none /srv/models; rm -rf /var/lib/rigwright/weights/*; "
        "systemd-run -q --unit=filler sh -c 'while [ ! -d /srv/models/tiny-rig ]; do sleep 0.01; done; "
        "dd if=/dev/zero of=/srv/models/full bs=1M 2>/dev/null; dd if=/dev/zero of=/srv/models/more bs=1 2>/dev/null'"
    )
    slow = StandInMirror(lab.gateway, folder_content(lab.shelf_folder), bytes_a_second=100_000)
    inventory = write_inventory(tmp_path, lab, converged, mirrors={"shelf": [slow.url]})
    run = run_deploy(inventory)
    assert run.status == 1
    assert "the disk of /srv/models is full" in run.said, run.said
    assert "Traceback" not in run.said
    assert (main_pid(converged), is_serving(converged)) == (old, True)
    converged.run("systemctl stop filler; rm -f /srv/models/full /srv/models/more")
    inventory = write_inventory(tmp_path, lab, converged)
    run = deploy(inventory)
    # of what stands for a disk: it is mounted by hand, and in memory
    assert red_checks(inventory) == {"F03", "M05"}


@pytest.mark.all_only
def test_an_instance_that_does_not_start_any_more_fails_the_deploy(inventory: Path, converged: LabHost) -> None:
    # of a package of the distribution's: another byte of the engine itself is refused before
    library = "/usr/lib/x86_64-linux-gnu/libgomp.so.1"
    converged.run(f"mv {library} /root/; systemctl stop rigwright-chat")
    run = run_deploy(inventory)
    assert run.status == 1, run.said
    assert "rigwright-chat.service did not become ready" in run.said
    assert "libgomp.so.1: cannot open shared object file" in run.said
    assert "was active before and no longer serves" in run.said
    # nor can it start where its user is kept out, which a deploy puts right itself
    converged.run(f"mv /root/libgomp.so.1 {library}; chmod 700 $(readlink -f {ENGINE})")
    assert "Engines | Install llama.cpp" in run_plan(inventory).planned_operations
    run = deploy(inventory)
    assert "giving back owner and modes" in run.said
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []


@pytest.mark.all_only
def test_units_of_ours_that_are_masked_serve_again(inventory: Path, converged: LabHost) -> None:
    units = "cd /etc/systemd/system && for unit in rigwright.target rigwright.slice rigwright-chat.service"
    converged.run(f"{units}; do ln -sf /dev/null $unit; done; systemctl daemon-reload; systemctl stop rigwright-chat")
    assert run_plan(inventory).planned_operations == ["Serving | Activate generation"]
    deploy(inventory)
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []
    # while it serves
    converged.run("systemctl mask --force --quiet rigwright-chat.service rigwright.target")
    deploy(inventory)
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_a_home_of_the_service_user_is_changed_back_once_nothing_runs_as_it(
    inventory: Path, converged: LabHost
) -> None:
    converged.run("sed -i '/^rigwright-chat:/s|:/nonexistent:.*|:/srv/x:/bin/sh|' /etc/passwd")
    said = f"the home of the user rigwright-chat is /srv/x, must be {HOME}, and cannot change while it has processes: "
    for run in (run_plan(inventory), run_deploy(inventory)):
        assert run.status == 1
        assert f"refused: {said}llama-server (pid {main_pid(converged)}, rigwright-chat.service): stop them" in run.said
    converged.run("systemctl stop rigwright-chat")
    run = deploy(inventory)
    assert f":{HOME}:/usr/sbin/nologin" in converged.run("getent passwd rigwright-chat")
    assert red_checks(inventory) == set()
