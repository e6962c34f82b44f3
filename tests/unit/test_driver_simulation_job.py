"""The jobs beside the installation: apt is asked only of verified archives, and letting go takes what is ours."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigwright.apt_transactions import SCHEMA
from rigwright.host import script_output
from rigwright.render import render
from tests.unit import short_programs
from tests.unit.driver_job_host import DriverJobHost
from tests.unit.rendered_scripts import WIDE, write_stand_in

KERNEL = os.uname().release
TARGETS = ("nvidia-driver-cuda=595.71.05-1", "old-")
WORDS = " ".join(TARGETS)
WOULD = "Inst nvidia-driver-cuda (595.71.05-1 NVIDIA [amd64])\n"
NO_WAY = "E: Version '595.71.05-1' for 'nvidia-driver-cuda' was not found\n"


@pytest.fixture
def host(tmp_path: Path) -> DriverJobHost:
    made = DriverJobHost(tmp_path)
    made.set_answers(simulated=WOULD, components="main\ncontrib\n")
    return made


def run_look_job(host: DriverJobHost, **changes: Any) -> subprocess.CompletedProcess[str]:
    values = {"targets": TARGETS, "first": (), "kept": "", "removed": ("old",), "component": ""}
    return host.run_job("look", **values | changes)


def read_look_report(host: DriverJobHost) -> tuple[object, ...]:
    """The job's record: how, apt's output, and rows of the archives' packages."""
    told = script_output.parse_output(host.done.read_text().splitlines(), SCHEMA)
    return told.one("how"), told.one("said"), *told.many("offered")


