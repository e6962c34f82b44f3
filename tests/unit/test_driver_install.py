"""The job that installs a driver: fetched packages are compared first, kept once, and recorded as ours if they came."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.driver_job_host import DriverJobHost
from tests.unit.rendered_scripts import write_stand_in

VERSION = "595.71.05"
RUNS, NEXT = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"
CUDA, LIBRARY = f"nvidia-driver-cuda_{VERSION}-1_amd64", f"libcuda1_{VERSION}-1_amd64"
NAMES = ("nvidia-driver-cuda", "libcuda1")
TARGETS = (f"nvidia-driver-cuda={VERSION}-1", "old-")
WORDS = " ".join(TARGETS)


@pytest.fixture
def host(tmp_path: Path) -> DriverJobHost:
    made = DriverJobHost(tmp_path)
    for name in (CUDA, LIBRARY):
        made.add_archive_deb(name)
    for kernel in (RUNS, NEXT):
        (tmp_path / "modules" / kernel).write_text(f"{VERSION}\n")
    return made


def install(host: DriverJobHost, **changes: Any) -> subprocess.CompletedProcess[str]:
    hashes = [(name, host.add_archive_deb(file)) for name, file in zip(NAMES, (CUDA, LIBRARY), strict=True)]
    values = {
        "targets": TARGETS,
        "names": NAMES,
        "hashes": hashes,
        "fresh": NAMES,
        "kernels": (RUNS, NEXT),
        "newest": NEXT,
    }
    return host.run_job("install", **values | changes)


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_driver_is_fetched_compared_kept_written_down_and_installed(host: DriverJobHost) -> None:
    done = install(host)
    assert (done.returncode, done.stderr) == (0, "")
    assert host.recorded_commands == [f"fetch {WORDS}", f"install {WORDS}"]
    assert host.ledger_lines == ["package curl", "package nvidia-driver-cuda", "package libcuda1"]
    assert host.done.exists()
    kept = host.store / VERSION
    assert set(files(kept)) == {f"{CUDA}.deb", f"{LIBRARY}.deb", "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=kept, check=True)
    # fetched files are not left
    assert [path.name for path in host.store.iterdir()] == [VERSION]


def test_apt_takes_what_was_fetched_downgrades_and_asks_nothing(host: DriverJobHost) -> None:
    install(host)
    fetch, put = (host.root / "arguments").read_text().splitlines()
    for words in (fetch, put):
        assert f"Dir::Cache::Archives={host.store}/fetched." in words
        for word in ("-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"):
            assert f" {word} " in words
        assert "DPkg::Lock::Timeout=600" in words
        assert "Dpkg::Options::=--force-confold" in words
    assert "--download-only" not in put


@pytest.mark.parametrize("name", [LIBRARY, f"libcuda1_{VERSION}-1_i386"], ids=["its own", "another architecture's"])
def test_a_file_that_is_not_the_locked_one_is_refused_before_anything_is_installed(host, name):
    hashes = [(one, host.add_archive_deb(file)) for one, file in zip(NAMES, (CUDA, LIBRARY), strict=True)]
    found = host.add_archive_deb(name, b"another one")
    done = host.run_job("install", targets=TARGETS, names=NAMES, hashes=hashes, fresh=NAMES)
    assert done.returncode == 1
    assert f"{name}.deb is not the locked file: {found}" in done.stdout
    assert (host.recorded_commands, host.ledger_lines) == ([f"fetch {WORDS}"], ["package curl"])
    assert (list(host.store.iterdir()), host.done.exists()) == ([], False)


@pytest.mark.parametrize("fetched", [True, False])
def test_a_file_that_is_not_there_to_be_compared_is_refused_but_for_one_that_was_kept(host, fetched):
    hashes = [("nvidia-persistenced", "f" * 64)]
    done = install(
        host,
        hashes=hashes,
        names=(*NAMES, "nvidia-persistenced"),
        kept="" if fetched else str(host.add_kept_files("1", one=b"x")),
    )
    assert ("the file of nvidia-persistenced is not there to be compared" in done.stdout) is fetched
    assert done.returncode == int(fetched)
    # files that are kept are named one by one, whatever else there is to install
    assert (f"fetch {host.store}/1/one.deb {WORDS}" in host.recorded_commands) is not fetched


def test_only_the_drivers_own_files_are_kept(host: DriverJobHost) -> None:
    host.add_archive_deb("dkms_3.2.2-1_all")
    host.add_archive_deb(f"libcuda1-more_{VERSION}-1_amd64")
    assert install(host).returncode == 0
    assert set(files(host.store / VERSION)) == {f"{CUDA}.deb", f"{LIBRARY}.deb", "SHA256SUMS"}


def test_a_driver_whose_modules_come_built_is_not_kept(host: DriverJobHost) -> None:
    assert install(host, dkms=False).returncode == 0
    assert host.recorded_commands == [f"fetch {WORDS}", f"install {WORDS}"]
    assert list(host.store.iterdir()) == []


def test_an_archive_that_does_not_do_leaves_the_host_alone(host: DriverJobHost) -> None:
    host.set_answers(broken="^fetch")
    assert (install(host).returncode, host.recorded_commands) == (1, [f"fetch {WORDS}"])
    assert (host.ledger_lines, list(host.store.iterdir())) == (["package curl"], [])


def test_a_file_is_kept_once_and_counts_as_new_when_it_is_used(host: DriverJobHost) -> None:
    kept = host.add_kept_files(VERSION, one=b"as it was")
    before = files(kept)
    newer = host.add_kept_files("610.43.02")
    os.utime(kept, (1, 1))
    assert (install(host).returncode, files(kept)) == (0, before)
    assert kept.stat().st_mtime > newer.stat().st_mtime


def test_half_kept_files_are_kept_anew_and_foreign_ones_stay(host: DriverJobHost) -> None:
    half = host.store / VERSION
    half.mkdir(parents=True)
    (half / "half.deb").write_text("ha")
    (host.store / f"{VERSION}.new").mkdir()
    (host.store / f"{VERSION}.new/older.deb").write_text("x")
    other = host.add_kept_files("580.159.03", libcuda1=b"x")
    (host.store / "held").write_text("libcuda1\n")
    before = files(other)
    assert install(host).returncode == 0
    assert set(files(half)) == {f"{CUDA}.deb", f"{LIBRARY}.deb", "SHA256SUMS"}
    assert files(other) == before
    assert {path.name for path in host.store.iterdir()} == {VERSION, "580.159.03", "held"}


def test_packages_that_did_not_come_are_not_ours(host: DriverJobHost) -> None:
    host.set_answers(broken="^install", there="libcuda1\n")
    assert install(host).returncode != 0
    assert host.ledger_lines == ["package curl", "package libcuda1"]
    assert not host.done.exists()


def test_output_of_an_earlier_job_counts_no_more(host: DriverJobHost) -> None:
    host.done.touch()
    host.set_answers(broken="^fetch")
    install(host)
    assert not host.done.exists()


@pytest.mark.parametrize(
    ("there", "refuses", "asked", "status", "said"),
    [
        ((VERSION, VERSION), "", [], 0, ""),
        (("", VERSION), "", [RUNS], 0, "==> building modules for"),
        (("595.58.03", "595.58.03"), "", [RUNS, NEXT], 0, ""),
        (("", VERSION), RUNS, [RUNS], 0, f"note: no module for {RUNS}, which runs: reboot into {NEXT}"),
        ((VERSION, ""), NEXT, [NEXT], 1, f"driver {VERSION} does not build for {NEXT}, which boots next"),
        (("", ""), f"{RUNS}\n{NEXT}", [RUNS, NEXT], 1, "driver.branch"),
    ],
    ids=["both there", "one is built", "others are built anew", "not for this one", "not for the next", "for none"],
)
@pytest.mark.parametrize("alone", [False, True], ids=["with packages", "modules alone"])
def test_modules_are_built_for_the_kernels_that_run_now_and_next(host, there, refuses, asked, status, said, alone):
    for kernel, version in zip((RUNS, NEXT), there, strict=True):
        path = host.root / "modules" / kernel
        path.write_text(f"{version}\n") if version else path.unlink()
    host.set_answers(refuses=f"{refuses or 'none'}\n")
    (host.root / "dkms/nvidia" / VERSION / "build").mkdir(parents=True)
    (host.root / "dkms/nvidia" / VERSION / "build/make.log").write_text("the compiler's words\n")
    done = install(host, **({"targets": (), "names": (), "hashes": [], "fresh": ()} if alone else {}))
    assert done.returncode == status, done.stdout
    assert said in done.stdout
    assert [line for line in host.recorded_commands if line.startswith("dkms")] == [
        f"dkms autoinstall -k {one}" for one in asked
    ]
    assert host.done.exists() is (status == 0)
    assert ("the compiler's words" in done.stdout) is (status == 1)
    assert any(line.startswith(("install", "fetch")) for line in host.recorded_commands) is not alone


@pytest.mark.parametrize(
    ("line", "uninstalled"),
    [
        (f"nvidia/{VERSION}, {NEXT}, x86_64: installed (Differences between built and installed modules)", "nvidia"),
        (f"nvidia-current, {VERSION}, {NEXT}, x86_64: installed", "nvidia-current"),
        (f"nvidia/{VERSION}, {NEXT}, x86_64: built", ""),
        (f"nvidia/595.58.03, {NEXT}, x86_64: installed", ""),
        (f"zfs/{VERSION}, {NEXT}, x86_64: installed", ""),
    ],
)
def test_a_module_that_dkms_takes_for_installed_and_whose_files_are_gone_is_installed_anew(host, line, uninstalled):
    (host.root / "modules" / NEXT).unlink()
    host.set_answers(dkms_status=f"{line}\n")
    assert install(host).returncode == 0
    first = [f"dkms uninstall -m {uninstalled} -v {VERSION} -k {NEXT}"] if uninstalled else []
    assert [one for one in host.recorded_commands if one.startswith("dkms")] == [*first, f"dkms autoinstall -k {NEXT}"]


def test_prebuilt_modules_are_not_built(host: DriverJobHost) -> None:
    (host.root / "modules" / NEXT).unlink()
    assert install(host, dkms=False).returncode == 0
    assert not [line for line in host.recorded_commands if line.startswith("dkms")]


def test_initial_file_systems_are_made_anew_that_have_not_our_options(host: DriverJobHost) -> None:
    options = host.root / "modprobe.conf"
    options.write_text("blacklist nouveau\n")
    write_stand_in(host.root / "bin", "unmkinitramfs", f'mkdir -p "$2${{0%/bin/*}}" && cp "$1" "$2{options}"')
    for name, packed in {RUNS: "", NEXT: "blacklist nouveau", "6.1.0": "blacklist nouveau\n"}.items():
        (host.root / "boot" / f"initrd.img-{name}").write_text(packed)
    assert install(host).returncode == 0
    made = [line for line in host.recorded_commands if line.startswith("update-initramfs")]
    assert sorted(made) == sorted(f"update-initramfs -u -k {name}" for name in (RUNS, NEXT))


def test_initial_file_systems_are_made_anew_that_precede_settings_of_modules(host: DriverJobHost) -> None:
    (host.root / "settings/dkms.conf").touch()
    for name, seconds in {RUNS: -60, NEXT: 60}.items():
        image = host.root / "boot" / f"initrd.img-{name}"
        image.touch()
        os.utime(image, (image.stat().st_mtime + seconds,) * 2)
    assert install(host).returncode == 0
    made = [line for line in host.recorded_commands if line.startswith("update-initramfs")]
    assert made == [f"update-initramfs -u -k {RUNS}"]


def test_a_box_without_initial_file_systems_needs_none(host: DriverJobHost) -> None:
    (host.root / "modprobe.conf").touch()
    assert install(host).returncode == 0
    assert not [line for line in host.recorded_commands if line.startswith("update-initramfs")]


def test_a_kernel_without_headers_gets_them_before_its_modules_are_built(host: DriverJobHost) -> None:
    (host.root / "modules" / NEXT).unlink()
    (host.root / "headers-of" / NEXT / "build").rmdir()
    host.set_answers(headers=f"Inst linux-headers-{NEXT} (1 Debian [amd64])\n")
    assert install(host, targets=()).returncode == 0
    wanted = f"linux-headers-{NEXT}"
    assert host.recorded_commands == [f"simulate {wanted}", f"install {wanted}", f"dkms autoinstall -k {NEXT}"]
    assert host.ledger_lines == ["package curl", f"package {wanted}"]
    assert host.done.exists()


def test_a_package_that_fails_is_left_to_the_operator_with_what_to_do(host: DriverJobHost) -> None:
    host.set_answers(broken="^install nvidia")
    done = install(host)
    assert done.returncode != 0
    assert "apt-get did not finish: fix what it names above" in done.stdout
    assert not host.done.exists()
