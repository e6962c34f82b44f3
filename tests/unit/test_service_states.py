"""Units of systemd's: the shell's collector and Python's fill one type with the same values."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from checks.survey.frontend_services import GateUnit
from checks.survey.host import frontend_services, systemd_properties
from rigwright import render
from rigwright.host.script_output import parse_output
from rigwright.host.service_states import NO_SERVICE, UNIT_SCHEMA, ServiceState, read_service_states
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in

UNIT = "rigwright_share.service"
DIGEST = "0123456789abcdef" * 4
PART = (
    "{% from 'channel.sh.j2' import told %}{% call told() %}{% include 'probe/units.sh.j2' %}unit {{ name }}\n"
    "{% endcall %}"
)
SYSTEMCTL = """case $* in
  show*) printf 'MainPID=%s\\nActiveState=%s\\nNeedDaemonReload=%s\\n' "$PID" "$ACTIVE" "$RELOAD" ;;
  is-enabled*) printf '%s\\n' "$ENABLED" ;;
esac"""
QUESTION: dict[str, Any] = {
    **{"units": [UNIT], "exposed": [], "sharing": UNIT, "settings": {}, "files": [], "logs": "", "links": "/nowhere"},
    **{"out": "/nowhere", "rotation": "/nowhere", "runtime": "/nowhere", "models": "/nowhere"},
}
# (active, enabled, reload), what root wrote down, whether it runs, and whether its program was replaced -> the state
HOSTS: dict[str, tuple[tuple[str, str, bool], str, bool, bool, ServiceState]] = {
    "running": (("active", "enabled", False), f"{DIGEST}\n", True, False, ServiceState("active", "enabled", DIGEST)),
    "replaced": (
        ("active", "enabled", False),
        f"{DIGEST}\n",
        True,
        True,
        ServiceState("active", "enabled", DIGEST, replaced=True),
    ),
    "not read": (
        ("failed", "disabled", True),
        "",
        False,
        False,
        ServiceState("failed", "disabled", reload_needed=True),
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_both_collectors_fill_the_type_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (active, enabled, reload_needed), record, runs, is_replaced, expected = HOSTS[name]
    write_stand_in(tmp_path / "bin", "systemctl", SYSTEMCTL)
    if record:
        (tmp_path / UNIT).write_text(record)
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as process:
        pid = process.pid if runs else 0
        if is_replaced:
            program.unlink()
        words = {"PID": str(pid), "ACTIVE": active, "ENABLED": enabled, "RELOAD": "yes" if reload_needed else "no"}
        script = render._environment().from_string(PART).render(name=UNIT, started_from=str(tmp_path))
        environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", **words}
        done = short_programs.run_program(["sh", "-c", script], env=environment, check=True)
        shown = {"MainPID": pid, "ActiveState": active, "UnitFileState": enabled, "NeedDaemonReload": reload_needed}
        monkeypatch.setattr(systemd_properties, "properties", lambda *_: {UNIT: shown})
        told = frontend_services.look({**QUESTION, "records": str(tmp_path)})["gates"]
        process.kill()
    assert read_service_states(parse_output(done.stdout.splitlines(), UNIT_SCHEMA)) == {UNIT: expected}
    found = TypeAdapter(dict[str, GateUnit]).validate_json(json.dumps(told), strict=True)[UNIT]
    assert ServiceState(**{key: getattr(found, key) for key in ServiceState.__dataclass_fields__}) == expected


@pytest.mark.parametrize(
    ("state", "runs", "settled"),
    [
        (ServiceState("active", "enabled", DIGEST), True, True),
        (NO_SERVICE, False, False),
        (ServiceState("active", "enabled", ""), False, False),
        (ServiceState("activating", "enabled", DIGEST), False, False),
        (ServiceState("active", "enabled", DIGEST, replaced=True), False, False),
        (ServiceState("active", "disabled", DIGEST), True, False),
        (ServiceState("active", "enabled", DIGEST, reload_needed=True), True, False),
    ],
)
def test_a_process_that_runs_is_not_always_settled(state: ServiceState, runs: bool, settled: bool) -> None:
    assert (state.is_running(DIGEST), state.is_settled(DIGEST)) == (runs, settled)
