"""The nightly full read of a self-check."""

import json
import time
from pathlib import Path

import pytest

from roles.self_check.host import full_read, observed_host
from tests.unit.deployed_folder import STATE, TOOL, DeployedFolder, write_below_file_system


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeployedFolder:
    made = DeployedFolder(tmp_path)
    monkeypatch.setattr(observed_host, "show_units", made.show)
    return made


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_the_full_read_reports_a_raw_write_until_the_file_is_written_again(host: DeployedFolder, kind: str) -> None:
    write_below_file_system(host, kind)
    assert host.failing() == {"Y03"}, host.state
    cache = json.loads((host.root / STATE / "fingerprint_cache.json").read_text())
    assert (cache["files"], cache["memory"]["dpkg"]["moments"]) == ({}, {"tool": 0.0})
    assert host.failing() == {"Y03"}
    (host.root / TOOL).write_text("restored bytes\n")
    assert host.failing() == set()


def test_the_full_read_is_due_once_a_night(host: DeployedFolder) -> None:
    seen = observed_host.Host({}, str(host.root))
    noon = time.mktime((2026, 11, 3, 12, 0, 0, 0, 0, -1))
    due = full_read.last_due(seen, noon)
    assert full_read.FIRST_HOUR <= time.localtime(due).tm_hour < full_read.FIRST_HOUR + full_read.HOURS
    assert full_read.last_due(seen, due - 1) == pytest.approx(due - 86400, abs=3700)
    assert full_read.last_due(seen, due + 1) == due
    host.write("etc/machine-id", "another\n")
    assert full_read.last_due(observed_host.Host({}, str(host.root)), noon) != due


def test_the_full_read_continues_where_the_last_run_ended(
    host: DeployedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_below_file_system(host)
    monkeypatch.setattr(full_read, "READ_S", -1.0)
    assert host.failing() == set()
    record = host.root / STATE / "full_read.json"
    assert json.loads(record.read_text()) == {"changed": [], "next": f"/{TOOL}"}
    monkeypatch.setattr(full_read, "READ_S", 60.0)
    assert host.failing() == {"Y03"}
