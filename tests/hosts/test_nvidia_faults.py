"""Faults while the driver's role works: each has its message, and the next run after its cure converges."""

import hashlib
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from rigwright.model.nvidia_tables import load_driver_tables
from rigwright.project_root import ROOT
from tests.hosts.driver_box import KERNELS, NEW, OLD, DriverBox, single_release_mark
from tests.hosts.support import deploy_command, run_plan, wait_until
from tests.lock_files import reseal_text
from tests.stand_ins import card_faults
from tests.stand_ins.nvidia import kernel_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.package_contents import REFUSES
from tests.stand_ins.nvidia.signing_keys import SigningKey

SOURCE = "/etc/apt/sources.list.d/rigwright-nvidia.sources"
LOWER, HIDDEN = "595.45.04", "610.43.02"
NEXT_KERNEL = {"debian-12": "6.1.0-42-amd64", "debian-13": "6.12.108+deb13-amd64"}
REMOVE_KERNEL = "apt-get -y -qq purge linux-image-{0} linux-headers-{0}"
# As apt and unattended-upgrades do; a list's lock is another one than dpkg's
LOCKER = """\
import fcntl, subprocess, time
dpkg, lists = (open(path, "a") for path in ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock"))
fcntl.lockf(dpkg, fcntl.LOCK_EX)
fcntl.lockf(lists, fcntl.LOCK_EX)
open("/run/locked", "w")
while subprocess.run(["systemctl", "is-active", "-q", "rw-job-driver-look"]).returncode:
    time.sleep(0.1)
time.sleep(2)
dpkg.close()
time.sleep(4)
lists.close()
open("/var/tmp/let-go", "w")
"""


def put(box: DriverBox, *debs: StandInDeb) -> str:
    """Bring packages to the host, as its operator would; returns their files."""
    folder = box.lab.shelf_folder / "mine"
    folder.mkdir(exist_ok=True)
    paths = []
    for deb in debs:
        deb.build_package(folder)
        box.host.run(f"curl -sSfo /var/tmp/{shlex.quote(deb.file_name)} '{box.lab.shelf_url}/mine/{deb.file_name}'")
        paths.append(f"/var/tmp/{deb.file_name}")
    return shlex.join(paths)


def believed(box: DriverBox, key: SigningKey) -> None:
    """Have the archive signed by a key, and the lock hold that: as if it had been a good one at the time."""
    box.publish(OLD[box.system], key=key)
    text = key.public
    (box.folder / f"locks/driver-{box.system}.asc").write_text(text)
    lock = box.folder / "locks/inputs.lock.toml"
    row = re.compile(r'(kind = "key"\nname = .*\nversion = ").*("\n(?:.*\n){2}sha256 = ").*("\nsize = ).*')
    new = rf"\g<1>{key.fingerprint}\g<2>{hashlib.sha256(text.encode()).hexdigest()}\g<3>{len(text)}"
    lock.write_text(reseal_text(row.sub(new, lock.read_text())))


def nothing_came(box: DriverBox) -> None:
    """Assert that nothing of a driver was installed, and that dpkg is well."""
    states = "dpkg-query -W -f '${db:Status-Status} ${Package}\n' '*nvidia*' libcuda1 2>/dev/null"
    assert [line for line in box.host.run(states, check=False).splitlines() if "not-installed" not in line] == []
    box.host.run("apt-get -qq check")


