"""The wait between a stop and the next start, over stand-ins: real and apparent remains of a unit."""

from pathlib import Path

import pytest

from rigwright.host.systemd import UnitState
from rigwright.serving.activation import Activation
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, serving_host
from tests.unit.rendered_scripts import activation_script, write_stand_in

WAY = Activation((), (CHAT,), (), (UnitState(CHAT, "0" * 64, 8020, frozenset()),))
START = f"restart --no-block {CHAT}"


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host that serves generation 1, with free ports and no other process."""
    made = serving_host(tmp_path)
    write_stand_in(tmp_path / "bin", "ss", "true")
    return made


def run(host: HostFolder, number: int = 2) -> tuple[int, str]:
    script = activation_script(WAY, (), str(host.config), str(host.units)).replace("new=2", f"new={number}")
    done = host.run_script(script.replace("/proc/", f"{host.root}/proc/"))
    return done.returncode, done.stdout


def process(host: HostFolder, group: str) -> None:
    folder = host.root / "proc" / "4711"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::{group}\n")


def listens(host: HostFolder, address: str) -> None:
    write_stand_in(host.root / "bin", "ss", f"echo 'LISTEN 0 512 {address}:8020 0.0.0.0:*'")


@pytest.mark.parametrize(
    "group",
    [
        f"/rigwright.slice/{CHAT}",
        f"/rigwright.slice/rigwright-chat.slice/{CHAT}",
        rf"/rigwright.slice/rigwright-a\x2db.slice/{CHAT}/worker",
    ],
)
def test_a_process_that_does_not_end_stops_an_activation(host: HostFolder, group: str) -> None:
    process(host, group)
    status, said = run(host)
    assert status == 1
    assert f"{CHAT} was stopped, but processes 4711 do not end" in said


@pytest.mark.parametrize(
    "group",
    [
        f"/user.slice/user-1000.slice/user@1000.service/app.slice/{CHAT}",
        f"/machine.slice/machine-box.scope/payload/rigwright.slice/{CHAT}",
        f"/rigwright.slice/x{CHAT}",
    ],
    ids=["a user's own", "a container's", "another's"],
)
def test_a_foreign_unit_of_that_name_holds_nothing_up(host: HostFolder, group: str) -> None:
    process(host, group)
    status, said = run(host)
    assert (status, "do not end" in said) == (0, False), said


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "*"])
def test_a_listener_that_is_left_stops_an_activation(host: HostFolder, address: str) -> None:
    listens(host, address)
    status, said = run(host)
    assert status == 1
    assert f"{CHAT} was stopped, but port 8020 is still taken" in said


@pytest.mark.parametrize("address", ["127.0.0.2", "10.0.0.5", "[::1]", "[::]", "[fe80::1]%eth0"])
def test_a_listener_on_another_address_is_no_conflict(host: HostFolder, address: str) -> None:
    listens(host, address)
    status, said = run(host)
    assert (status, "still taken" in said) == (0, False), said


@pytest.mark.parametrize("number", [1, 2], ids=["the current one", "another one"])
def test_needlessly_stopped_services_are_started_again(host: HostFolder, number: int) -> None:
    listens(host, "127.0.0.1")
    status, said = run(host, number)
    assert status == 1
    assert [asked for asked in host.systemctl_commands if asked.startswith(START)], said
    # it was never given the chance to serve
    assert "not serve" not in said
    assert f"generation {number} was not activated" in said.splitlines()[-1]
    assert str((host.config / "current").readlink()) == "generations/1"
