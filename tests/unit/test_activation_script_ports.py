"""The activation script where ports change hands, over a stand-in systemctl: when they are let go of, and held."""

from dataclasses import replace
from pathlib import Path

import pytest

from rigwright.host.generation_layout import ACTIVATING
from rigwright.host.systemd import UnitState
from rigwright.render import render
from rigwright.serving.activation import Activation
from rigwright.serving.instance_units import PREFIX, listener_units
from tests.unit.host_folder import HostFolder
from tests.unit.host_states import CHAT, CODE, FAILS, SERVES, target_generation, two_instance_rig
from tests.unit.rendered_scripts import activation_script, write_stand_in
from tests.unit.samples import sample_instance

(PORT, HOLDER), (PORT_2, HOLDER_2), (PORT_3, HOLDER_3) = (listener_units(port) for port in (8020, 8021, 8022))
OLD = target_generation(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8022)))
NEW = target_generation(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021)))
# as it was before ports had units: there is no file of theirs
BEFORE = replace(OLD, files={path: text for path, text in OLD.files.items() if PREFIX not in path})
TCP = UnitState(CHAT, "0" * 64, 8020, frozenset())
"""An engine that listens on the port itself."""
CARRIERS = {
    name: (service, port) for port, (service, name) in ((one, listener_units(one)) for one in (8020, 8021, 8022))
}
MOVED = Activation((PORT_3,), (PORT_2,), release=(HOLDER_3,), listen=(HOLDER_2,), carriers=CARRIERS)
TAKEN = Activation((CHAT,), (CHAT, CODE, PORT, PORT_2), (), (TCP,), listen=(HOLDER, HOLDER_2), carriers=CARRIERS)


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host on which everything becomes ready, with free ports."""
    made = HostFolder(tmp_path)
    made.set_answers(state=SERVES, active="active")
    write_stand_in(tmp_path / "bin", "ss", "true")
    (tmp_path / "proc").mkdir()
    return made


def run(host: HostFolder, way: Activation, old: object = OLD) -> tuple[int, str]:
    """Activate generation 2 where generation 1 is current."""
    host.write_generation(1, BEFORE if old is BEFORE else OLD)
    host.write_generation(2, NEW)
    (host.config / "current").symlink_to("generations/1")
    script = activation_script(way, (), str(host.config), str(host.units))
    done = host.run_script(script.replace("/proc/", f"{host.root}/proc/"))
    return done.returncode, done.stdout


def order(host: HostFolder, *asked: str) -> list[int]:
    """When systemd was asked this: the first time of each."""
    return [host.systemctl_commands.index(one) for one in asked]


def test_a_port_is_let_go_of_first_and_held_before_anything_is_started(host: HostFolder) -> None:
    """A client that connects to one that is held starts its service again."""
    status, said = run(host, MOVED)
    assert status == 0, said
    assert host.systemctl_commands[:7] == [
        f"stop {HOLDER_3}",
        f"stop {PORT_3}",
        "daemon-reload",
        f"stop {PORT_2}",
        f"start {HOLDER_2}",
        f"reset-failed {PORT_2}",
        "start --job-mode=ignore-dependencies rigwright.target",
    ]
    assert host.systemctl_commands[7] == f"restart --no-block {PORT_2}"


def test_a_port_that_an_engine_listens_on_itself_is_held_once_that_is_gone(host: HostFolder) -> None:
    status, said = run(host, TAKEN, BEFORE)
    assert status == 0, said
    started = f"restart --no-block {CHAT} {CODE} {PORT} {PORT_2}"
    times = order(host, f"stop {CHAT}", "daemon-reload", f"start {HOLDER}", started)
    assert times == sorted(times)


def test_a_port_that_stays_taken_is_not_held_and_what_was_stopped_comes_back(host: HostFolder) -> None:
    write_stand_in(host.root / "bin", "ss", "echo 'LISTEN 0 512 127.0.0.1:8020 0.0.0.0:*'")
    status, said = run(host, TAKEN, BEFORE)
    assert (status, host.current) == (1, "generations/1")
    assert f"{CHAT} was stopped, but port 8020 is still taken" in said
    assert f"start {HOLDER}" not in host.systemctl_commands
    assert f"restart --no-block {CHAT} {CODE}" in host.systemctl_commands


def test_a_generation_of_before_ports_had_units_gets_its_ports_back(host: HostFolder) -> None:
    host.set_answers(**{f"state_{CODE}": FAILS})
    status, said = run(host, TAKEN, BEFORE)
    assert (status, host.current) == (1, "generations/1"), said
    asked = host.systemctl_commands[host.systemctl_commands.index(f"stop {CODE}") :]
    assert not [one for one in asked if one.startswith("start rigwright_listener")]
    again = asked.index(f"restart --no-block {CHAT} {CODE}")
    assert all(asked.index(f"stop {unit}") < again for unit in (HOLDER, HOLDER_2, PORT, PORT_2))


def test_ports_of_the_earlier_generation_are_held_again_before_what_it_serves_starts(host: HostFolder) -> None:
    host.set_answers(**{f"state_{PORT_2}": FAILS})
    status, said = run(host, MOVED)
    assert (status, host.current) == (1, "generations/1"), said
    asked = host.systemctl_commands[host.systemctl_commands.index(f"restart --no-block {PORT_2}") :]
    order = (f"stop {HOLDER_2}", "daemon-reload", f"start {HOLDER_3}", f"restart --no-block {PORT_3}")
    times = [asked.index(one) for one in order]
    assert times == sorted(times)
    # the other one's is untouched
    assert f"stop {HOLDER}" not in asked


def test_a_port_that_cannot_be_held_starts_nothing_and_gives_way_to_the_earlier_generation(host: HostFolder) -> None:
    host.set_answers(fails=f"start {HOLDER_2}\n")
    status, said = run(host, MOVED)
    assert (status, host.current) == (1, "generations/1"), said
    assert f"restart --no-block {PORT_2}" not in host.systemctl_commands
    assert f"stop {HOLDER_2}" in host.systemctl_commands
    assert f"start {HOLDER_3}" in host.systemctl_commands
    assert "generation 1 is back" in said


def test_a_port_of_the_earlier_generation_that_cannot_be_held_again_is_reported(host: HostFolder) -> None:
    host.set_answers(fails=f"start {HOLDER_2}\nstart {HOLDER_3}\n")
    status, said = run(host, MOVED)
    assert status == 1
    assert f"{HOLDER_3} cannot listen again" in said


@pytest.mark.parametrize(("old", "free"), [(BEFORE, [HOLDER, HOLDER_2]), (OLD, [HOLDER_2])], ids=["none", "others"])
def test_after_a_power_cut_ports_that_the_proven_generation_does_not_hold_are_let_go_of(host, old, free):
    """A boot has systemd hold ports before any service starts: an engine that listens itself could not begin to."""
    host.write_generation(1, old)
    host.write_generation(2, NEW)
    (host.config / "current").symlink_to("generations/2")
    (host.config / ACTIVATING).write_text("1 2\n")
    done = host.run_script(render("generation/settle.j2", config=host.config, activating=ACTIVATING, units=host.units))
    assert (done.returncode, host.current) == (0, "generations/1"), done.stdout
    assert host.systemctl_commands[: len(free) + 1] == [*(f"stop {holder}" for holder in free), "daemon-reload"]