def test_apt_is_asked_what_it_would_do_and_does_nothing(host: DriverJobHost) -> None:
    done = run_look_job(host)
    assert (done.returncode, done.stderr) == (0, "")
    assert host.recorded_commands == ["dpkg --configure -a", "update ", f"simulate {WORDS}"]
    assert read_look_report(host) == ("archive", WOULD.strip())
    words = (host.root / "arguments").read_text().splitlines()[-1]
    for word in ("-s", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"):
        assert f" {word} " in words
    assert host.ledger_lines == ["package curl"]


def test_a_box_with_a_bundle_asks_no_archive(host: DriverJobHost) -> None:
    """With an older bundle a rollback has the files that the host has kept."""
    assert run_look_job(host, offline=True, component="restricted").returncode == 0
    assert host.recorded_commands == ["dpkg --configure -a", f"simulate {WORDS}"]
    for line in (host.root / "arguments").read_text().splitlines():
        assert "-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null" in line


def test_earlier_output_of_apt_counts_no_more(host: DriverJobHost) -> None:
    host.done.write_text("of another time\n")
    host.set_answers(broken="^update ours")
    (host.root / "ours.sources").touch()
    assert run_look_job(host).returncode == 1
    assert not host.done.exists()


def test_our_archive_is_read_alone_and_strictly_and_the_others_as_well_as_can_be(host: DriverJobHost) -> None:
    (host.root / "ours.sources").write_text("Types: deb\n")
    host.set_answers(broken="^update $")
    done = run_look_job(host)
    assert done.returncode == 0
    assert host.recorded_commands[1:3] == ["update ours.sources ", "update "]
    assert "note: not every package list could be read" in done.stdout
    strict = (host.root / "arguments").read_text().splitlines()[0]
    assert "APT::Update::Error-Mode=any" in strict
    assert "Dir::Etc::SourceList=/dev/null" in strict
    assert "APT::Get::List-Cleanup=0" in strict


def test_an_archive_that_cannot_be_verified_ends_it(host: DriverJobHost) -> None:
    (host.root / "ours.sources").touch()
    host.set_answers(broken="^update ours")
    done = run_look_job(host)
    assert done.returncode == 1
    assert "NVIDIA's archive cannot be used" in done.stdout
    assert host.recorded_commands == ["dpkg --configure -a", "update ours.sources ", "update ours.sources "]
    # the operator's own updates must not fail with it
    assert "ours.sources is taken away until the next deploy" in done.stdout
    assert not (host.root / "ours.sources").exists()


def test_a_lock_on_package_lists_is_waited_for(host: DriverJobHost) -> None:
    host.set_answers(lists="E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)\n")
    (host.root / "ours.sources").touch()
    assert run_look_job(host).returncode == 0
    assert host.recorded_commands[1:4] == ["update ours.sources ", "sleep 2", "update ours.sources "]


def test_where_the_driver_is_gone_what_the_archive_has_is_reported(host: DriverJobHost) -> None:
    rows = " nvidia-driver-cuda | 595.45.04-1 | http://a.example/cuda  Packages\n"
    host.set_answers(simulated=NO_WAY, offered=rows)
    assert run_look_job(host).returncode == 0
    assert read_look_report(host) == ("archive", NO_WAY.strip(), ("nvidia-driver-cuda", "595.45.04-1"))


def test_interrupted_installations_are_ended_once_the_lock_is_free(host: DriverJobHost) -> None:
    host.set_answers(locked="dpkg: error: dpkg frontend lock was locked by another process\n")
    assert run_look_job(host).returncode == 0
    assert host.recorded_commands[:3] == ["dpkg --configure -a", "sleep 2", "dpkg --configure -a"]


def test_an_installation_that_cannot_be_ended_is_reported_and_left_to_apt(host: DriverJobHost) -> None:
    host.set_answers(half="dpkg: error processing package nvidia-kernel-open-dkms\n")
    done = run_look_job(host)
    assert done.returncode == 0
    assert "dpkg: error processing package nvidia-kernel-open-dkms" in done.stdout
    assert host.done.exists()


DEBIAN = "Debian http://a.example/debian trixie /usr/share/keyrings/debian.gpg\n"
UBUNTU = "Ubuntu http://b.example/ubuntu noble -----BEGIN PGP PUBLIC KEY BLOCK-----\n"


def test_a_component_is_switched_on_for_the_distributions_own_archives(host: DriverJobHost) -> None:
    host.set_answers(
        targets=f"{DEBIAN}{DEBIAN}{UBUNTU}NVIDIA http://c.example/cuda / /etc/key.gpg\n", components="main\n"
    )
    assert run_look_job(host, component="restricted").returncode == 0
    assert (host.root / "component.sources").read_text().split("\n\n") == [
        "Types: deb\nURIs: http://a.example/debian\nSuites: trixie\nComponents: restricted\n"
        "Signed-By: /usr/share/keyrings/debian.gpg",
        "Types: deb\nURIs: http://b.example/ubuntu\nSuites: noble\nComponents: restricted",
        "",
    ]
    # and read, before anything is asked of it
    verbs = [line.split()[0] for line in host.recorded_commands]
    assert "update" in verbs[verbs.index("indextargets") + 1 : verbs.index("simulate")]


def test_a_component_that_is_there_is_left_as_it_is(host: DriverJobHost) -> None:
    assert run_look_job(host, component="contrib").returncode == 0
    assert not (host.root / "component.sources").exists()


def test_through_a_mirror_only_that_and_our_archive_are_read(host: DriverJobHost) -> None:
    (host.root / "ours.sources").touch()
    done = run_look_job(host, made=WIDE, component="contrib")
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.recorded_commands[-2] == "update distribution.sources ours.sources "
    assert not (host.root / "component.sources").exists()
    (sources,) = host.root.glob("tmp/*/distribution.sources")
    assert "URIs: http://a/debian\n" in sources.read_text()
    assert "Components: main" in sources.read_text()
    assert " contrib\n" in sources.read_text()


HEADERS = "Inst linux-kbuild-6.12 (6.12.94 Debian [amd64])\nInst linux-headers-amd64 (6.12 Debian [amd64])\n"


def test_headers_come_first_and_are_ours(host: DriverJobHost) -> None:
    host.set_answers(headers=f"{HEADERS}Inst libc6 [2.40] (2.41 Debian [amd64])\n")
    assert run_look_job(host, first=("linux-headers-amd64",)).returncode == 0
    assert host.recorded_commands[2:] == [
        "simulate linux-headers-amd64",
        "install linux-headers-amd64",
        f"simulate linux-headers-{KERNEL}",
        f"install linux-headers-{KERNEL}",
        f"simulate {WORDS}",
    ]
    assert set(host.ledger_lines) == {"package curl", "package linux-kbuild-6.12", "package linux-headers-amd64"}
    installed = [line for line in (host.root / "arguments").read_text().splitlines() if " -y " in line]
    assert all(" --no-remove --no-install-recommends " in line for line in installed)


def test_headers_of_a_kernel_that_the_archive_has_dropped_are_a_note(host: DriverJobHost) -> None:
    host.set_answers(headers=HEADERS, broken=f"^install linux-headers-{KERNEL}")
    done = run_look_job(host, first=("linux-headers-amd64",))
    assert done.returncode == 0
    assert "note: no headers for the kernel that runs" in done.stdout
    assert host.done.exists()


def test_headers_of_the_next_kernel_are_needed_and_what_did_not_come_is_not_ours(host: DriverJobHost) -> None:
    host.set_answers(headers=HEADERS, broken="^install linux-headers-amd64")
    assert run_look_job(host, first=("linux-headers-amd64",)).returncode != 0
    assert (host.ledger_lines, host.done.exists()) == (["package curl"], False)


@pytest.mark.parametrize(
    ("simulated", "whole", "how"),
    [(NO_WAY, True, "kept"), (NO_WAY, False, "archive"), (WOULD, True, "archive")],
    ids=["dropped", "dropped, and a file is another one", "still there"],
)
def test_a_driver_that_the_archive_has_dropped_comes_from_whole_files(host, simulated, whole, how):
    kept = host.add_kept_files("kept", libcuda1=b"x")
    if not whole:
        (kept / "libcuda1.deb").write_bytes(b"y")
    host.set_answers(simulated=simulated, simulated_kept="Inst libcuda1 (595.58.03-1 local-deb [amd64])\n")
    assert run_look_job(host, kept=kept).returncode == 0
    assert (f"simulate {kept}/libcuda1.deb old-" in host.recorded_commands) is (how == "kept")
    said = "Inst libcuda1 (595.58.03-1 local-deb [amd64])" if how == "kept" else simulated.strip()
    assert read_look_report(host) == (how, said)


IMAGE = "Inst linux-image-6.8.0-45-generic (6.8.0-45.45 Ubuntu:24.04/noble [amd64])\n"


@pytest.mark.parametrize(
    ("simulated", "kernel", "how"),
    [
        (IMAGE, "linux-image-generic", "kernel"),
        (IMAGE.replace("image-", "image-unsigned-"), "linux-image-generic", "kernel"),
        (IMAGE, "", "archive"),
        (WOULD, "linux-image-generic", "archive"),
        (NO_WAY, "linux-image-generic", "archive"),
    ],
    ids=["a kernel comes", "unsigned", "and the host builds modules", "none comes", "apt finds no way"],
)
def test_where_modules_bring_a_kernel_its_metapackage_brings_what_else_is_of_it(host, simulated, kernel, how):
    host.set_answers(simulated=simulated, simulated_kernel=f"{IMAGE}{WOULD}")
    assert run_look_job(host, kernel=kernel).returncode == 0
    said = f"{IMAGE}{WOULD}" if how == "kernel" else simulated
    assert read_look_report(host) == (how, said.strip())
    assert (f"simulate {WORDS} linux-image-generic" in host.recorded_commands) is (how == "kernel")


def release(root: Path) -> tuple[list[str], str]:
    """Let go of a driver in a folder: the orders to programs, and the output."""
    write_stand_in(
        root / "bin", "systemctl", f'[ "$1" = is-enabled ] && echo static || echo "systemctl $*" >> {root}/asked'
    )
    # the second try gets the lock
    waits = f"[ -e {root}/tried ] || {{ touch {root}/tried; exit 1; }}"
    unhold = f'{waits}\necho "apt-mark $*" >> {root}/asked; : > {root}/holds'
    write_stand_in(root / "bin", "apt-mark", f'[ "$1" != showhold ] || {{ cat {root}/holds; exit; }}\n{unhold}')
    write_stand_in(root / "bin", "sleep", "true")
    (root / "holds").write_text("libcuda1:amd64\nnvidia-driver-cuda\ntheirs\n")
    (root / "asked").touch()
    script = render(
        "nvidia_driver/release.sh.j2",
        power=root / "units/rigwright-power.service",
        power_unit="rigwright-power.service",
        driver_files=[root / "etc/rigwright-nvidia", root / "units/rigwright-power.service"],
        driver_store=root / "state/driver",
        driver_records=[root / "etc/driver.json"],
        preferences=root / "etc/preferences",
        persistence_link=root / "units/persistence",
    )
    done = short_programs.run_program(["sh", "-c", script], env={"PATH": f"{root}/bin:{os.environ['PATH']}"})
    assert done.returncode == 0
    return (root / "asked").read_text().splitlines(), done.stdout + done.stderr


def test_letting_go_takes_our_files_holds_and_limits_and_nothing_else(tmp_path: Path) -> None:
    ours = ("etc/rigwright-nvidia", "etc/driver.json", "units/rigwright-power.service", "etc/preferences")
    ours += ("units/persistence",)
    kept = ("state/driver/595.71.05/libcuda1.deb", "state/driver/installed")
    theirs = ("etc/theirs", "units/theirs.service", "state/owned", "state/drivers/x")
    for name in (*ours, *kept, *theirs):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "state/driver/held").write_text("libcuda1\ngone\nnvidia-driver-cuda\n")
    asked, said = release(tmp_path)
    assert asked == [
        "apt-mark -qq unhold libcuda1 nvidia-driver-cuda",
        "systemctl disable --quiet --now rigwright-power.service",
        "systemctl daemon-reload",
    ]
    assert said == ""
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {one for one in left if not one.startswith("bin/")} - {"asked", "holds", "tried"} == set(theirs)


def test_a_host_without_a_driver_of_ours_has_nothing_to_let_go(tmp_path: Path) -> None:
    assert release(tmp_path) == (["systemctl daemon-reload"], "")
