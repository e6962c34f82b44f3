"""The state script on real folders: ports, as systemd holds and a service carries them."""

from pathlib import Path

import pytest

from rigwright.host.systemd import UnitState
from rigwright.serving.serving_state import ObservedUnit
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, target_generation
from tests.unit.samples import sample_card, sample_instance, sample_rig

CARDS = (sample_card("8.6"), sample_card("8.6"))
ON_CARDS = sample_rig(sample_instance("chat", cards=(1, 0)), sample_instance("code", port=8021), cards=CARDS)


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path)


def carry(host: HostFolder) -> UnitState:
    """Have the host hold a port and carry it. Returns what the service's process is to be."""
    unit_state = target_generation(ON_CARDS).listeners[0].unit_state
    host.write_generation(1, target_generation(ON_CARDS))
    for name in (unit_state.unit, unit_state.holders[0].unit):
        (host.units / name).symlink_to(f"{host.config}/current/units/{name}")
    (host.config / "current").symlink_to("generations/1")
    (host.run / "rigwright").mkdir(parents=True)
    (host.run / "rigwright" / unit_state.unit).write_text(f"{unit_state.started_from}\n")
    block = f"Id={unit_state.unit}\nActiveState=active\nSubState=running\nNRestarts=0\nMainPID=4711\n"
    # as `systemctl list-units --plain --no-legend` prints it
    host.set_answers(
        processes=block,
        sockets=f"{unit_state.holders[0].unit} loaded active running Port 8020 of this rig's instances\n",
        listening='LISTEN 0 4096 127.0.0.1:8020 0.0.0.0:* users:(("systemd",pid=1,fd=40))\n',
    )
    return unit_state


def test_a_ports_service_has_neither_key_nor_weights_that_could_change(host: HostFolder) -> None:
    unit_state = carry(host)
    found = host.read_state()
    assert found.processes == {
        unit_state.unit: ObservedUnit("active", "running", 0, True, unit_state.started_from, True, True)
    }
    assert found.sockets == {unit_state.holders[0].unit: unit_state.holders[0].addresses}
    assert found.held_state(unit_state.unit) == unit_state
    assert (unit_state.port, unit_state.leads_to) == (8020, CHAT)


@pytest.mark.parametrize(
    "lines",
    [
        'LISTEN 0 5 127.0.0.1:8020 0.0.0.0:* users:(("python3",pid=77,fd=3))\n',
        'LISTEN 0 5 0.0.0.0:8020 0.0.0.0:* users:(("systemd",pid=1,fd=40))\n',
        'LISTEN 0 5 127.0.0.1:8020 0.0.0.0:* users:(("systemd",pid=1,fd=4))\n'
        'LISTEN 0 5 [::]:8020 [::]:* users:(("systemd",pid=1,fd=5))\n',
    ],
)
def test_a_port_that_systemd_does_not_hold_where_it_is_to_is_not_held(host: HostFolder, lines: str) -> None:
    unit_state = carry(host)
    host.set_answers(listening=lines)
    (holder,) = unit_state.holders
    assert not holder.is_listening(host.read_state().sockets[holder.unit])


def test_a_socket_whose_file_is_not_ours_is_not_known(host: HostFolder) -> None:
    unit_state = carry(host)
    (holder,) = unit_state.holders
    (host.units / holder.unit).unlink()
    (host.units / holder.unit).write_text("[Socket]\n")
    assert host.read_state().sockets == {}
