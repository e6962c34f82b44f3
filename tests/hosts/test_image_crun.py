"""An engine that comes as an image where podman is too old: Debian 12's own crun, beside its own Docker."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hosts import HostSpec
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.containers_box import IMAGE
from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import SHARED_DISK_CHECKS, ImageBox, make_server_image, serve_image
from tests.hosts.image.image_fixtures import inventory as inventory
from tests.hosts.support import PORT, api_key, deploy, is_serving, main_pid, red_checks, run_deploy, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-12"], indirect=True)]
UNIT = "rigwright-chat.service"
FOLDER = "/run/rigwright/containers"
ENGINES = "/opt/rigwright/engines"
GROUP = f"/sys/fs/cgroup/rigwright.slice/rigwright-chat.slice/{UNIT}"
OWN = "docker run --detach --name own --network none own /bin/sleep 3600"
ENGINE = "pgrep -o -f '^python3 -I /run/rigwright'"
# of more layers than a mount has room for by their names
TWO = make_server_image("two", layers=60)


@pytest.fixture(scope="module")
def box(lab: ThrowawayLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBox]:
    """A host that serves an image from a registry, and has a Docker of its operator's."""
    spec = HostSpec("crun", "debian-12", disks=("/opt", "/var/lib/docker"))
    with serve_image(lab, spec, tmp_path_factory.mktemp("image")) as made:
        made.host.run("DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends docker.io")
        made.host.run(f"{IMAGE}\ndocker import /root/image.tar own; {OWN}")
        yield made


def left(box: ImageBox) -> list[str]:
    """The remains of containers on the host."""
    return box.host.run(f"ls {FOLDER}; grep -c {FOLDER}/ /proc/mounts", check=False).split()


def test_an_image_is_served_as_its_own_user_without_a_network(box: ImageBox, inventory: Path, release: str) -> None:
    said = box.server_facts()
    assert said["mark"] == "one"
    assert said["environ"]["IMAGE_SAYS"] == "hello"
    assert said["uid"] == int(box.host.run("id -u rigwright-chat"))
    assert said["interfaces"] == ["lo"]
    assert said["cwd"] == "/work"
    assert said["temporary"] == "/tmp"
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    assert "podman" not in box.host.run("dpkg-query -W -f '${Package} ' podman", check=False)
    assert box.host.run("docker ps --all --format '{{.Names}} {{.State}}'").split() == ["own", "running"]
    # the process that systemd knows is the engine's own, in the unit's own group
    assert main_pid(box.host) == int(box.host.run(ENGINE))

    box.host.run("systemctl daemon-reload")
    assert box.server_facts()["mark"] == "one"
    box.host.reboot()
    wait_until(lambda: is_serving(box.host), "served after a boot")
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == SHARED_DISK_CHECKS


@pytest.mark.parametrize("victim", ["the engine", "all"])
def test_whatever_is_killed_is_started_anew_and_leaves_nothing(
    box: ImageBox, inventory: Path, victim: str, release: str
) -> None:
    before = main_pid(box.host)
    box.host.run(f"systemctl reset-failed {UNIT}")
    box.host.run(f"kill -KILL {before}" if victim == "the engine" else f"systemctl kill --signal=KILL {UNIT}")
    wait_until(lambda: is_serving(box.host) and main_pid(box.host) != before, "served by another process")
    assert box.server_facts()["mark"] == "one"
    box.host.run(f"systemctl stop {UNIT}")
    assert left(box) == ["0"]
    assert box.host.run("pgrep -f '^python3 -I /run/rigwright|^/usr/bin/crun'", check=False) == ""
    box.host.run(f"systemctl start {UNIT}")


def inside(what: str) -> str:
    """Root's access to the mounts of the engine's container, by the host's own Python."""
    enter = f"libc.setns(os.open('/proc/' + subprocess.getoutput({ENGINE!r}) + '/ns/mnt', 0), 0x20000)"
    text = f"import ctypes, os, subprocess; libc = ctypes.CDLL(None); {enter}; raise SystemExit({what})"
    return f"/usr/bin/python3 -c {shlex.quote(text)}"


