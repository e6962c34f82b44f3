"""The activation script, and the one after a power cut, over a stand-in systemctl: which generation they leave."""

from pathlib import Path

import pytest

from rigwright.host.generation_layout import ACTIVATING, PROVEN
from rigwright.model.instance import slice_of
from rigwright.render import render
from rigwright.serving.activation import Activation
from rigwright.serving.generation import SETTLE
from rigwright.serving.instance_units import listener_units
from tests.unit.host_folder import SYSTEMCTL, HostFolder
from tests.unit.host_states import CHAT, CODE, FAILS, SERVES, target_generation, two_instance_rig
from tests.unit.rendered_scripts import activation_script, write_stand_in
from tests.unit.samples import sample_instance

(PORT, HOLDER), (PORT_2, HOLDER_2) = listener_units(8020), listener_units(8021)
OLD, NEW = (
    target_generation(two_instance_rig(sample_instance("chat"))),
    target_generation(two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021))),
)
FOREIGN = "rigwright-old.service"
START = "start --job-mode=ignore-dependencies rigwright.target"


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    """A host with generations 1 and 2, of which none is current."""
    made = HostFolder(tmp_path)
    made.write_generation(1, OLD)
    made.write_generation(2, NEW)
    made.set_answers(state=SERVES)
    return made


def linked(host: HostFolder) -> set[str]:
    """Unit files that lead to something."""
    return {path.name for path in host.units.glob("rigwright*") if path.exists()}


def serve_old(host: HostFolder) -> None:
    host.run_script(script(host, Activation((), (CHAT,))).replace("new=2", "new=1"))
    assert host.current == "generations/1"
    host.set_answers(asked="")


def script(host: HostFolder, way: Activation, foreign: tuple[str, ...] = ()) -> str:
    return activation_script(way, foreign, str(host.config), str(host.units))


def test_the_first_generation_is_linked_read_and_started(host: HostFolder) -> None:
    done = host.run_script(script(host, Activation((), (CHAT, CODE))))
    assert done.returncode == 0, done.stdout + done.stderr
    assert host.current == "generations/2"
    assert linked(host) == set(NEW.unit_files)
    assert str((host.units / "multi-user.target.wants/rigwright.target").readlink()) == "../rigwright.target"
    assert host.systemctl_commands == [
        "daemon-reload",
        f"reset-failed {CHAT} {CODE}",
        START,
        f"restart --no-block {CHAT} {CODE}",
        f"reset-failed {CHAT} {CODE}",
        START,
    ]
    assert not (host.config / ACTIVATING).exists()


def test_a_conflicting_service_is_stopped_before_the_link_moves(host: HostFolder) -> None:
    serve_old(host)
    (host.units / FOREIGN).write_text("")
    assert host.run_script(script(host, Activation((FOREIGN, CHAT), (CHAT, CODE)), (FOREIGN,))).returncode == 0
    # an empty slice would stay
    assert host.systemctl_commands[:3] == [f"stop {FOREIGN} {CHAT}", f"stop {slice_of(FOREIGN)}", "daemon-reload"]
    assert linked(host) == set(NEW.unit_files)


def test_systemds_state_of_a_failed_one_goes_with_its_unit(host: HostFolder) -> None:
    serve_old(host)
    assert host.run_script(script(host, Activation(idle=(FOREIGN,)), (FOREIGN,))).returncode == 0
    assert host.systemctl_commands[:3] == [f"stop {slice_of(FOREIGN)}", f"reset-failed {FOREIGN}", "daemon-reload"]


def test_units_of_the_earlier_generation_that_are_gone_lose_their_links(host: HostFolder) -> None:
    assert host.run_script(script(host, Activation((), (CHAT, CODE)))).returncode == 0
    (host.units / "rigwright-theirs.service").symlink_to("/nowhere")
    serve_old(host)
    assert linked(host) == set(OLD.unit_files)
    assert (host.units / "rigwright-theirs.service").is_symlink()


