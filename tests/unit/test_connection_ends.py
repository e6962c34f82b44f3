"""The end of a host's connection: its socket is closed, and those to its jump hosts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest
from pyinfra.api.exceptions import ConnectError

from benchmarks.fleet_connections import simulate, write_fleet, write_inventory
from checks.connections import map_inventory
from checks.survey_run import SurveyedHost
from tests.unit.ssh_server import StandInSshd, run_sshd


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


def connect_over_jump_host(folder: Path, ports: list[int], jump: StandInSshd) -> Any:
    """The connected target of an inventory whose only host is reached over a jump host."""
    (folder / "known").write_text("")
    (folder / "config").write_text(
        f"Host 127.0.0.1\n  ProxyJump root@localhost:{jump.port}\n"
        f"Host localhost\n  IdentityFile {jump.folder}/key\n  StrictHostKeyChecking no\n"
        f"  UserKnownHostsFile {folder}/known\n"
    )
    inventory = write_inventory(folder, ports)
    text = inventory.read_text().replace("**{", f"ssh_config_file={str(folder / 'config')!r}, **{{")
    inventory.write_text(text)
    found, gone = map_inventory(str(inventory), None, lambda box: box.target)
    assert not gone
    ((_, target),) = found
    return target


def test_the_connections_to_jump_hosts_end_too(tmp_path: Path) -> None:
    write_fleet(tmp_path, 1, 0)
    with simulate(tmp_path) as (ports, _), run_sshd(tmp_path / "jump") as jump:
        target = connect_over_jump_host(tmp_path, ports, jump)
        transport = target.connector.client.get_transport()
        to_jump_host = transport.sock.get_transport()
        assert is_open(to_jump_host)
        target.disconnect()
        assert not is_open(to_jump_host)
        assert not transport.is_active()


@pytest.fixture
def transports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every connection that is made, to hosts and jump hosts."""
    made: list[Any] = []
    start = paramiko.Transport.start_client

    def start_noted(transport: Any, *arguments: Any, **options: Any) -> None:
        made.append(transport)
        start(transport, *arguments, **options)

    monkeypatch.setattr(paramiko.Transport, "start_client", start_noted)
    return made


def test_a_reconnect_leaves_no_former_connection_open(tmp_path: Path, transports: list[Any]) -> None:
    write_fleet(tmp_path, 1, 0)
    with run_sshd(tmp_path / "jump") as jump:
        with simulate(tmp_path) as (ports, _):
            target = connect_over_jump_host(tmp_path, ports, jump)
            for _ in range(2):
                target.connector.connect()
            assert len(transports) == 6
            assert not any(one.is_active() for one in transports[:4])
            assert all(one.is_active() for one in transports[4:])
        # a jump host that is up, and a host that restarts
        with pytest.raises(ConnectError):
            target.connector.connect()
        assert len(transports) > 6
        assert not any(one.is_active() for one in transports)
