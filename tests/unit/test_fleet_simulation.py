"""The simulation of many hosts, and the controller's answers about those with a fault."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from benchmarks import fleet_connections
from benchmarks.__main__ import main
from benchmarks.fleet_connections import FleetReport, FleetRow, run_once, simulate, write_fleet, write_inventory
from benchmarks.ssh_simulation import FAULTS
from checks import connections
from checks.connections import ConnectedHost, map_inventory
from checks.survey.collection import take_survey
from roles import deploy_lock, root_shell
from roles.deploy_lock import DeployLock
from tests.unit.samples import sample_rig


@pytest.mark.all_only
def test_hosts_with_a_fault_delay_others_by_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_connections, "LIMIT", 10.0)
    row = FleetRow(120, 10 * len(FAULTS))
    run_once(row)  # checks that each host without a fault answers, and no other
    # twenty hosts hang in their command or send slowly: pools of 16 would need the limit twice
    assert row.ended[0] - row.answered[0] < 2 * fleet_connections.LIMIT


def test_a_report_has_the_processor_of_each_further_host() -> None:
    rows = [FleetRow(1, 0, processor=[1.0, 1.0]), FleetRow(11, 0, processor=[1.1, 1.3])]
    report = FleetReport("today", 2, 1.0, rows)
    assert report.further_ms(rows[1]) == pytest.approx(20.0)


def test_the_numbers_of_simulated_hosts_may_be_large() -> None:
    done = CliRunner().invoke(main, ["fleet-verbs", "--faulty", "1000"])
    assert "--faulty: must be less than --hosts (1000)" in done.output


def test_a_host_that_hangs_sends_slowly_or_refuses_delays_no_look_at_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fleet(tmp_path, 4, 0)
    (tmp_path / "faults").write_text("hang-connect\nslow\n\n")
    events: list[str] = []
    connect = connections.connect_targets

    def connect_all(*arguments: object) -> dict[str, str]:
        gone = connect(*arguments)  # type: ignore[arg-type]
        events.append("all connected")
        return gone

    def look(box: ConnectedHost) -> str:
        try:
            lines = root_shell.run_command(box.target, "echo fine", limit=8.0, whole=8.0).lines
        except root_shell.ConnectionGone as error:
            lines = [type(error).__name__]
        events.append(box.name)
        return lines[0]

    monkeypatch.setattr(connections, "connect_targets", connect_all)
    with simulate(tmp_path) as (ports, _), socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # without listen it refuses
        inventory = write_inventory(tmp_path, [*ports, closed.getsockname()[1]])
        found, gone = map_inventory(str(inventory), None, look)
    assert {box.name: one for box, one in found} == {"n0002": "HostTooSlow", "n0003": "fine", "n0004": "fine"}
    assert {*gone} == {"n0001", "n0005"}
    assert {*events[:2]} == {"n0003", "n0004"}
    assert events[-1] == "all connected"


@pytest.fixture
def silent_hosts(tmp_path: Path) -> Iterator[str]:
    """The inventory of a host that hangs in its command, and of one that sends a byte a second."""
    write_fleet(tmp_path, 2, 0)
    (tmp_path / "faults").write_text("hang-command\nslow")
    with simulate(tmp_path) as (ports, _):
        yield str(write_inventory(tmp_path, ports))


def test_a_survey_ends_with_a_host_whose_probe_does_not(silent_hosts: str) -> None:
    def look(box: ConnectedHost) -> tuple[str, bool]:
        began = time.monotonic()
        with pytest.raises(root_shell.ConnectionGone) as raised:
            take_survey(box.target, sample_rig(), "", Mock(), patience=5.0)
        return type(raised.value).__name__, time.monotonic() - began < 40

    found, _ = map_inventory(silent_hosts, None, look)
    assert [one for _, one in found] == [("ConnectionGone", True), ("HostTooSlow", True)]


def test_a_host_without_an_answer_is_not_refused_for_its_login(
    silent_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deploy_lock, "ANSWER", 2)
    found, _ = map_inventory(silent_hosts, None, lambda box: DeployLock(box.target, "deploy").acquire(0))
    assert {one for _, one in found} == {"no deploy lock: the host did not answer within 2 s"}


class SlowChannel:
    """Stand-in for a channel that takes what is sent only once it is closed."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.close = self.closed.set

    def sendall(self, _data: bytes) -> None:
        assert self.closed.wait(20)

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO()

    makefile_stderr = makefile


def test_a_host_that_takes_the_lock_command_late_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploy_lock, "ANSWER", 1)
    monkeypatch.setattr(root_shell, "start_command", lambda *_: SlowChannel())
    lock = DeployLock(SimpleNamespace(data={}), "deploy")
    assert lock.acquire(0) == "no deploy lock: the host did not answer within 1 s"
