"""Hosts that reach nothing but the operator's machine: all that they lack comes from a bundle, over SSH."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.lock_resolver.downloads import hash_file
from lab import tiny_model
from lab.hosts import LabHost
from rigwright.plan.preflight import DISK_RESERVE
from tests.forged_bundles import TRACE, forge_package, rewrite_index, sign_release
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.support import (
    CHAT,
    deploy,
    deploy_command,
    is_serving,
    isolate_host,
    red_checks,
    run_deploy,
    wait_until,
)
from tests.lock_files import render_sealed_lock

# the tested code runs on this machine and in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

PADDING = 400 << 20  # bytes
JOBS = "/var/lib/rigwright/jobs"
INVENTORY = """from rigwright.inventory import hosts

rigs = hosts({rigs!r}, bundle="~/the bundle", instances={instances!r})
"""
CATALOG = """[inputs.tiny-rig]
kind = "weight"
version = "2"
sources = ["shelf:tiny-rig.gguf"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator's folder with a bundle that `rigwright bundle` has made. Its weight is large, and loads at once."""
    home = tmp_path_factory.mktemp("operator") / "ho me"
    given = home / "given"
    given.mkdir(parents=True)
    weight = given / "tiny-rig.gguf"
    tiny_model.write_model(weight)
    with weight.open("ab") as file:  # after the last tensor: no engine reads it
        for _ in range(PADDING >> 20):
            file.write(os.urandom(1 << 20))
    row = {"kind": "weight", "name": "tiny-rig", "version": "2", "file": weight.name}
    lines = [f'{key} = "{value}"' for key, value in row.items()]
    content = hash_file(weight, lambda done, total: None)
    lines += [f'sha256 = "{content.sha256}"', f"size = {content.size}"]
    for name, text in (
        ("catalog/mine.toml", CATALOG),
        (
            "locks/mine.lock.toml",
            render_sealed_lock("\n".join(["[[artefact]]", *lines, 'sources = ["shelf:tiny-rig.gguf"]\n'])),
        ),
    ):
        (home / name).parent.mkdir()
        (home / name).write_text(text)
    write(home, {"box": {"ssh_hostname": "192.0.2.1"}})
    words = ["bundle", str(home / "rig.py"), "--system", "debian-13", "--from-dir", str(given)]
    command = [sys.executable, "-m", "cli", *words]
    done = subprocess.run(command, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is run finds its `~` there."""
    monkeypatch.setenv("HOME", str(home))


def write(home: Path, rigs: dict[str, dict[str, object]]) -> Path:
    path = home / "rig.py"
    path.write_text(INVENTORY.format(rigs=rigs, instances=CHAT))
    return path


def weight_on(host: LabHost) -> Path | None:
    """The half of the weight that the host was sent."""
    return next(host.upper_folder.glob(f"{JOBS[1:]}/rw-job-weights-*/files/tiny-rig.gguf"), None)


def received(host: LabHost) -> int:
    """Bytes that went to the host so far."""
    return int(Path(f"/sys/class/net/{host.namespace}/statistics/tx_bytes").read_text())


def left(host: LabHost) -> str:
    """The remaining parts of the sent files."""
    return host.run(f"find {JOBS} -path '*/files*'; ls -d /tmp/tmp.* 2>/dev/null || true")


def test_a_blank_host_is_deployed_without_a_network_though_the_controller_dies_while_it_sends(
    boot: BootHost, first_run: ConvergedLayers, home: Path
) -> None:
    host = boot(first_run.engine_layer)
    isolate_host(host)
    inventory = write(home, {"box": host.inventory_keys})
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stdout=quiet, stderr=quiet, start_new_session=True
    ) as controller:
        wait_until(lambda: (sent := weight_on(host)) and sent.stat().st_size > PADDING // 3, "half sent", 240)
        os.killpg(controller.pid, signal.SIGKILL)
    half = weight_on(host)
    assert half is not None
    there, before = half.stat().st_size, received(host)
    assert there < PADDING * 0.9, "killed too late to say anything"

    deploy(inventory)
    assert received(host) - before < (PADDING - there) * 1.1 + (8 << 20), "sent again from the beginning"
    assert is_serving(host)
    assert left(host) == ""
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


def test_a_flipped_byte_is_refused_before_it_is_sent(boot: BootHost, home: Path) -> None:
    host = boot()
    isolate_host(host)
    inventory = write(home, {"box": host.inventory_keys})
    (package,) = (home / "the bundle").glob("packages/debian-13/**/ninja-build_*.deb")
    whole = package.read_bytes()
    package.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    try:
        run = run_deploy(inventory)
    finally:
        package.write_bytes(whole)
    assert run.status == 1
    assert f"{package} has SHA-256 " in run.said
    assert "recreate it with `rigwright bundle`" in run.said
    assert "Traceback" not in run.said
    assert host.run("command -v ninja cmake || true") == ""
    assert not list(host.upper_folder.glob(f"{JOBS[1:]}/rw-job-packages/script"))


def forged(home: Path, folder: Path) -> Path:
    """A bundle that is another one's to write, below a folder in the place of the operator's."""
    shutil.copytree(home / "the bundle", folder / "the bundle", copy_function=os.link)
    return folder / "the bundle"


def deploy_error(host: LabHost, inventory: Path, home: Path) -> str:
    """The error of a deploy that installs no package."""
    before = host.run("dpkg-query -W")
    run = run_deploy(inventory, HOME=str(home))
    assert host.run(f"ls {TRACE} || true") == ""
    assert run.status == 1
    assert "Traceback" not in run.said
    assert host.run("dpkg-query -W") == before
    return run.said


@pytest.mark.all_only
def test_a_forged_package_is_refused_by_apt_though_the_index_is_right_about_it(
    boot: BootHost, first_run: ConvergedLayers, home: Path, tmp_path: Path
) -> None:
    host = boot(first_run.engine_layer)
    isolate_host(host)
    inventory = write(home, {"box": host.inventory_keys})
    deb = forge_package(forged(home, tmp_path / "package"), "ninja-build")
    said = deploy_error(host, inventory, tmp_path / "package")
    assert f"refused: {deb.name} of the bundle is not what its archive has signed: " in said
    assert "nothing was installed" in said

    # and when the archive's own list says so, too, which is signed
    bundle = forged(home, tmp_path / "all")
    forge_package(bundle, "ninja-build", lists=True)
    said = deploy_error(host, inventory, tmp_path / "all")
    assert "Packages.xz: does not match the hash signed by its archive" in said
    assert "==> " not in said

    # and when what is signed says so, too
    sign_release(next(bundle.glob("packages/debian-13/*/dists/trixie")), None)
    rewrite_index(bundle)
    said = deploy_error(host, inventory, tmp_path / "all")
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert f"refused: what the bundle says of its packages is not signed by a key of this host, in {keyring}" in said


@pytest.mark.all_only
def test_two_hosts_at_once_one_through_sudo_though_connections_are_cut_while_it_sends(
    boot: BootHost, first_run: ConvergedLayers, home: Path
) -> None:
    blank, converged = boot(first_run.engine_layer), boot(first_run.layer)
    blank.run(
        "useradd --create-home ops && cp -r /root/.ssh /home/ops/ && chown -R ops /home/ops/.ssh "
        "&& echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops"
    )
    converged.run("rm -rf /opt/rigwright/tools-*")
    for host in (blank, converged):
        isolate_host(host)
    through_sudo = blank.inventory_keys | {"ssh_user": "ops", "_sudo": True}
    inventory = write(home, {"blank": through_sudo, "converged": converged.inventory_keys})
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as controller:
        for host, user in ((converged, "root"), (blank, "ops")):
            wait_until(
                lambda host=host: (sent := weight_on(host)) and sent.stat().st_size > PADDING // 4, "sending", 240
            )
            half = weight_on(host)
            assert half is not None
            there = half.stat().st_size
            host.run(f"pkill -KILL -f '^sshd[-:].*{user}'", check=False)
            assert there < PADDING * 0.9, "cut too late to say anything"
        assert controller.stderr
        said = controller.stderr.read()
    assert controller.returncode == 0, said
    for host in (blank, converged):
        assert is_serving(host)
        assert left(host) == ""
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_a_disk_that_fills_up_is_reported_and_what_was_sent_counts_when_there_is_room_again(
    boot: BootHost, first_run: ConvergedLayers, home: Path
) -> None:
    host = boot(first_run.engine_layer)
    # room enough when it is looked at, none half way; and then again, but not enough for all of it a second time
    reserve, slack, sent = DISK_RESERVE >> 10, 120, 250
    size, weight = (PADDING >> 20) + reserve + slack, "/data/state/jobs/rw-job-weights-*/files/tiny-rig.gguf"
    host.run(f"mkdir /data; mount -t tmpfs -o size={size}m none /data")
    isolate_host(host)
    host.run(
        f"systemd-run -q sh -c 'until [ $(stat -c %s {weight} || echo 0) -gt {sent << 20} ]; do sleep 0.01; done; "
        f"mount -o remount,size={sent + 50}m /data'"
    )
    roots = {"models": "/data/models", "state": "/data/state"}
    inventory = write(home, {"box": host.inventory_keys | {"roots": roots}})
    run = run_deploy(inventory)
    assert run.status == 1
    assert "No space left on device; run it again to continue" in run.said, run.said
    assert "the job continues" not in run.said
    assert "Traceback" not in run.said
    before, half = received(host), int(host.run(f"stat -c %s {weight}"))
    host.run(f"mount -o remount,size={size}m /data")
    run = deploy(inventory)
    assert received(host) - before < (PADDING - half) * 1.1 + (8 << 20)
    assert host.run("find /data/state/jobs -path '*/files*'") == ""
