"""The end of a host's connection: its socket is closed, and those to its jump hosts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet_connections import simulate, write_fleet, write_inventory
from checks.connections import map_inventory
from checks.survey_run import SurveyedHost
from tests.unit.ssh_server import run_sshd


def is_open(transport: Any) -> bool:
    """Whether a connection is up."""
    return bool(transport.is_active()) or transport.sock.fileno() >= 0


def release(target: Any) -> None:
    SurveyedHost(target, deep=False).release()


@pytest.mark.parametrize("end", [lambda target: target.disconnect(), release], ids=["disconnect", "release"])
def test_a_host_that_is_done_has_no_open_connection(tmp_path: Path, end: Callable[[Any], None]) -> None:
    write_fleet(tmp_path, 1, 0)
    with simulate(tmp_path) as (ports, _):
        found, gone = map_inventory(str(write_inventory(tmp_path, ports)), None, lambda box: box.target)
        assert not gone
        ((_, target),) = found
        transport = target.connector.client.get_transport()
        assert is_open(transport)
        end(target)
        assert not is_open(transport)
        end(target)  # once more does nothing


def test_the_connections_to_jump_hosts_end_too(tmp_path: Path) -> None:
    write_fleet(tmp_path, 1, 0)
    with simulate(tmp_path) as (ports, _), run_sshd(tmp_path / "jump") as jump:
        (tmp_path / "known").write_text("")
        (tmp_path / "config").write_text(
            f"Host 127.0.0.1\n  ProxyJump root@localhost:{jump.port}\n"
            f"Host localhost\n  IdentityFile {jump.folder}/key\n  StrictHostKeyChecking no\n"
            f"  UserKnownHostsFile {tmp_path}/known\n"
        )
        inventory = write_inventory(tmp_path, ports)
        text = inventory.read_text().replace("**{", f"ssh_config_file={str(tmp_path / 'config')!r}, **{{")
        inventory.write_text(text)
        found, gone = map_inventory(str(inventory), None, lambda box: box.target)
        assert not gone
        ((_, target),) = found
        transport = target.connector.client.get_transport()
        to_jump_host = transport.sock.get_transport()
        assert is_open(to_jump_host)
        target.disconnect()
        assert not is_open(to_jump_host)
        assert not transport.is_active()
