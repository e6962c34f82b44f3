"""The runtimes of containers, on hosts whose cards and toolkit are stand-ins: real Docker, podman, dpkg, apt and
systemd."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.lock_resolver.distribution_packages import DistributionArchive, PackageTransaction
from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from tests.forged_bundles import TRACE, forge_package, rewrite_index
from tests.hosts.containers_box import BOTH, BUNDLE, DEVICES, DISKS, FOUR, IMAGE, NEWER, TOOLKIT, ContainersBox
from tests.hosts.driver_box import NEW, OLD, single_release_mark
from tests.hosts.support import deploy, isolate_host, red_checks, run_deploy, run_plan, wait_until
from tests.stand_ins.nvidia import container_packages

OWN_DOCKER = "28.5.1"
NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}, "features": {"cdi": True}}
THEIRS = '{"log-level":"warn",\n  "labels": ["rack=7"]}\n'
EMPTY = '{"runtimes": {},  "features": null}'
LEFTOVER = "/etc/apt/sources.list.d/nvidia-docker.list"


@pytest.fixture
def box(containers_box: Callable[[], ContainersBox]) -> Iterator[ContainersBox]:
    """A host with cards and a driver; Docker and podman are not there."""
    made = containers_box()
    yield made
    made.host.destroy()


@single_release_mark("debian-13")
def test_containers_come_with_their_cards_and_go_without_a_trace(box: ContainersBox) -> None:
    box.declare_containers(**BOTH)
    predicted = run_plan(box.inventory).planned_operations
    first = deploy(box.inventory)
    assert set(first.changed_operations) <= set(predicted)
    assert (box.toolkit_versions, box.held_packages & FOUR) == ({TOOLKIT}, FOUR)
    assert box.docker_options == NVIDIA | {"log-driver": "journald"}
    assert box.docker_info("LoggingDriver") == "journald"
    assert box.spec_driver == OLD[box.system]
    assert box.red_checks() == set()
    box.host.reboot()
    wait_until(lambda: box.spec_driver == OLD[box.system], "a spec that is written at boot")
    assert box.red_checks() == set()
    box.assert_unchanged()
    box.run_rig("remove", "--yes")
    left = "ls -d /etc/docker/daemon.json /run/cdi/nvidia.yaml /etc/rigwright /etc/apt/*/rigwright* 2>/dev/null"
    assert box.host.run(left, check=False) == ""
    assert box.toolkit_versions == set()
    assert box.held_packages & FOUR == set()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_docker_that_was_there_before_us_is_as_it_was_after_us(box: ContainersBox) -> None:
    box.host.run("apt-get -q update; apt-get -q -y --no-install-recommends install docker.io docker-cli")
    box.host.run(f"cat > /etc/docker/daemon.json <<'END'\n{THEIRS}END\nsystemctl restart docker")
    box.host.run(f"echo 'deb https://nvidia.github.io/nvidia-docker/debian11/amd64 /' > {LEFTOVER}")
    box.declare_containers(**{**BOTH, "engines": ("docker",)})
    said = box.run_rig("deploy")
    assert f"{LEFTOVER} names an archive managed by Rigwright" in said
    assert box.docker_options == NVIDIA | {"log-driver": "journald", "log-level": "warn", "labels": ["rack=7"]}
    assert box.red_checks() == set()
    box.assert_unchanged()
    box.run_rig("remove", "--yes")
    assert box.host.run("cat /etc/docker/daemon.json") == THEIRS
    assert box.host.run(f"cat {LEFTOVER}").startswith("deb https://nvidia.github.io/nvidia-docker")
    assert box.docker_info("LoggingDriver") == "json-file"
    assert "docker.io" in box.host.run("apt-mark showmanual").split()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_containers_outlive_the_restarts_of_their_daemon_where_that_is_declared(box: ContainersBox) -> None:
    box.host.run("apt-get -q update; apt-get -q -y --no-install-recommends install docker.io docker-cli")
    box.host.run(
        f"echo '{EMPTY}' > /etc/docker/daemon.json; chmod 600 /etc/docker/daemon.json; systemctl restart docker"
    )
    box.host.run(f"{IMAGE}\ndocker import /root/image.tar own")
    box.host.run("docker run -d --name own --network none own /bin/sleep 3600")
    pid = box.host.run("docker inspect -f '{{.State.Pid}}' own")
    one: dict[str, Any] = {"engines": ("docker",), "daemon": {"log-driver": "journald"}}
    box.declare_containers(**one)
    assert "own are running" in box.run_rig("deploy", status=1)
    assert box.host.run("cat /etc/docker/daemon.json") == f"{EMPTY}\n"
    one["daemon"]["live-restore"] = True
    box.declare_containers(**one)
    box.run_rig("deploy")
    assert (box.docker_info("LoggingDriver"), box.docker_info("LiveRestoreEnabled")) == ("journald", "true")
    assert box.host.run("docker inspect -f '{{.State.Pid}}' own") == pid
    # a daemon that is started without that would end them
    box.declare_containers()
    box.run_rig("deploy")
    assert box.host.run("cat /etc/docker/daemon.json; stat -c %a /etc/docker/daemon.json") == f"{EMPTY}\n600\n"
    assert box.host.run("docker inspect -f '{{.State.Pid}}' own") == pid


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_the_spec_follows_the_driver_and_the_toolkit_its_lock(box: ContainersBox) -> None:
    box.declare_containers(**BOTH)
    box.run_rig("deploy")
    box.declare_containers(driver=NEW[box.system], version=NEWER, **BOTH)
    assert "container-toolkit 1.20.0" in str(run_plan(box.inventory).planned_operations)
    box.run_rig("deploy", "--upgrade-driver", "--reboot")
    assert (box.loaded_module, box.spec_driver, box.toolkit_versions) == (NEW[box.system], NEW[box.system], {NEWER})
    assert box.red_checks() == set()
    box.assert_unchanged()
    # the archive drops the installed version, and an operator removes a part of it
    box.publish_toolkit(TOOLKIT)
    box.host.run(f"apt-get -qq -y --allow-change-held-packages purge {' '.join(sorted(FOUR))}")
    said = box.run_rig("deploy")
    assert "the archive has dropped container-toolkit 1.20.0: using stored files" in said
    assert (box.spec_driver, box.toolkit_versions) == (NEW[box.system], {NEWER})


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_dockers_own_packages_take_the_place_of_the_distributions_by_consent(box: ContainersBox) -> None:
    one, other = "28.5.1", "28.5.2"
    box.declare_containers(engines=("docker",))
    box.run_rig("deploy")
    box.host.run("cd /root && apt-get -q download docker.io docker-cli containerd runc && mkdir out")
    box.host.run("for deb in /root/*.deb; do dpkg -x $deb /root/out; done")
    offered = [
        deb
        for version in (one, other)
        for deb in container_packages.docker_packages(box.host.upper_folder / "root/out", version)
    ]
    container_packages.write_docker(
        box.lab.shelf_folder, list({deb.file_name: deb for deb in offered}.values()), box.key
    )
    box.host.run(
        f"{IMAGE}\ndocker import /root/image.tar own && docker run -d --name own --network none own /bin/sleep 600"
    )
    # a package that is there and new enough stays
    box.declare_containers(own_docker=one, engines=("docker",))
    box.assert_unchanged()
    box.declare_containers(own_docker=one, engines=("docker",), docker="docker")
    assert "docker-debian-13 28.5.1 is installed), and own are running" in box.run_rig("deploy", status=1)
    box.declare_containers(own_docker=one, engines=("docker",), docker="docker", restart=True)
    box.run_rig("deploy")
    listed = "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' docker.io docker-ce runc containerd.io"
    assert f"installed docker-ce 5:{one}-1~debian.13~trixie" in box.host.run(listed, check=False)
    assert "docker.io" not in box.host.run(f"{listed} | grep ^installed", check=False)
    assert {"docker-ce", "docker-ce-cli", "containerd.io"} <= box.held_packages
    assert box.red_checks() == set()
    box.assert_unchanged()
    box.declare_containers(own_docker=other, engines=("docker",), docker="docker")
    assert box.red_checks() == {"K03", "K07"}
    box.run_rig("deploy")
    assert f"installed docker-ce 5:{other}-1~debian.13~trixie" in box.host.run(listed)
    assert box.red_checks() == set()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_without_a_network_they_come_from_a_bundle_and_nothing_that_is_forged_does(box: ContainersBox) -> None:
    # the contents of Docker's own packages here are the distribution's
    box.host.run("apt-get -q update; cd /root && apt-get -q download docker.io docker-cli containerd runc && mkdir out")
    box.host.run("for deb in /root/*.deb; do dpkg -x $deb /root/out; done; rm -rf /var/lib/apt/lists/*")
    own = container_packages.docker_packages(box.host.upper_folder / "root/out", OWN_DOCKER)
    container_packages.write_docker(box.lab.shelf_folder, own, box.key)
    isolate_host(box.host)
    box.declare_containers(bundle=True, **BOTH)
    bundle = box.folder / BUNDLE
    # a package that Docker needs, of which the index has the right hash
    forged = forge_package(bundle, "containerd")
    assert f"refused: {forged.name} of the bundle is not what its archive has signed" in box.run_rig("deploy", status=1)
    assert box.host.run(f"ls {TRACE} || true") == ""
    # a byte of a locked package, and again where the index says so, too
    box.run_rig("bundle", "--system", box.system)
    (deb,) = bundle.glob("debs/container-toolkit/nvidia-container-toolkit_*.deb")
    whole = deb.read_bytes()
    deb.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    assert f"{deb} has SHA-256 " in box.run_rig("deploy", status=1)
    rewrite_index(bundle)
    assert "lacks nvidia-container-toolkit 1.19.1-1" in box.run_rig("deploy", status=2)
    assert box.toolkit_versions == set()
    deb.write_bytes(whole)
    rewrite_index(bundle)
    box.run_rig("deploy")
    assert (box.toolkit_versions, box.held_packages & FOUR) == ({TOOLKIT}, FOUR)
    assert box.docker_info("LoggingDriver") == "journald"
    assert box.spec_driver == OLD[box.system]
    assert box.host.run("ls /etc/apt/sources.list.d/rigwright* 2>/dev/null || true") == ""
    assert box.red_checks() == set()
    box.assert_unchanged()
    # Docker's own take the place of the distribution's, and a newer toolkit that of the older one
    box.declare_containers(bundle=True, version=NEWER, own_docker=OWN_DOCKER, **{**BOTH, "docker": "docker"})
    box.run_rig("deploy")
    assert box.toolkit_versions == {NEWER}
    assert f"docker-ce 5:{OWN_DOCKER}" in box.host.run("dpkg-query -W -f '${Package} ${Version}\\n' docker-ce")
    assert box.red_checks() == set()
    box.assert_unchanged()
    left = "find /var/lib/rigwright/jobs -path '*/files*'; ls -d /tmp/tmp.* 2>/dev/null || true"
    assert box.host.run(left) == ""


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_a_blank_host_without_a_network_gets_docker_and_podman_from_a_bundle(
    lab: ThrowawayLab, release: str, tmp_path: Path
) -> None:
    (host,) = lab.up([HostSpec("bare", release, disks=DISKS)])
    isolate_host(host)
    rig = {**host.inventory_keys, "containers": {"engines": ["docker", "podman"]}, "bundle": BUNDLE}
    inventory = tmp_path / "rig.py"
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {rig!r}}})\n")
    words = [sys.executable, "-m", "cli", "bundle", str(inventory), "--system", release]
    done = subprocess.run(words, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    deploy(inventory)
    assert host.run("docker info -f '{{.ServerVersion}}' && podman info -f '{{.Host.OCIRuntime.Name}}'")
    assert red_checks(inventory) == set()
    assert run_deploy(inventory).changed_operations == []
    host.destroy()


@pytest.mark.all_only
@single_release_mark("debian-13")
@pytest.mark.parametrize("what", ["powered off", "controller killed"])
def test_a_run_cut_off_in_the_middle_is_finished_by_the_next(box: ContainersBox, what: str) -> None:
    box.declare_containers(**BOTH)
    box.interrupt(what, "==> installing container-toolkit", job="rw-job-container-toolkit")
    box.run_rig("deploy")
    assert (box.toolkit_versions, box.held_packages & FOUR) == ({TOOLKIT}, FOUR)
    assert box.red_checks() == set()
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_containers_that_are_not_declared_any_more_are_let_go(box: ContainersBox) -> None:
    box.declare_containers(**BOTH)
    box.run_rig("deploy")
    box.declare_containers()
    released = deploy(box.inventory)
    assert released.changed_operations == ["Container toolkit | Stop managing containers"]
    assert (box.toolkit_versions, box.held_packages & FOUR) == ({TOOLKIT}, set())
    assert box.host.run("ls /etc/apt/*/rigwright-containers /etc/docker/daemon.json 2>/dev/null", check=False) == ""
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_where_the_distributions_docker_is_too_old_dockers_own_serves(box: ContainersBox, tmp_path: Path) -> None:
    # in Docker's own packages is here the newer release's Docker, and the older one's runc, which is C
    newer = DistributionArchive("debian-13", ()).fetch_packages(
        [PackageTransaction(("docker.io", "docker-cli"))], tmp_path / "newer"
    )
    root = tmp_path / "root"
    for path in newer.files:
        if path.rpartition("/")[2].startswith(("docker.io_", "docker-cli_", "containerd_")):
            subprocess.run(["dpkg-deb", "-x", tmp_path / "newer" / path, root], check=True)
    box.host.run("apt-get -q update; cd /root && apt-get -q download runc && dpkg -x runc_*.deb out")
    shutil.copytree(box.host.upper_folder / "root/out/usr", root / "usr", dirs_exist_ok=True, symlinks=True)
    own = container_packages.docker_packages(root, OWN_DOCKER, "bookworm", "debian.12")
    container_packages.write_docker(box.lab.shelf_folder, own, box.key, "bookworm")
    box.declare_containers(own_docker=OWN_DOCKER, engines=("docker",), daemon={"log-driver": "journald"})
    box.run_rig("deploy")
    assert f"docker-ce 5:{OWN_DOCKER}" in box.host.run("dpkg-query -W -f '${Package} ${Version}\\n' docker-ce")
    assert (box.toolkit_versions, box.spec_driver) == ({TOOLKIT}, OLD[box.system])
    assert box.docker_info("LoggingDriver") == "journald"
    box.host.run(f"{IMAGE}\ndocker import /root/image.tar own")
    seen = box.host.run("docker run --rm --network none --device nvidia.com/gpu=all own /bin/ls /dev").split()
    assert {one for one in seen if one.startswith("nvidia")} == DEVICES | {"nvidia0", "nvidia1"}
    assert box.red_checks() == set()
    box.assert_unchanged()


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_engines_that_read_no_specs_are_refused_with_what_to_do(box: ContainersBox) -> None:
    box.declare_containers(**BOTH)
    said = box.run_rig("deploy", status=1)
    assert "docker.io 20.10.24" in said
    assert "add [inputs." in said
    assert "podman 4.3.1" in said
    assert box.toolkit_versions == set()