def test_a_generation_that_has_served_once_stays_in_its_place_when_it_does_not_any_more(host: HostFolder) -> None:
    serve_old(host)
    host.set_answers(**{f"state_{CODE}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT, CODE))))
    assert (done.returncode, host.current) == (1, "generations/1")
    assert (host.config / "generations/2" / PROVEN).exists()


def test_the_current_generation_that_does_not_serve_any_more_is_not_said_to_be_the_first_one(host: HostFolder) -> None:
    serve_old(host)
    host.set_answers(**{f"state_{CHAT}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT,))).replace("new=2", "new=1"))
    assert (done.returncode, host.current) == (1, "generations/1")
    assert "generation 1 was active before and no longer serves" in done.stdout
    assert not (host.config / ACTIVATING).exists()


def test_a_generation_that_does_not_serve_gives_way_to_the_earlier_one(host: HostFolder) -> None:
    serve_old(host)
    (host.config / "generations/2" / PROVEN).unlink()
    host.set_answers(**{f"state_{CODE}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT, CODE))))
    assert (done.returncode, host.current) == (1, "generations/1")
    assert linked(host) == set(OLD.unit_files)
    assert (host.config / "generations/failed/manifest.json").read_text() == NEW.files["manifest.json"]
    assert not (host.config / "generations/2").exists()
    assert not (host.config / ACTIVATING).exists()
    assert host.systemctl_commands.count(f"stop {CODE}") >= 1
    assert f"restart --no-block {CHAT} {PORT}" in host.systemctl_commands
    assert "the log of" in done.stdout
    assert f"--lines=5000 --unit={CODE}" in done.stdout
    assert "generation 1 is back" in done.stdout


def test_a_units_last_lines_are_shown_and_not_systemds_kills(host: HostFolder) -> None:
    killed = "".join(f"echo '{CODE}: Killing process {pid} (ZMQbg/IO/0) with signal SIGKILL.';" for pid in range(30))
    write_stand_in(host.root / "bin", "journalctl", f"echo it waits for a card; {killed} echo Failed with result")
    host.set_answers(**{f"state_{CODE}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT, CODE))))
    assert "it waits for a card\nFailed with result\n" in done.stdout
    assert "ZMQbg" not in done.stdout


def test_without_an_earlier_generation_the_new_one_stays_as_it_is(host: HostFolder) -> None:
    host.set_answers(**{f"state_{CODE}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT, CODE))))
    assert (done.returncode, host.current) == (1, "generations/2")
    assert "no earlier one to go back to" in done.stdout
    assert not (host.config / ACTIVATING).exists()


def test_an_activation_after_one_that_was_cut_off_goes_back_to_the_one_before_both(host: HostFolder) -> None:
    serve_old(host)
    (host.config / "current").unlink()
    (host.config / "current").symlink_to("generations/2")
    (host.config / ACTIVATING).write_text("1 2\n")
    host.set_answers(**{f"state_{CODE}": FAILS})
    assert host.run_script(script(host, Activation((), (CHAT, CODE)))).returncode == 1
    assert host.current == "generations/1"


def test_services_stopped_by_an_unfinished_activation_come_back_too(host: HostFolder) -> None:
    (host.config / "current").symlink_to("generations/2")
    (host.config / ACTIVATING).write_text("2 1\n")
    host.set_answers(**{f"state_{CHAT}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT,))).replace("new=2", "new=1"))
    assert (done.returncode, host.current) == (1, "generations/2")
    assert f"restart --no-block {CHAT} {CODE} {PORT} {PORT_2}" in host.systemctl_commands


AFTER_RELOAD = """
cd "$(dirname "$0")/../systemd"
case "$*" in
  show*ActiveState,SubState,NRestarts,Job*{router}) touch router ;;
  reload*) [ ! -e router ] || cp state state-{chat} ;;
esac
"""


def test_the_gateway_has_its_earlier_settings_before_instances_are_awaited(host: HostFolder) -> None:
    serve_old(host)
    router = "rigwright_router.service"
    (host.config / "generations/1/units" / router).write_text("[Install]\nWantedBy=rigwright.target\n")
    # the model answers only once the gateway has its settings again, and that waits for the router
    write_stand_in(host.root / "bin", "systemctl", AFTER_RELOAD.format(router=router, chat=CHAT) + SYSTEMCTL)
    host.set_answers(**{f"state_{CODE}": FAILS, f"state_{CHAT}": FAILS})
    done = host.run_script(script(host, Activation((), (CHAT, CODE), reload=("rigwright_gateway.service",))))
    assert (done.returncode, host.current) == (1, "generations/1")
    assert host.systemctl_commands.count("reload rigwright_gateway.service") == 1
    assert "does not serve either" not in done.stdout


def test_units_of_both_generations_are_left_alone_on_the_way_back(host: HostFolder) -> None:
    serve_old(host)
    host.set_answers(active="active", **{f"state_{CODE}": FAILS})
    assert host.run_script(script(host, Activation((), (CODE,)))).returncode == 1
    assert not [asked for asked in host.systemctl_commands if asked.startswith("restart") and CHAT in asked]


def test_nothing_to_start_only_has_systemd_read_what_is_there(host: HostFolder) -> None:
    serve_old(host)
    assert host.run_script(script(host, Activation())).returncode == 0
    assert host.systemctl_commands == ["daemon-reload", START]


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ("ActiveState=active\nSubState=running\nNRestarts=0\nJob=0\n", 0),
        ("ActiveState=failed\nSubState=failed\nNRestarts=5\nJob=\n", 1),
        ("ActiveState=inactive\nSubState=dead\nNRestarts=0\nJob=0\n", 1),
        ("ActiveState=activating\nSubState=start\nNRestarts=2\nJob=\n", 1),
        ("", 1),
    ],
    ids=["serves", "failed", "dead", "starts again", "systemd says nothing"],
)
def test_an_instance_has_settled_when_it_serves_or_has_failed(host: HostFolder, states: str, status: int) -> None:
    host.set_answers(state=states)
    assert host.run_script(script(host, Activation((), (CHAT,)))).returncode == status


# systemd's own restart of a unit that was failing begins beside the one that is asked for, and counts; the unit is
# seen as it was until the job is run
BETWEEN_TRIES = """
cd "$(dirname "$0")/../systemd"
between() { printf 'ActiveState=activating\nSubState=auto-restart\nNRestarts=%s\nJob=7\n' "$1"; }
case "$*" in
  reset-failed*) [ ! -e restarted ] || between 0 > state ;;
  restart*) touch restarted; between 1 > state ;;
  show*ActiveState,SubState,NRestarts,Job*) cat state; [ ! -e restarted ] || cat serves > state ;;
esac
"""


def test_a_restart_of_systemds_own_that_begins_beside_is_no_failure(host: HostFolder) -> None:
    host.set_answers(serves=SERVES)
    write_stand_in(host.root / "bin", "systemctl", BETWEEN_TRIES)
    done = host.run_script(script(host, Activation((), (CHAT,))))
    assert done.returncode == 0, done.stdout + done.stderr


def settle(host: HostFolder) -> str:
    return render("generation/settle.j2", config=host.config, activating=ACTIVATING, units=host.units)


def test_after_a_power_cut_the_proven_generation_is_served_again(host: HostFolder) -> None:
    (host.config / "current").symlink_to("generations/2")
    (host.config / ACTIVATING).write_text("1 2\n")
    assert (host.run_script(settle(host)).returncode, host.current) == (0, "generations/1")
    assert linked(host) == set(OLD.unit_files)
    started = [f"start --no-block {unit}" for unit in (HOLDER, CHAT, PORT)]
    assert host.systemctl_commands == [f"stop {HOLDER_2}", "daemon-reload", *started]
    assert not (host.config / ACTIVATING).exists()


@pytest.mark.parametrize("journal", ["- 2\n", "", "9 2\n"], ids=["first", "empty", "one that is gone"])
def test_after_a_power_cut_without_a_proven_generation_the_new_one_stays(host: HostFolder, journal: str) -> None:
    (host.config / "current").symlink_to("generations/2")
    (host.config / ACTIVATING).write_text(journal)
    assert host.run_script(settle(host)).returncode == 0
    assert (host.current, host.systemctl_commands) == ("generations/2", [])
    assert not (host.config / ACTIVATING).exists()


def test_the_unit_that_settles_is_wanted_before_the_instances() -> None:
    assert f"After={SETTLE}" in NEW.files[f"units/{CHAT}"]


def test_those_that_were_proven_do_not_serve_on_when_another_fails(host: HostFolder) -> None:
    serve_old(host)
    host.set_answers(**{f"state_{CODE}": FAILS})
    done = host.run_script(script(host, Activation((), (CODE,), prove=(CHAT,))))
    assert (done.returncode, host.current) == (1, "generations/1")
    commands = host.systemctl_commands
    back = len(commands) - 1 - commands[::-1].index("daemon-reload")
    assert f"stop {CHAT}" in commands[:back]
