"""An engine that comes as an image: Debian's own registry and podman, and a small image that answers as vLLM does."""

import shlex
from pathlib import Path

import pytest

from tests.hosts import patch_box
from tests.hosts.hub_models import run_rigwright
from tests.hosts.image import SERVER, SHARED_DISK_CHECKS, ImageBox, make_server_image, site_packages
from tests.hosts.image.image_fixtures import box as box
from tests.hosts.image.image_fixtures import inventory as inventory
from tests.hosts.support import (
    PORT,
    api_key,
    check_verdicts,
    deploy,
    is_serving,
    main_pid,
    red_checks,
    run_deploy,
    wait_until,
)

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)
UNIT = "rigwright-chat.service"
# of more layers than a mount has room for by their names
TWO = make_server_image("two", layers=60)
ENGINE = "pgrep -o -f '^python3 -I /run/rigwright'"
ENGINES = "/opt/rigwright/engines"


def left(box: ImageBox) -> str:
    """The remains of containers on the host."""
    return box.host.run("ls /run/rigwright/containers; grep -c /run/rigwright/containers/ /proc/mounts", check=False)


def test_an_image_is_served_as_its_own_user_without_a_network(box: ImageBox, inventory: Path, release: str) -> None:
    said = box.server_facts()
    assert said["mark"] == "one"
    assert said["environ"]["IMAGE_SAYS"] == "hello"
    assert said["uid"] == int(box.host.run("id -u rigwright-chat"))
    assert said["interfaces"] == ["lo"]
    assert said["cwd"] == "/work"
    assert said["temporary"] == "/tmp"
    assert "--max-model-len=4096" in said["argv"]
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    # the fetched layers are unpacked, and no other store has any of it
    assert box.host.run("ls /srv/models/_packages 2> /dev/null", check=False) == ""
    assert box.host.run("podman images -q") == ""

    box.host.run("systemctl daemon-reload")
    assert box.server_facts()["mark"] == "one"
    box.host.reboot()
    wait_until(lambda: is_serving(box.host), "served after a boot")
    assert run_deploy(inventory).changed_operations == []
    assert red_checks(inventory) == SHARED_DISK_CHECKS


@pytest.mark.all_only
@pytest.mark.parametrize("victim", ["conmon", "the engine", "all"])
def test_whatever_is_killed_is_started_anew_and_leaves_nothing(
    box: ImageBox, inventory: Path, victim: str, release: str
) -> None:
    before = main_pid(box.host)
    box.host.run(f"systemctl reset-failed {UNIT}")
    box.host.run(
        {
            "conmon": f"kill -KILL {before}",
            "the engine": f"kill -KILL $({ENGINE})",
            "all": f"systemctl kill --signal=KILL {UNIT}",
        }[victim]
    )
    wait_until(lambda: is_serving(box.host) and main_pid(box.host) != before, "served by another process")
    assert left(box).split() == ["chat", "3"]
    assert box.server_facts()["mark"] == "one"
    box.host.run(f"systemctl stop {UNIT}")
    assert left(box).split() == ["0"]
    assert box.host.run("pgrep -f '^/usr/bin/conmon|^python3 -I /run/rigwright'", check=False) == ""
    box.host.run(f"systemctl start {UNIT}")


def inside(what: str) -> str:
    """Root's access to the mounts of the engine's container, by the host's own Python."""
    enter = f"os.setns(os.open('/proc/' + subprocess.getoutput({ENGINE!r}) + '/ns/mnt', 0), os.CLONE_NEWNS)"
    text = f"import ctypes, os, subprocess; libc = ctypes.CDLL(None); {enter}; raise SystemExit({what})"
    return f"/usr/bin/python3 -c {shlex.quote(text)}"


