"""Repairs of a deploy's own state: the allowed changes, and their script."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checks import Drift
from checks.automatic_repairs import DriftedCheck, find_repairs
from checks.service_processes import expect_no_unit_faults
from checks.survey.answers import SurveyAnswers
from checks.survey.section import SurveyScope
from checks.survey.units import SystemdEntry, UnitSurvey, expected_units
from rigwright.model.roots import Roots
from rigwright.plan.repairs import SET_ACCESS, Repair, is_added_path, parse_repair_report, render_repairs
from tests.unit.host_states import rig_target_state
from tests.unit.samples import sample_build, sample_facts, sample_instance, sample_rig


@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/rigwright-chat.service.d/x.conf",
        "/run/systemd/system.control/rigwright.slice.d/50-MemoryMax.conf",
        "/etc/systemd/system.control/rigwright-chat2.service",
        "/run/systemd/system/rigwright-.service.d/x.conf",
        "/etc/systemd/system/rigwright_gateway-8000.socket.d/a b.conf",
        "/etc/systemd/system/rigwright-chat.service.requires/never.service",
        "/run/systemd/transient/rigwright_share.service.d/x.conf",
    ],
)
def test_files_below_a_unit_name_of_ours_are_removed(path: str) -> None:
    assert is_added_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/systemd/system/service.d/x.conf",
        "/etc/systemd/system/ssh.service.d/rigwright-chat.service",
        "/etc/systemd/system/multi-user.target.wants/rigwright.target",
        "/etc/systemd/system/rigwrightish.service.d/x.conf",
        "/etc/systemd/system/rigwright-chat.service.d/../../../../shadow",
        "/etc/systemd/system/rigwright-chat.service.d/..",
        "/etc/systemd/system/rigwright-chat.service.d/x/y.conf",
        "/etc/systemd/system/rigwright-chat.service.d/x\n.conf",
        "/srv/systemd/system/rigwright-chat.service.d/x.conf",
        "/etc/systemd/system",
    ],
)
def test_files_elsewhere_do_not_count(path: str) -> None:
    assert not is_added_path(path)
    with pytest.raises(ValueError, match="is no repair"):
        Repair("remove", path)


@pytest.mark.parametrize(
    "words",
    [
        ("restart", "ssh.service"),
        ("restart", "../locks"),
        ("reload", "rigwright_gateway.service/../x"),
        ("open", "/run/rigwright/../../etc/shadow", "0600", "root:root"),
        ("open", "relative", "0600", "root:root"),
        ("open", "/run/rigwright/router", "u+s", "root:root"),
        ("open", "/run/rigwright/router", "0600", "root"),
        ("open", "/run/rigwright/router", "0600", "--reference=/x:root"),
    ],
)
def test_a_repair_of_anything_else_does_not_count(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="is no repair"):
        Repair(*words)  # type: ignore[arg-type]


def run_script(folder: Path, *repairs: Repair, complains: bool = False) -> list[str]:
    """The script, with the host's folders below another one, and a systemctl that writes down its words."""
    roots = Roots.model_construct(state=f"{folder}/state")
    script = render_repairs(roots, repairs)
    for place in ("/etc/systemd", "/run/systemd", "/run/rigwright"):
        script = script.replace(place, f"{folder}{place}")
    program = folder / "bin/systemctl"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
    program.chmod(0o755)
    path = f"{program.parent}:/usr/bin:/bin"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env={"PATH": path}, check=True)
    assert bool(done.stderr) == complains
    return done.stdout.splitlines()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_drop_in_is_copied_for_root_alone_and_removed_with_its_folder(tmp_path: Path) -> None:
    lying = write(tmp_path / "etc/systemd/system/rigwright-chat.service.d/x.conf", "[Service]\nNice=1\n")
    (tmp_path / "state").mkdir()
    said = run_script(tmp_path, Repair("remove", "/etc/systemd/system/rigwright-chat.service.d/x.conf"))
    report = parse_repair_report(said)
    ((path, copy),) = report.copies
    assert report.completed == {("remove", str(lying))}
    assert path == str(lying)
    assert not lying.parent.exists()
    assert lying.parent.parent.exists()
    assert Path(copy).read_text() == "[Service]\nNice=1\n"
    assert (Path(copy).stat().st_mode & 0o777, Path(copy).parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert f"file {copy}" in (tmp_path / "state/owned").read_text().splitlines()
    assert "daemon-reload" in (tmp_path / "asked").read_text()


def test_systemds_own_folder_stays_when_a_unit_file_in_it_was_the_last(tmp_path: Path) -> None:
    # without /run/systemd/system programs take the host for one that systemd has not booted
    mask = tmp_path / "run/systemd/system/rigwright-chat.service"
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    (tmp_path / "state").mkdir()
    said = run_script(tmp_path, Repair("remove", "/run/systemd/system/rigwright-chat.service"))
    ((_, copy),) = parse_repair_report(said).copies
    assert mask.parent.is_dir()
    assert not mask.is_symlink()
    assert Path(copy).read_text() == "/dev/null\n"


def test_a_missing_file_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    report = parse_repair_report(run_script(tmp_path, Repair("remove", "/run/systemd/system/rigwright-chat.service")))
    assert (report.copies, len(report.completed)) == ((), 1)


def test_each_complete_repair_is_reported_and_one_that_failed_is_not(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    record = tmp_path / "run/rigwright/rigwright-code.service"
    record.mkdir(parents=True)  # rm -f leaves a folder
    repairs = [
        Repair("restart", "rigwright-chat.service"),
        Repair("restart", "rigwright-code.service"),
        Repair("open", f"{tmp_path}/missing", "0600", "root:root"),
        Repair("thaw", "rigwright-chat.service"),
    ]
    report = parse_repair_report(run_script(tmp_path, *repairs, complains=True))
    assert report.completed == {("restart", "rigwright-chat.service"), ("thaw", "rigwright-chat.service")}


def test_a_service_is_started_again_by_the_roles_for_its_record_is_gone(tmp_path: Path) -> None:
    record = write(tmp_path / "run/rigwright/rigwright-chat.service", "a" * 64)
    configured = write(tmp_path / "run/rigwright/rigwright_gateway.service.configured", "b" * 64)
    kept = write(tmp_path / "run/rigwright/rigwright_gateway.service", "b" * 64)
    (tmp_path / "state").mkdir()
    run_script(tmp_path, Repair("restart", "rigwright-chat.service"), Repair("reload", "rigwright_gateway.service"))
    assert (record.exists(), configured.exists(), kept.exists()) == (False, False, True)
    assert (tmp_path / "asked").read_text().splitlines() == ["daemon-reload"]


def set_access(path: Path, mode: str = "0750") -> subprocess.CompletedProcess[str]:
    owner = f"{os.getuid()}:{os.getgid()}"
    return subprocess.run(
        [sys.executable, "-I", "-c", SET_ACCESS, str(path), mode, owner], capture_output=True, text=True, check=False
    )


def test_a_path_gets_its_mode(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", write(tmp_path / "file", "")
    folder.mkdir(mode=0o777)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "api.sock"))
        for path in (folder, file, tmp_path / "api.sock"):
            assert set_access(path).returncode == 0
            assert stat.S_IMODE(path.stat().st_mode) == 0o750


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_its_place_is_followed_by_no_repair(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    secret = write(tmp_path / "secret", "")
    secret.chmod(0o600)
    link(tmp_path / "api.sock", secret)
    done = set_access(tmp_path / "api.sock")
    assert done.returncode == 1
    assert "is a link" in done.stderr
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_a_service_is_restarted_for_code_that_a_start_replaces_and_not_for_changed_files() -> None:
    rig = sample_rig(sample_instance(), sample_instance("code", port=8021))
    unit, library = "rigwright-chat.service", "/usr/lib/x86_64-linux-gnu/libgomp.so.1"
    other = "rigwright-code.service"
    scope = SurveyScope(rig, rig_target_state(rig, sample_facts(), sample_build()))

    def repairs(*found: str) -> set[Repair]:
        faults = [(unit, text) for text in found]
        with pytest.raises(Drift) as drift:
            expect_no_unit_faults(faults, "the declared programs", [one for one in faults if one[1] == changed])
        return {*find_repairs(SurveyAnswers({}), scope, DriftedCheck("S21", "", "", "", drift.value))}

    changed = f"{unit} runs {library}: its bytes are not those of libgomp1"
    assert repairs(changed) == set()
    for stale in (
        f"{unit}'s process 7 runs {library}, which was deleted",
        f"{unit}'s process 7 runs code without a file (/memfd:x)",
        f"{unit}'s worker process 8 runs /tmp/x, not /usr/bin/python3",
        # a text that the host has a part in names another service
        f"{unit}'s process 7 runs /tmp/x {other}, which was deleted",
    ):
        assert repairs(stale, changed) == {Repair("restart", unit)}


def test_the_recorder_of_a_start_is_no_addition_to_a_unit() -> None:
    rig = sample_rig(sample_instance())
    scope = SurveyScope(rig, rig_target_state(rig, sample_facts(), sample_build()))
    folder, recorder = "/run/systemd/transient", f"rigwright_memory-chat-{'1' * 32}.service"
    paths = [f"{folder}/{recorder}", f"{folder}/rigwright_memory-chat.service", f"/run/systemd/system/{recorder}"]
    lying = [SystemdEntry(path, "", "") for path in paths]
    units = UnitSurvey({}, lying, "", [], [], {}, {name: {} for name in expected_units(scope)}, {}, {}, [])
    failed = DriftedCheck("U02", "", "", "", Drift("no drop-ins", "one", "x"))
    found = find_repairs(SurveyAnswers({}, _read={"units": units}), scope, failed)
    assert sorted(one.subject for one in found) == sorted(paths[1:])
