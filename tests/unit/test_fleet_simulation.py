"""The simulation of many hosts, and the controller's answers about those with a fault."""

import pytest

from benchmarks import fleet_connections
from benchmarks.fleet_connections import FleetReport, FleetRow, run_once
from benchmarks.ssh_simulation import FAULTS


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