FOLDER = "/run/rigwright/containers"
PODMAN = (
    f"podman --root={FOLDER}/chat/graph --runroot={FOLDER}/chat/run --tmpdir={FOLDER}/chat/tmp "
    f"--storage-driver=overlay --storage-opt=overlay.imagestore=$(ls -d {ENGINES}/vllm-image-*/store) "
    f"--storage-opt=overlay.skip_mount_home=true --runtime-flag=root={FOLDER}/chat/runtime"
)
MARK = f"{ENGINES}/vllm-image-*/store/overlay/*/diff/etc/mark"
SLEEP = "import time; time.sleep(300)"
DRIFTS = {
    "a file of its image": (f"echo x >> $(ls {MARK})", {"L02"}, f"truncate --size=-2 $(ls {MARK})"),
    "a file system over one of its folders": (inside("libc.mount(b'x', b'/work', b'tmpfs', 0, None)"), {"I04"}, ""),
    "its root": (inside("libc.mount(None, b'/', None, 0x20, None)"), {"I04"}, ""),
    "a disk's device file": (inside("os.mknod('/dev/sda', 0o060600, 0x800)"), {"I06"}, ""),
    "a process of root's in it": (
        f"{PODMAN} exec --detach --user=0 rigwright-chat python3 -c {shlex.quote(SLEEP)}",
        {"I03"},
        "",
    ),
    "a container of an earlier variant": (f"mkdir {FOLDER}/old", {"I08"}, f"rmdir {FOLDER}/old"),
}