def red(box: DriverBox) -> set[str]:
    """The checks that do not hold before a deploy: a layer of another lab has its archive elsewhere (N17, N28)."""
    return box.red_checks() - {"N17", "N28"}


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_another_driver_than_the_locked_one_is_refused(
    undriven: DriverBox, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    box, old = undriven, OLD[undriven.system]
    with subtests.test("signed anew by another key"):
        box.publish(old, key=SigningKey.generate_key(tmp_path / "other"))
        said = box.run_rig("deploy", status=1)
        assert "Missing key" in said
        assert "NVIDIA's archive cannot be used: above is what apt says" in said
        assert f"{SOURCE} is taken away until the next deploy" in said
        box.host.run("apt-get -qq update")
        nothing_came(box)
    with subtests.test("other bytes under the same name"):
        box.publish(old, refuses=("another-kernel",))
        said = box.run_rig("deploy", status=1)
        assert f"nvidia-kernel-open-dkms_{old}-1_amd64.deb is not the locked file" in said
        nothing_came(box)


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_another_driver_or_an_obstacle_is_refused(
    undriven: DriverBox, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    box, old = undriven, OLD[undriven.system]
    ended, weak = (
        SigningKey.generate_key(tmp_path / "ended", expired=True),
        SigningKey.generate_key(tmp_path / "weak", sha1=True),
    )
    for what, one in {"has ended": ended, "signs itself with SHA-1": weak}.items():
        with subtests.test(f"a key that was good when it was locked, and {what}"):
            believed(box, one)
            said = box.run_rig("deploy", status=1)
            assert "sqv returned an error code" in said
            assert "NVIDIA's archive cannot be used" in said
            assert f"{SOURCE} is taken away until the next deploy" in said
            nothing_came(box)
    box.publish(old)
    box.run_rig("lock", "--refresh")
    with subtests.test("the archive has another version alone"):
        box.publish(LOWER)
        said = box.run_rig("deploy", status=1)
        assert f"refused: {old} is not available: the archive has {LOWER}" in said
        nothing_came(box)
    with subtests.test("packages that bring another branch's"):
        names = {"nvidia-driver-cuda": "libcuda1", "nvidia-kernel-open-dkms": "nvidia-kernel-support"}
        debs = [
            StandInDeb(name, f"{old}-1", "nvidia-graphics-drivers", (f"{of} (>= {HIDDEN})",))
            for name, of in names.items()
        ]
        debs.append(StandInDeb("nvidia-persistenced", f"{old}-1", "nvidia-persistenced"))
        box.publish(HIDDEN, also=tuple(debs))
        box.run_rig("lock", "--refresh")
        assert f"refused: libcuda1 would be installed as {HIDDEN} instead of {old}" in box.run_rig("deploy", status=1)
        nothing_came(box)
    box.publish(old)
    box.run_rig("lock", "--refresh")
    with subtests.test("a masked daemon"):
        box.host.run("systemctl mask nvidia-persistenced.service")
        for verb in ("plan", "deploy"):
            assert "run `systemctl unmask nvidia-persistenced.service`" in box.run_rig(verb, status=1)
        box.host.run("systemctl unmask nvidia-persistenced.service")
        nothing_came(box)
    with subtests.test("a package of the operator's is in the way"):
        watch = StandInDeb("gpu-watch", "1", "gpu-watch", conflicts=("nvidia-persistenced",))
        box.host.run(f"dpkg -i {put(box, watch)}")
        said = box.run_rig("deploy", status=1)
        assert "refused: apt would remove gpu-watch: remove or update them yourself if you do not need them" in said
        nothing_came(box)
        box.host.run("apt-get -qq -y remove gpu-watch")


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_dpkg_that_was_interrupted_and_another_program_at_it_are_waited_for(undriven: DriverBox) -> None:
    box, old = undriven, OLD[undriven.system]
    half = put(box, StandInDeb("half", "1", "half"))
    box.host.run(f"dpkg --unpack {half} && dpkg-query -s half > /var/lib/dpkg/updates/0000")
    assert "dpkg was interrupted" in box.host.run("apt-get -y install make 2>&1", check=False)
    box.host.run(f"systemd-run -q --unit=upgrades python3 -c {shlex.quote(LOCKER)}")
    wait_until(lambda: box.host.run("ls /run/locked", check=False), "locked")
    box.run_rig("deploy", "--reboot")
    box.host.run("ls /var/tmp/let-go")
    assert (box.installed_driver, box.loaded_module) == (old, old)
    assert box.red_checks() == set()


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_an_upgrade_behind_our_back_is_seen_and_undone(driven: DriverBox, subtests: pytest.Subtests) -> None:
    box, old, new = driven, OLD[driven.system], NEW[driven.system]
    with subtests.test("libraries alone"):
        url = f"{box.lab.shelf_url}/nvidia/{load_driver_tables(ROOT).archive(box.system).path}"
        names = [f"{name}_{new}-1_amd64.deb" for name in ("libcuda1", "libnvidia-ml1")]
        box.host.run(
            f"cd /var/tmp && for name in {' '.join(names)}; do curl -sSfO {url}/$name; done; "
            f"dpkg -i --force-depends {' '.join(names)}"
        )
        assert red(box) == {"N02", "N13", "N14", "N15", "N20"}
        box.run_rig("deploy")
    with subtests.test("all of it"):
        targets = f"dpkg-query -W -f '${{Package}} ${{Version}}\n' | sed -n 's/ {old}-1$/={new}-1/p'"
        box.host.run(
            "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --allow-change-held-packages install "
            f"$({targets})"
        )
        assert (box.installed_driver, box.loaded_module) == (new, old)
        said = box.run_rig("check", status=1)
        assert {"N02", "N09", "N14", "N15", "N20"} <= set(re.findall(r"FAIL +\S+ +(N[0-9]+) ", said))
        assert "reboot if the driver was upgraded" in said
        assert "--upgrade-driver" in said
        box.run_rig("deploy")
        assert (box.installed_driver, box.loaded_module) == (old, old)
    assert box.red_checks() == set()
    assert run_plan(box.inventory).planned_operations == []


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_an_upgrade_that_is_held_up_goes_on_from_there(driven: DriverBox) -> None:
    box, new = driven, NEW[driven.system]
    box.lock(new)
    # a package of the operator's fails
    broken = StandInDeb("broken", "1", "broken", scripts={"postinst": "[ -e /var/tmp/cured ]\n"})
    box.host.run(f"dpkg -i {put(box, broken)}", check=False)
    said = box.run_rig("deploy", "--upgrade-driver", "--reboot", status=1)
    assert re.search(r"Errors were encountered while processing:\n.* broken\n", said)
    assert "apt-get did not finish: fix what it names above" in said
    assert {"B03", "N02"} <= box.red_checks()
    box.host.run("touch /var/tmp/cured && dpkg --configure -a")
    # a foreign process, one of ours, and the driver's own
    holding = "systemd-run -q {} sh -c 'exec {} infinity </dev/nvidia0'"
    box.host.run("cp /bin/sleep /var/tmp/nvidia-persistenced")
    box.host.run(holding.format("--unit=training", "sleep"))
    box.host.run(holding.format("--unit=rigwright-chat --slice=rigwright.slice", "sleep"))
    box.host.run(holding.format("--unit=daemon", "/var/tmp/nvidia-persistenced"))
    pid = box.host.run("systemctl show --property=MainPID --value training").strip()
    boot = box.host.run("systemctl show --property=UserspaceTimestamp")
    said = box.run_rig("deploy", "--upgrade-driver", "--reboot", status=1)
    assert f"no reboot: pid {pid} (sleep, in /system.slice/training.service) holds /dev/nvidia0\n" in said
    assert said.count("no reboot: ") == 1
    assert "stop these, or wait for them, then run it again" in said
    assert box.host.run("systemctl is-active rigwright-chat").strip() == "active"
    assert box.host.run("systemctl show --property=UserspaceTimestamp") == boot
    box.host.run("systemctl stop training")
    with subprocess.Popen(
        deploy_command(box.inventory, "--yes", "--data", "verb=upgrade", "--data", "reboot=true"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as controller:
        assert controller.stderr
        for line in controller.stderr:
            if "rebooting: " in line:
                break
        wait_until(
            lambda: box.host.run("systemctl show --property=UserspaceTimestamp", check=False) != boot, "going down"
        )
        os.killpg(controller.pid, signal.SIGKILL)
    box.host.wait()
    assert box.loaded_module == new
    box.run_rig("deploy", "--upgrade-driver")
    assert box.red_checks() == set()


@pytest.mark.all_only
@single_release_mark("debian-12")
def test_a_kernel_that_the_driver_does_not_build_for_is_named_with_the_cure(
    undriven: DriverBox, tmp_path: Path
) -> None:
    box = undriven
    older, newest = KERNELS[box.system]
    believed(
        box, SigningKey.generate_key(tmp_path / "weak", sha1=True)
    )  # as NVIDIA's own for this release is; its apt takes it
    box.host.run(f"mkdir -p {Path(REFUSES).parent} && echo {newest} > {REFUSES}")
    said = box.run_rig("deploy", "--reboot", status=1)
    assert f"driver {OLD[box.system]} does not build for {newest}" in said
    assert f"then remove linux-image-{newest}" in said
    assert box.red_checks() >= {"N09", "N10"}
    card_faults.boot_with(box.host, older)
    box.host.reboot()
    box.host.run(REMOVE_KERNEL.format(newest))
    box.run_rig("deploy", "--reboot")
    # the kernel that stays is an old one, and nothing brings it security updates any more
    assert (box.loaded_module, box.red_checks()) == (OLD[box.system], {"N19"})


@pytest.mark.all_only
@single_release_mark("debian-13")
def test_a_kernel_that_comes_later_gets_its_modules(driven: DriverBox, subtests: pytest.Subtests) -> None:
    box, kernel = driven, NEXT_KERNEL[driven.system]
    image, headers = kernel_packages.image_package(kernel), kernel_packages.headers_package(kernel)
    with subtests.test("without its headers"):
        box.host.run(f"dpkg -i {put(box, image)}")
        assert red(box) == {"N09", "N10", "N18", "N33"}
        box.publish(OLD[box.system], also=(headers,))
        box.run_rig("deploy")
        assert box.red_checks() == {"N18"}
        box.host.run(REMOVE_KERNEL.format(kernel))
    with subtests.test("with them, by DKMS' hook"):
        box.host.run(f"dpkg -i {put(box, headers, image)}")
        assert OLD[box.system] in box.host.run(f"modinfo -k {kernel} -F version nvidia")
        assert run_plan(box.inventory).planned_operations == []
        box.host.run(REMOVE_KERNEL.format(kernel))
    with subtests.test("that DKMS refuses"):
        box.host.run(f"mkdir -p {Path(REFUSES).parent} && echo {kernel} > {REFUSES}")
        box.host.run(f"dpkg -i {put(box, headers, image)}", check=False)
        assert box.red_checks() >= {"N09", "N10"}
        said = box.run_rig("deploy", status=1)
        assert f"does not build for {kernel}" in said
        assert f"then remove linux-image-{kernel}" in said
        box.host.run(REMOVE_KERNEL.format(kernel))
        box.run_rig("deploy")
    assert box.red_checks() == set()
