"""The check that a box makes of itself, over a folder that stands in for the host's root."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from checks.check_catalogue import list_checks
from checks.survey.host import self_check as survey_program
from cli import main as command
from cli.check_history import describe_event
from rigwright.monitoring import self_check
from rigwright.monitoring.self_check_history import parse_event, parse_history
from rigwright.plan.self_check_declaration import render_self_check, self_check_digest
from rigwright.render import render
from rigwright.weights.verification import records_folder
from roles.self_check.host import judgements, observed_host, run
from tests.unit.channel_records import channel_lines_of
from tests.unit.deployed_folder import CHAT, LEASE, PACKAGES, RIG, STATE, UNITS, DeployedFolder, write_below_file_system
from tests.unit.rendered_scripts import write_stand_in


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeployedFolder:
    made = DeployedFolder(tmp_path)
    monkeypatch.setattr(observed_host, "show_units", made.show)
    return made


FAULTS: dict[str, tuple[Callable[[DeployedFolder], object], set[str]]] = {
    "nothing": (lambda host: None, set()),
    "a file of the generation": (lambda host: host.append("etc/rigwright/generations/1/env/chat"), {"G01"}),
    "a mode in the generation": (
        lambda host: (host.root / "etc/rigwright/generations/1/manifest.json").chmod(0o600),
        {"G01"},
    ),
    "an activation that was cut off": (lambda host: host.write("etc/rigwright/activating", "1 2\n"), {"G01"}),
    "no generation": (lambda host: (host.root / "etc/rigwright/current").unlink(), {"G01"}),
    "a unit of our own": (lambda host: host.append(f"{UNITS}/rigwright_rehash.timer"), {"U01"}),
    "a masked unit": (lambda host: host.change(CHAT, LoadState="masked"), {"U01"}),
    "a unit from elsewhere": (lambda host: host.change(CHAT, FragmentPath="/run/systemd/system/x"), {"U01"}),
    "a unit that is no link": (
        lambda host: ((host.root / UNITS / CHAT).unlink(), host.write(f"{UNITS}/{CHAT}", "[Unit]\n")),
        {"U01"},
    ),
    "a drop-in": (lambda host: host.change(CHAT, DropInPaths="/run/x.conf"), {"U02"}),
    "an older unit in force": (lambda host: host.change(CHAT, NeedDaemonReload="yes"), {"G02"}),
    "no start at a boot": (
        lambda host: (host.root / UNITS / "multi-user.target.wants/rigwright.target").unlink(),
        {"U04"},
    ),
    "an instance that has failed": (
        lambda host: host.change(CHAT, ActiveState="failed", SubState="failed", Result="exit-code"),
        {"S01"},
    ),
    "an instance that fails again and again": (
        lambda host: host.change(CHAT, ActiveState="activating", SubState="auto-restart"),
        {"S01"},
    ),
    "an instance that starts": (lambda host: host.change(CHAT, ActiveState="activating", SubState="start-post"), set()),
    "an instance that was stopped by hand": (
        lambda host: (host.write("etc/rigwright/stopped/chat", ""), host.change(CHAT, ActiveState="inactive")),
        set(),
    ),
    "another start than recorded": (lambda host: host.write(f"run/rigwright/{CHAT}", "0\n"), {"S02"}),
    "a port without a socket": (
        lambda host: host.change("rigwright_listener-8020.socket", ActiveState="failed"),
        {"U09"},
    ),
    "a port without a holder": (lambda host: host.write("proc/1/net/tcp", "sl\n"), {"S04", "Q04"}),
    "an exporter that is down": (lambda host: host.change("rigwright_node.service", ActiveState="inactive"), {"Q01"}),
    "settings of a program that watches": (lambda host: host.append("etc/rigwright/monitoring/gpu.py"), {"Q02"}),
    "its own timer is off": (lambda host: host.change(self_check.TIMER, ActiveState="inactive"), {"Y01"}),
    "bytes behind the same times": (write_below_file_system, {"Y03"}),
    "its own program": (lambda host: host.append("etc/rigwright/self_check/rigwright_self_check/run.py"), {"Y02"}),
    "a file that others may write": (
        lambda host: (host.root / "etc/rigwright/self_check/__main__.py").chmod(0o666),
        {"Y02"},
    ),
    "weights that are gone": (lambda host: (host.root / host.weight.absolute[1:]).unlink(), {"W01"}),
    "weights that were changed": (lambda host: host.append(host.weight.absolute[1:]), {"W01"}),
    "weights without a record": (
        lambda host: (host.root / records_folder(RIG.roots)[1:] / host.weight.record).unlink(),
        {"W06"},
    ),
    "a package that is half installed": (
        lambda host: host.packages(
            {**dict.fromkeys(PACKAGES, ("install", "installed", "1")), "x": ("install", "unpacked", "1")}
        ),
        {"B03"},
    ),
    "a package that is gone": (
        lambda host: host.packages(dict.fromkeys(PACKAGES[1:], ("install", "installed", "1"))),
        {"B04"},
    ),
    "another driver than deployed": (
        lambda host: host.write(
            "etc/rigwright/driver.json", json.dumps({"version": "580.95", "packages": {"nvidia-x": "1"}})
        ),
        {"N14"},
    ),
    "a driver that is not held": (
        lambda host: host.write("var/lib/rigwright/driver/held", f"{PACKAGES[0]}\n"),
        {"N15"},
    ),
    "another module": (lambda host: host.write("proc/driver/nvidia/version", "NVRM version: 570.1\n"), {"N02"}),
    "no module": (lambda host: (host.root / "proc/driver/nvidia/version").unlink(), {"N02"}),
    "a card that is away": (lambda host: shutil.rmtree(host.root / "proc/driver/nvidia/gpus/0000:01:00.0"), {"N01"}),
    "a file system that is not mounted": (
        lambda host: host.write(
            "etc/fstab", "# x\nUUID=1 /srv/models ext4 defaults 0 2\nUUID=2 /home ext4 noauto 0 2\n"
        ),
        {"M05"},
    ),
    "a file system that cannot be written": (
        lambda host: host.write(
            "proc/1/mountinfo", "1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / /opt ro - ext4 /dev/y rw\n"
        ),
        {"O08"},
    ),
    "a folder of ours that is gone": (lambda host: (host.root / "opt/rigwright").rmdir(), {"O08"}),
    "a list of packages that cannot be read": (lambda host: (host.root / "var/lib/dpkg/status").unlink(), {"B03"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_fails_its_check_and_no_other(host: DeployedFolder, fault: str) -> None:
    change, checks = FAULTS[fault]
    change(host)
    assert host.failing() == checks, host.state


def test_its_checks_are_those_of_the_catalogue_with_their_severity() -> None:
    known = {one.id: one.severity for one in list_checks()}
    sources = [judgements.__file__, run.__file__]
    text = "".join(Path(source).read_text() for source in sources)
    text += json.dumps(
        list(json.loads(render_self_check(RIG, "debian-12")[self_check.declaration_path(RIG.roots)])["files"].values())
    )
    found = re.findall(r'"([A-Z][0-9]{2})",\s*"(critical|high|low)"', text)
    assert len(found) > 20
    assert [(check, level) for check, level in found if known.get(check) != level] == []


def test_a_second_run_reads_no_file_again(host: DeployedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    host.run()
    first = json.loads((host.root / STATE / "cache.json").read_text())
    monkeypatch.setattr(observed_host.hashlib, "sha256", hashlib.sha256)
    read: list[str] = []
    real = observed_host.Host.read
    monkeypatch.setattr(
        observed_host.Host, "read", lambda self, path, *most: read.append(path) or real(self, path, *most)
    )
    host.run()
    assert json.loads((host.root / STATE / "cache.json").read_text()) == first
    assert not [path for path in read if path.startswith(("/etc/systemd", "/var/lib/dpkg", "/srv"))]
    assert "/etc/rigwright/generations/1/env/chat" not in read


def test_a_fault_is_a_metric_and_both_changes_are_history(host: DeployedFolder) -> None:
    metrics = host.root / "var/lib/rigwright/metrics/self_check.prom"
    host.run()
    assert "failed{" not in metrics.read_text()
    host.change(CHAT, DropInPaths="/run/x.conf")
    host.run()
    assert 'rigwright_self_check_failed{check="U02",level="critical",part=""} 1' in metrics.read_text()
    since = host.state["failing"][0]["since"]
    host.run()
    assert host.state["failing"][0]["since"] == since
    host.shown.clear()
    host.run()
    assert "failed{" not in metrics.read_text()
    assert [(one.outcome, len(one.failed), len(one.recovered)) for one in host.history] == [
        ("ok", 0, 0),
        ("failing", 1, 0),
        ("ok", 0, 1),
    ]
    rows = [row for one in host.history for row in describe_event(one)]
    assert [row[1:] for row in rows] == [
        ("", "ok", "first run"),
        ("U02", "fails", "drop-in /run/x.conf"),
        ("U02", "ok again", "drop-in /run/x.conf"),
    ]
    modes = {path.name: f"{path.stat().st_mode & 0o777:o}" for path in (host.root / STATE).iterdir()}
    assert modes == {"state.json": "640", "cache.json": "640", "history.jsonl": "640"}
    assert metrics.stat().st_mode & 0o777 == 0o644


def test_an_instance_that_fails_again_and_again_is_one_line_of_history_until_it_serves(host: DeployedFolder) -> None:
    host.run()
    states = [
        ("activating", "auto-restart", "exit-code"),
        ("activating", "start", "success"),
        ("deactivating", "stop-sigterm", "exit-code"),
        ("failed", "failed", "exit-code"),
        ("failed", "failed", "start-limit-hit"),
        ("active", "running", "success"),
    ]
    for active, sub, result in states:
        host.change(CHAT, ActiveState=active, SubState=sub, Result=result)
        host.run()
    text = f"chat: {CHAT} is activating (auto-restart, exit-code)"
    rows = [row[1:] for one in host.history for row in describe_event(one)]
    assert rows == [("", "ok", "first run"), ("S01", "fails", text), ("S01", "ok again", text)]


def test_without_the_folder_of_node_exporter_there_is_a_result(host: DeployedFolder) -> None:
    (host.root / "var/lib/rigwright/metrics").rmdir()
    assert host.failing() == set()


def test_while_the_deploy_lock_is_held_the_last_result_stays(host: DeployedFolder) -> None:
    host.change(CHAT, DropInPaths="/run/x.conf")
    host.run()
    host.write(LEASE, json.dumps({"who": "ana@desk", "pid": 7, "since": "noon", "doing": "deploy of rig.py"}) + "\n")
    with (host.root / LEASE).open("a") as lease:
        fcntl.flock(lease, fcntl.LOCK_EX)
        host.change("rigwright.target", ActiveState="inactive")
        host.run()
        host.run()
        assert (host.state["outcome"], [one["check"] for one in host.state["failing"]]) == ("skipped", ["U02"])
    assert [one.outcome for one in host.history] == ["failing", "skipped"]
    assert host.history[-1].reason == "deploy of rig.py holds the deploy lock since noon (ana@desk)"
    host.shown.clear()
    # a lock that no process holds any more does not count
    assert host.failing() == set()


def test_during_an_activation_that_goes_on_alone_nothing_is_decided(host: DeployedFolder) -> None:
    host.change("rw-job-activate.service", ActiveState="activating")
    host.change(CHAT, ActiveState="inactive")
    assert host.failing() == set()
    assert (host.state["outcome"], host.state["reason"]) == ("skipped", "an activation is running")


@contextmanager
def record_lock(path: Path, call: str) -> Iterator[None]:
    """A process holds a lock of fcntl(2) on a file, or one of flock(2)."""
    program = f"import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.{call}(f, 2); print(1, flush=True); input()"
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline()
        yield
        holder.kill()


def test_a_transaction_of_packages_is_waited_for(host: DeployedFolder) -> None:
    path = host.root / "var/lib/dpkg/lock-frontend"
    host.write("var/lib/dpkg/lock-frontend", "")
    slept: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(record_lock(path, "lockf"))

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 4:
                stack.close()

        host.run(sleep)
    assert (len(slept), host.state["outcome"]) == (4, "ok")
    with record_lock(path, "lockf"):
        host.run()
    assert (host.state["outcome"], host.state["reason"]) == ("skipped", "packages are being changed")
    # a lock of another kind is not dpkg's
    with record_lock(path, "flock"):
        host.run()
    assert host.state["outcome"] == "ok"


def test_an_undecidable_predicate_does_not_hold(host: DeployedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def show(names: Sequence[str]) -> dict[str, dict[str, str]]:
        raise observed_host.Unreadable("systemctl does not answer")

    monkeypatch.setattr(observed_host, "show_units", show)
    assert host.failing() == {"Y01"}


@pytest.mark.parametrize("left", ["", "{", '{"failing": 3', "[]", "null"])
def test_a_file_cut_off_by_a_full_disk_spoils_no_run(host: DeployedFolder, left: str) -> None:
    for name in ("state.json", "cache.json"):
        host.write(f"{STATE}/{name}", left)
    assert host.failing() == set()


def test_of_a_history_a_line_that_was_cut_off_is_left_out(host: DeployedFolder) -> None:
    host.run()
    (line,) = (host.root / STATE / "history.jsonl").read_text().splitlines()
    odd = line.replace('"time": ', '"time": 1e99')
    told = channel_lines_of([("run", line), ("run", line[:40]), ("run", odd), ("run", line)])
    assert parse_history(told) == (parse_event(line),) * 2


def test_the_history_is_two_files_of_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HISTORY_BYTES", 2000)
    for number in range(100):
        run.append_history(str(tmp_path), json.dumps({"number": number, "text": "x" * 80}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.1.jsonl", "history.jsonl"]
    texts = [(tmp_path / name).read_text() for name in ("history.1.jsonl", "history.jsonl")]
    assert max(map(len, texts)) <= 2000
    numbers = [json.loads(line)["number"] for text in texts for line in text.splitlines()]
    assert numbers == [*range(numbers[0], 100)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("name", [self_check.SERVICE, *self_check.STARTERS])
def test_systemd_finds_nothing_in_its_units(tmp_path: Path, name: str) -> None:
    for path, text in self_check.render_self_check_units(RIG).items():
        (tmp_path / Path(path).name).write_text(text.replace("/usr/bin/python3", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / name], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_the_unit_waits_longer_than_its_program() -> None:
    (service,) = [text for path, text in self_check.render_self_check_units(RIG).items() if path.endswith(".service")]
    (limit,) = re.findall("TimeoutStartSec=([0-9]+)", service)
    assert int(limit) > run.SETTLE_S + run.PATIENCE_S + run.POLL_S


def test_the_program_imports_what_lies_beside_it(host: DeployedFolder) -> None:
    folder = host.root / "etc/rigwright/self_check"
    done = subprocess.run(
        ["python3", "-I", "-S", "-B", folder, "/nowhere"], capture_output=True, text=True, check=False, timeout=30
    )
    assert "JSONDecodeError" in done.stderr


@pytest.mark.parametrize("active", [True, False])
def test_a_probe_tells_what_a_deploy_has_left(host: DeployedFolder, active: bool) -> None:
    word = "echo active; echo active" if active else "echo active; echo inactive"
    write_stand_in(
        host.root / "bin", "systemctl", f"case $1 in is-active) {word} ;; *) echo enabled; echo enabled ;; esac"
    )
    values = self_check.self_check_state_values(RIG)
    files = [f"{host.root}{path}" for path in self_check.self_check_paths(RIG.roots)]
    script = 'fact() { printf "%s" "$2"; }\n' + render(
        "self_check/state.sh.j2", **{**values, "self_check_files": files}
    )
    environment = {"PATH": f"{host.root}/bin:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == (self_check_digest(RIG, "debian-12") if active else "")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "x"}', '{"run": 1, "failing": [{}], "outcome": "ok"}'])
def test_a_survey_marks_a_missing_result(host: DeployedFolder, text: str) -> None:
    host.run()
    path = host.root / STATE / "state.json"
    asked = {
        "result": str(path),
        "full_read": str(host.root / "none"),
        "declaration": str(host.root / "none"),
        "files": [str(host.root / "none")],
        "folder": str(host.root),
    }
    assert survey_program.look(asked)["unreadable"] == ""
    path.write_text(text)
    found = survey_program.look(asked)
    assert (found["result"], found["deployed"], found["files"]) == (None, 0.0, {asked["files"][0]: ""})
    assert found["unreadable"]
    path.unlink()
    assert survey_program.look(asked)["unreadable"] == ""


@pytest.mark.parametrize("option", ["--only=U01", "--severity=high", "--deep", "-v", "--junit=x.xml"])
def test_a_history_is_no_run_of_checks(tmp_path: Path, option: str) -> None:
    (tmp_path / "rig.py").touch()
    done = CliRunner().invoke(command, ["check", str(tmp_path / "rig.py"), "--history", option])
    assert (done.exit_code, "--history allows only --limit and --json" in done.output) == (2, True)