MARK = f"$(ls {ENGINES}/vllm-image-*/store/overlay/*/diff/etc/mark)"
DRIFTS = {
    "a file of its image": (f"echo x >> {MARK}", {"L02"}, f"truncate --size=-2 {MARK}"),
    "a file system over one of its folders": (inside("libc.mount(b'x', b'/work', b'tmpfs', 0, None)"), {"I04"}, ""),
    "its root": (inside("libc.mount(None, b'/', None, 0x20, None)"), {"I04"}, ""),
    "a disk's device file": (inside("os.mknod('/dev/sda', 0o060600, 0x800)"), {"I06"}, ""),
    "a process of root's beside it": (
        f"sh -c 'echo $$ > {GROUP}/cgroup.procs; exec sleep 300' > /dev/null 2>&1 &",
        {"I03", "I05"},
        "",
    ),
    "a container of an earlier variant": (f"mkdir {FOLDER}/old", {"I08"}, f"rmdir {FOLDER}/old"),
}


@pytest.mark.parametrize("what", DRIFTS)
def test_a_change_is_seen_and_its_cure_cures_it(box: ImageBox, inventory: Path, what: str, release: str) -> None:
    do, wanted, undo = DRIFTS[what]
    box.host.run(do)
    assert red_checks(inventory) >= SHARED_DISK_CHECKS | wanted
    box.host.run(undo or f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
    deploy(inventory)
    assert red_checks(inventory) == SHARED_DISK_CHECKS


def test_it_gets_no_namespaces_of_its_own(box: ImageBox, inventory: Path, release: str) -> None:
    text = "import ctypes; print([ctypes.CDLL(None).unshare(kind) for kind in (0x10000000, 0x20000)])"
    crun = f"crun --cgroup-manager=disabled --root={FOLDER}/chat/runtime exec rigwright-chat"
    assert box.host.run(f"{crun} python3 -I -c {shlex.quote(text)}").strip() == "[-1, -1]"


@pytest.mark.all_only
def test_dockers_daemon_is_restarted_under_load_and_no_request_fails(
    box: ImageBox, inventory: Path, release: str
) -> None:
    before = main_pid(box.host)
    asked = f'curl -sf -o /dev/null -H "Authorization: Bearer {api_key(box.host)}" http://127.0.0.1:{PORT}/about'
    box.host.run(
        f"systemd-run -q --unit=load sh -c 'until [ -e /run/enough ]; do {asked} && echo ok || echo no; done"
        " > /root/answers'"
    )
    for _ in range(3):
        box.host.run("systemctl reset-failed docker; systemctl restart docker")
    box.host.run("touch /run/enough; timeout 30 sh -c 'while systemctl -q is-active load; do sleep 0.1; done'")
    answers = box.host.run("cat /root/answers; rm /run/enough /root/answers").split()
    assert len(answers) > 20
    assert {*answers} == {"ok"}
    assert main_pid(box.host) == before
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    box.host.run("docker start own")


def test_an_image_of_many_layers_is_served_and_the_one_before_it_again(
    box: ImageBox, inventory: Path, release: str
) -> None:
    deploy(box.declare("image/other"))
    assert "--max-model-len=2048" in box.server_facts()["argv"]
    deploy(box.declare())
    box.push_image(TWO)
    assert run_rigwright("lock", "--refresh", str(inventory)).returncode == 0
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-3000:]
    assert box.server_facts()["mark"] == "two"
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    numbers = box.host.run("ls /etc/rigwright/generations").split()
    back = run_rigwright("rollback", str(inventory), "--to", min(numbers, key=int))
    assert back.returncode == 0, back.stdout + back.stderr
    assert box.server_facts()["mark"] == "one"


def test_removal_leaves_docker_and_what_runs_on_it(box: ImageBox, inventory: Path, release: str) -> None:
    done = run_rigwright("remove", str(inventory), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert box.host.run("grep -c rigwright /proc/mounts", check=False).strip() == "1"
    places = f"{FOLDER}/* /run/rigwright/instances/* /opt/rigwright /var/cache/rigwright"
    assert box.host.run(f"ls -d {places} 2> /dev/null", check=False) == ""
    box.host.run("docker start own")
    assert box.host.run("docker ps --format '{{.Names}}'").split() == ["own"]