@pytest.mark.all_only
@pytest.mark.parametrize("what", DRIFTS)
def test_a_change_is_seen_and_its_cure_cures_it(box: ImageBox, inventory: Path, what: str, release: str) -> None:
    do, wanted, undo = DRIFTS[what]
    box.host.run(do)
    assert red_checks(inventory) >= SHARED_DISK_CHECKS | wanted
    box.host.run(undo or f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
    deploy(inventory)
    assert red_checks(inventory) == SHARED_DISK_CHECKS


HOOK = """{"version": "1.0.0", "hook": {"path": "/usr/bin/touch", "args": ["touch", "/root/hooked"]},
"when": {"always": true}, "stages": ["prestart"]}"""
SAID = {
    "/etc/containers/mounts.conf": "/etc/ssh:/run/secrets/ssh",
    "/etc/containers/seccomp.json": '{"defaultAction": "SCMP_ACT_ALLOW"}',
    "/etc/containers/oci/hooks.d/all.json": HOOK,
    "/usr/share/containers/oci/hooks.d/all.json": HOOK,
    **dict.fromkeys((f"/etc/containers/{name}.conf" for name in ("containers", "registries", "storage")), "a = ["),
    "/etc/cdi/other.yaml": "a: [",
}


@pytest.mark.all_only
def test_the_hosts_settings_of_all_containers_have_no_effect(box: ImageBox, inventory: Path, release: str) -> None:
    for path, text in SAID.items():
        aside = f"mkdir -p $(dirname {path}); [ ! -e {path} ] || mv {path} {path}.aside"
        box.host.run(f"{aside}; printf '%s\\n' {shlex.quote(text)} > {path}")
    box.host.run(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
    assert is_serving(box.host)
    assert box.host.run("ls /root/hooked 2> /dev/null", check=False) == ""
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    for path in SAID:
        box.host.run(f"rm {path}; [ ! -e {path}.aside ] || mv {path}.aside {path}")


@pytest.mark.all_only
def test_it_gets_no_namespaces_of_its_own(box: ImageBox, inventory: Path, release: str) -> None:
    text = "import ctypes; print([ctypes.CDLL(None).unshare(kind) for kind in (0x10000000, 0x20000)])"
    assert box.host.run(f"{PODMAN} exec rigwright-chat python3 -I -c {shlex.quote(text)}").strip() == "[-1, -1]"


@pytest.mark.all_only
def test_a_variant_is_switched_and_the_old_container_is_gone(box: ImageBox, inventory: Path, release: str) -> None:
    before = box.host.run("ls -d /sys/fs/cgroup/rigwright.slice/*/*/libpod-payload-*")
    deploy(box.declare("image/other"))
    assert "--max-model-len=2048" in box.server_facts()["argv"]
    after = box.host.run("ls -d /sys/fs/cgroup/rigwright.slice/*/*/libpod-payload-*")
    assert len(after.split()) == 1
    assert after != before
    assert check_verdicts(inventory)["I08"] == "ok"
    deploy(box.declare())


@pytest.mark.all_only
def test_a_tag_that_moves_moves_nothing_until_it_is_locked(box: ImageBox, inventory: Path, release: str) -> None:
    old = (box.folder / "locks/box.lock.toml").read_text()
    box.push_image(TWO)
    looked = run_rigwright("lock", "--check", str(inventory))
    assert looked.returncode == 1
    assert "stand-in: the tag v1 is sha256:" in looked.stdout
    assert run_deploy(inventory).changed_operations == []
    assert box.server_facts()["mark"] == "one"

    assert run_rigwright("lock", "--refresh", str(inventory)).returncode == 0
    refused_by_the_registry(box, inventory)
    deploy(inventory)
    assert box.server_facts()["mark"] == "two"
    assert red_checks(inventory) == SHARED_DISK_CHECKS
    number = box.host.run("basename $(readlink -f /etc/rigwright/current)").strip()
    older = [one for one in box.host.run("ls /etc/rigwright/generations").split() if one != number]
    back = run_rigwright("rollback", str(inventory), "--to", min(older, key=int))
    assert back.returncode == 0, back.stdout + back.stderr
    assert box.server_facts()["mark"] == "one"
    (box.folder / "locks/box.lock.toml").write_text(old)
    assert run_deploy(inventory).changed_operations == []


def refused_by_the_registry(box: ImageBox, inventory: Path) -> None:
    """Whether it is down or has other bytes, the old image serves on."""
    before = main_pid(box.host)
    box.host.run("systemctl stop docker-registry")
    run = run_deploy(inventory)
    assert run.status == 1
    assert "Traceback" not in run.said
    box.host.run("systemctl start docker-registry")
    place = "/var/lib/docker-registry/docker/registry/v2/blobs/sha256"
    layer = TWO.layer_digests[-1]
    data = f"{place}/{layer[:2]}/{layer}/data"
    box.host.run(f"cp {data} /root/kept && printf x | dd of={data} bs=1 seek=9 conv=notrunc status=none")
    run = run_deploy(inventory)
    assert run.status == 1
    assert "not the locked file" in run.said
    box.host.run(f"cp /root/kept {data}")
    assert main_pid(box.host) == before
    assert box.server_facts()["mark"] == "one"


@pytest.mark.all_only
def test_removal_leaves_podman_as_it_was_found(box: ImageBox, inventory: Path, release: str) -> None:
    done = run_rigwright("remove", str(inventory), "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert box.host.run("grep -c rigwright /proc/mounts", check=False).strip() == "1"
    places = "/run/rigwright/containers/* /run/rigwright/instances/* /opt/rigwright /var/cache/rigwright"
    assert box.host.run(f"ls -d {places} 2> /dev/null", check=False) == ""
    assert "libpod" not in box.host.run("ls /sys/fs/cgroup /sys/fs/cgroup/rigwright.slice 2> /dev/null", check=False)


CLI = "vllm/entrypoints/cli/main.py"


@pytest.mark.all_only
def test_a_file_of_it_is_changed_by_what_is_mounted_over_it(box: ImageBox, inventory: Path, release: str) -> None:
    plain = box.declare()
    deploy(plain)
    before = SERVER.read_text()
    after = before.replace('SAID = "alive"', 'SAID = "patched"')
    patch_box.write_patch(box.folder / "patches/said", "vllm", "0.21.0+cpu", CLI, before, after)
    patched = box.declare()
    catalog = box.folder / "catalog/box.toml"
    whole = catalog.read_text()
    version = 'version = "0.21.0+cpu"'
    catalog.write_text(whole.replace(version, f'{version}\nsite = "{site_packages()}"\npatches = ["said"]'))
    done = run_deploy(patched)
    assert done.status == 0, done.said[-3000:]
    assert "Engines | Install vllm-image" in done.changed_operations
    key = api_key(box.host)
    asked = f'curl -s -H "Authorization: Bearer {key}" -d "{{}}" http://127.0.0.1:{PORT}/v1/chat/completions'
    assert '"patched"' in box.host.run(asked)
    assert run_deploy(patched).changed_operations == []
    assert red_checks(patched) == SHARED_DISK_CHECKS

    # another image under the same patch
    patch_box.write_patch(box.folder / "patches/said", "vllm", "0.21.0+cpu", CLI, before + "#\n", after + "#\n")
    there = box.host.run(f"ls {ENGINES}")
    done = run_deploy(patched)
    assert done.status == 1
    assert f"patch said: {CLI}: expected " in done.said
    assert box.host.run(f"ls {ENGINES}").split() == there.split()

    catalog.write_text(whole)
    done = run_deploy(plain)
    assert done.status == 0, done.said[-3000:]
    assert "Engines | Install vllm-image" not in done.changed_operations
    assert '"alive"' in box.host.run(asked)
